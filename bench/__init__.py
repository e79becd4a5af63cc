"""Benchmarks: ratios of wirescan to a plain copy of the same bytes and to its peers.

    python -m bench             run all parts; print the tables and write bench/RESULTS.md
    python -m bench kafka       run one part (see PARTS in bench/__main__.py)
    python -m bench --quick     run with small data and few rounds, and write nothing
    python -m bench growth --huge    the part growth up to 8 GiB: 8 GiB of disk, 16 GiB of memory
    python -m bench --results bench/RESULTS-intel.md    write the results of another processor

    python -m bench.instructions    compare the kernels' instructions with bench/instructions.json
    python -m bench.ratios          draw bench/ratios.svg from README.md
    python -m bench.growth_picture  draw bench/growth.svg from bench/RESULTS.md

Compared programs take turns in one run. The workloads (3 GB) are written once to
WIRESCAN_BENCH_DIR, by default ~/.cache/wirescan/bench.

Benchmarks need the packages of the extras `spark` and `peers`, a Java 17 JDK, mvn, Go, and gcc with
zlib's headers. Optional are Rust's cargo, for the crate kafka-protocol, and Apache Thrift's C++
library: it needs g++, and libthrift-dev and libboost-dev of Debian. bench/peers/compiled.py builds
the programs in C, Go and Rust that read Kafka's records. The report names those that could not be
built.
"""
