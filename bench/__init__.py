"""Benchmarks: ratios of wirescan to a plain copy of the same bytes and to its peers.

    python -m bench             run all parts; print the tables and write bench/RESULTS.md
    python -m bench kafka       run one part (see PARTS in bench/__main__.py)
    python -m bench --quick     run with small data and few rounds, and write nothing

    python -m bench.instructions    compare the kernels' instructions with bench/instructions.json

Compared programs take turns in one run. The workloads (3 GB) are written once to
WIRESCAN_BENCH_DIR, by default ~/.cache/wirescan/bench.

Benchmarks need the packages of the extras `spark` and `peers`, a Java 17 JDK, mvn, Go, and gcc with
zlib's headers. Apache Thrift's C++ library is optional: it needs g++, and libthrift-dev and
libboost-dev of Debian.
"""
