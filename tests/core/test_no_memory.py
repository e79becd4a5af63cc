"""Kernels raise MemoryError if the system refuses memory, and damage nothing.

The calls run in a separate process that limits its address space for each call.
"""

import os
import re
import subprocess
import sys
import sysconfig

import pytest

from tests.support.outside import has_working_compiler
from wirescan.core import inflate
from wirescan.core.rows import Block, RowBlock

PROGRAM = """
import resource

import numpy as np

from wirescan import Limits, nats
from wirescan.core.column_writer import ColumnWriter
from wirescan.core.rows import Block
from wirescan.core.strings import ByteStrings
from wirescan.kafka.encode.writer import Columns, write_batches
from wirescan.lumberjack.writer import Documents, write_windows
from wirescan.nats.scan import MESSAGE, scan_stream

FREE = 8 << 20                  # bytes that a call may take


def attempt(name, call, *arguments, **named):
    pages = int(open("/proc/self/statm").read().split()[0])
    space = pages * resource.getpagesize() + FREE
    resource.setrlimit(resource.RLIMIT_AS, (space, resource.RLIM_INFINITY))
    try:
        result = "a result of %d bytes" % len(call(*arguments, **named))
    except MemoryError as error:
        result = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(name, result, sep=": ")


many = 1 << 20
pings = b"PING\\r\\n" * many
text = ByteStrings(b"{}", many)
large = bytes(64 << 20)
single = ByteStrings([b"{}"])
writer = ColumnWriter(MESSAGE)
for name in MESSAGE.names:
    writer.add_numbers(name)
columns = Columns(ByteStrings(None, many), text, np.array([7]), None, None)
column = Columns(ByteStrings([None]), single, np.array([7]), None, None)
fields = (0, -1, -1, -1, 0, -1)

attempt("scan", nats.scan, pings)
attempt("columns", scan_stream, pings, check=True, resync=False, limits=Limits(), into=writer)
attempt("batches", write_batches, columns, 100, fields)
attempt("compressed batch", write_batches, column, 100, fields, lambda raw: large)
attempt("windows", write_windows, Documents(text, 2), 1, 1, False)
attempt("compressed window", write_windows, Documents(single, 2), 1, 1, False, lambda raw: large)
attempt("block", Block, 64 << 20)
attempt("a block again", Block, 1 << 20)
"""


REFUSALS = {
    "scan": r"no memory for more than \d+ rows of 80 bytes",
    "columns": r"no memory for the columns of \d+ rows",
    "batches": r"no memory for more than \d+ batches",
    "compressed batch": "no memory for 67108925 bytes",
    "windows": r"no memory for more than \d+ windows",
    "compressed window": "no memory for 67108876 bytes",
    "block": "no memory for 67108864 bytes",
    "a block again": "a result of 1048576 bytes",
}

# A libz whose inflateInit2_ or inflate reports that memory is exhausted.
LIBRARY = """
int inflateInit2_(void* z, int bits, const char* version, int size) { return INIT; }
int inflate(void* z, int flush) { return -4; }
int inflateReset(void* z) { return 0; }
int inflateEnd(void* z) { return 0; }
"""

INFLATING = """
import sys
import zlib

zlib.__file__ = sys.argv[1]

import numpy as np
from wirescan.core.inflate import inflate_spans
from wirescan.core.loop import HEAD
from wirescan.core.rows import Block

spans, places = np.zeros(1, HEAD), np.zeros(1, HEAD)
spans["size"] = 8
try:
    inflate_spans((bytes(8),), spans, places, 0, Block(100), 0, 0, (1000, 100, 100), 100, True)
except MemoryError as error:
    print(error)
"""


def run(program, *arguments):
    """Run a program and return its output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_system_has_no_memory():
    results = dict(line.split(": ") for line in run(PROGRAM).splitlines())
    assert results.keys() == REFUSALS.keys()
    for name, pattern in REFUSALS.items():
        assert re.fullmatch(pattern, results[name]), (name, results[name])


@pytest.mark.skipif(not has_working_compiler(), reason="replaces zlib, which needs a C compiler")
@pytest.mark.parametrize("code", [-4, 0], ids=["init", "inflate"])
def test_zlib_has_no_memory(tmp_path, code):
    source, library = tmp_path / "z.c", tmp_path / "libz.so"
    source.write_text(LIBRARY)
    compiler = sysconfig.get_config_var("CC").split()
    subprocess.run(
        [*compiler, f"-DINIT={code}", "-shared", "-fPIC", "-o", library, source], check=True
    )
    assert run(INFLATING, library) == "no memory to inflate\n"


def test_rows_of_more_than_the_address_space():
    with pytest.raises(MemoryError, match="no memory for 1 rows of 9223372036854775808 bytes"):
        RowBlock(1 << 63, 1, 1)


def test_a_kept_block_of_another_size_is_freed():
    """A freed block of at least 2 MiB is kept for the next block of about the same size."""
    block = Block(4 << 20)
    del block
    assert len(Block(64 << 20)) == 64 << 20
    assert len(Block(4 << 20)) == 4 << 20


GROWING = """
import re
import struct
import zlib

import numpy as np

from wirescan import lumberjack


def read_peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10


payload = zlib.compress(b"2W\\0\\0\\0\\0" * 3_000_000, 9)
frames = lumberjack.scan(b"2C" + struct.pack(">I", len(payload)) + payload)
before = read_peak()
rows = lumberjack.plain(frames).rows
growth = read_peak() - before
assert (rows["start"] == 6 * np.arange(len(rows))).all()
assert (rows["size"] == 6).all()
print(growth / rows.nbytes)
"""


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="the sanitizer copies rows that grow")
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs the peak of the memory")
def test_rows_that_grow_are_never_there_twice():
    """The first estimate of the rows is about a twentieth of them."""
    assert 1 <= float(run(GROWING)) < 1.25  # with copies, 3.4


def test_zlib_is_found_elsewhere_when_its_module_has_no_library():
    program = (
        "import zlib\n"
        "zlib.__file__ = '/no/such/library'\n"
        "from wirescan.core import inflate\n"
        "print(inflate.available)"
    )
    assert run(program) == f"{inflate.available}\n"
