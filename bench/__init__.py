"""Benchmarks: wirescan beside a plain copy of the same bytes and beside its peers, as ratios in one run.

    python -m bench                 all parts; the tables are printed and written to bench/RESULTS.md
    python -m bench kafka           one part: kafka, lookup, fetch, encode, lumberjack, nats, liftbridge, thrift or spark
    python -m bench --quick         small data, few rounds, nothing written: does it still run?

The workloads (3 GB) are made once and kept outside the checkout, in WIRESCAN_BENCH_DIR, by default
~/.cache/wirescan/bench. The packages of the extras `spark` and `peers` take part, and so do a Java 17 JDK,
mvn, Go, gcc with zlib's headers, and g++ with Apache Thrift's (libthrift-dev and libboost-dev of Debian), where it has
them.
"""
