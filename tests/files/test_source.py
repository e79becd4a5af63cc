"""Sources of bytes: every kind of source gives the same buffers, without a copy."""

import builtins
import gc
import io
import mmap
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import wirescan
from tests.support.paths import ORDERS
from wirescan import kafka
from wirescan.files.source import (
    SIDECAR,
    MappedFile,
    expand,
    get_size,
    list_files,
    read_range,
    view_of,
)
from wirescan.kafka import encode_batch

RAW = b"".join(encode_batch([b"%d" % i * 9], base_offset=i) for i in range(5))


def find_address(data):
    return np.frombuffer(data, np.uint8).ctypes.data


def make_segment_name(number):
    return f"{number:020}.log"


@pytest.fixture
def partition(tmp_path):
    """A directory with three segments, and every kind of file that a broker keeps beside them."""
    folder = tmp_path / "topic-0"
    folder.mkdir()
    for number in (5, 0, 10):
        (folder / make_segment_name(number)).write_bytes(encode_batch([b"x"], base_offset=number))
    for other in (
        make_segment_name(0) + ".deleted",
        make_segment_name(1) + ".cleaned",
        make_segment_name(2) + ".swap",
        make_segment_name(0)[:-4] + ".index",
        make_segment_name(0)[:-4] + ".timeindex",
        make_segment_name(5)[:-4] + ".txnindex",
        make_segment_name(5)[:-4] + ".snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "notes.log",
        "readme.txt",
    ):
        (folder / other).write_bytes(b"not a segment")
    for moved in ("topic-0.aa11-delete", "topic-0.bb22-future", "topic-0.cc33-stray"):
        (tmp_path / moved).mkdir()
        (tmp_path / moved / make_segment_name(0)).write_bytes(encode_batch([b"moved"]))
    return folder


# --- in memory


def list_makers():
    yield "bytes", lambda raw: raw
    yield "bytearray", bytearray
    yield "memoryview", memoryview
    yield "sliced", lambda raw: memoryview(b"ab" + raw + b"cd")[2:-2]
    yield "cast", lambda raw: memoryview(raw + bytes(-len(raw) % 4)).cast("i")
    yield "numpy", lambda raw: np.frombuffer(raw, np.uint8)
    yield "int8", lambda raw: np.frombuffer(raw, np.int8)
    yield "int32", lambda raw: np.frombuffer(raw + bytes(-len(raw) % 4), ">i4")
    yield "two-d", lambda raw: np.frombuffer(raw + bytes(-len(raw) % 4), np.uint8).reshape(-1, 4)
    yield (
        "structured",
        lambda raw: np.frombuffer(
            raw + bytes(-len(raw) % 4), [("a", "<u2"), ("b", "u1"), ("c", "i1")]
        ),
    )
    yield "void", lambda raw: np.frombuffer(raw + bytes(-len(raw) % 4), "V4")
    yield "datetimes", lambda raw: np.frombuffer(raw + bytes(-len(raw) % 8), "M8[s]")
    yield "arrow", pa.py_buffer


@pytest.mark.parametrize("make", [pytest.param(make, id=label) for label, make in list_makers()])
def test_buffers_are_not_copied(make):
    data = make(RAW)
    (view,) = wirescan.open(data)
    assert isinstance(view, memoryview)
    assert view.format == "B"
    assert view.ndim == 1
    assert bytes(view).rstrip(b"\0") == RAW.rstrip(b"\0")
    assert bytes(view[: len(RAW)]) == RAW
    assert find_address(view) == find_address(data)  # nothing is copied
    table = kafka.scan(data)
    assert table["base_offset"].tolist() == list(range(5))
    assert find_address(table.frame(0)) == find_address(data)


def test_a_map_is_not_copied(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(RAW)
    with builtins.open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (view,) = wirescan.open(data)
    assert find_address(view) == find_address(data)
    assert view == RAW


def test_buffers_that_are_not_contiguous_are_refused():
    for data in (
        memoryview(RAW)[::2],
        np.frombuffer(RAW, np.uint8)[::2],
        np.zeros((4, 4), np.uint8)[:, :2],
        np.frombuffer(RAW, np.uint8)[::-1],
    ):
        with pytest.raises(TypeError, match="contiguous"):
            view_of(data)


@pytest.mark.parametrize(
    "wrong",
    [None, 5, 1.5, {"a": b""}, {b""}, object(), pa.array([b"a"]), range(3)],
    ids=lambda value: type(value).__name__,
)
def test_other_objects_are_refused(wrong):
    with pytest.raises(TypeError, match="neither a path nor a bytes-like object"):
        wirescan.open(wrong)


def test_arrays_of_objects_are_refused():
    with pytest.raises(TypeError, match="neither a path nor a bytes-like object: ndarray"):
        wirescan.open(np.array([b"a", None], object))


def test_empty_buffers_have_no_rows():
    for nothing in (
        b"",
        bytearray(),
        memoryview(b""),
        np.empty(0, np.uint8),
        np.empty((0, 4)),
        pa.py_buffer(b""),
    ):
        (view,) = wirescan.open(nothing)
        assert view.nbytes == 0
        assert view.format == "B"
    assert wirescan.open([]) == ()
    assert len(kafka.scan([])) == 0


def test_lists_nest(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(RAW)
    views = wirescan.open([RAW, (path, [bytearray(RAW)]), str(path)])
    assert [view == RAW for view in views] == [True] * 4
    table = kafka.scan([RAW, str(path)])
    assert table["buffer"].tolist() == [0] * 5 + [1] * 5
    assert len(table.stops) == 2


def test_a_buffer_outlives_its_name():
    table = kafka.records(kafka.scan(bytearray(RAW)))
    gc.collect()
    assert [bytes(row.value) for row in table] == [b"%d" % i * 9 for i in range(5)]


def test_a_bytearray_cannot_grow_while_a_table_holds_it():
    data = bytearray(RAW)
    table = kafka.scan(data)
    with pytest.raises(BufferError, match="Existing exports"):
        data.extend(b"more")
    assert len(table) == 5


# --- files


def test_paths_are_mapped(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    for source in (path, str(path)):
        (view,) = wirescan.open(source)
        assert isinstance(view.obj, MappedFile)
        assert view.obj.path == str(path)
        assert view == RAW
        assert view.readonly
        table = kafka.records(kafka.scan(source))
        assert table.frame(0).obj is table.buffers[0].obj


def test_the_table_keeps_the_map_alive(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    value = kafka.records(kafka.scan(path))[3].value
    gc.collect()
    path.unlink()
    assert value == b"3" * 9  # the view alone is enough
    with pytest.raises(BufferError, match="exported pointers"):
        value.obj.close()


def test_no_file_stays_open(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    tables = [kafka.scan(path) for _ in range(50)]
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    # mmap keeps one descriptor for each map. Reading keeps none.
    assert after - before <= len(tables)
    del tables
    gc.collect()
    assert not before or len(os.listdir("/proc/self/fd")) <= before


def test_many_mapped_files_do_not_exhaust_descriptors(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    program = (
        "import resource, sys, wirescan; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "print(len(wirescan.open([sys.argv[1]] * 150)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "150"


def test_missing_files_are_refused(tmp_path):
    for missing in (tmp_path / "none.log", str(tmp_path / "none*.log"), tmp_path / "no" / "folder"):
        with pytest.raises(FileNotFoundError, match="No such file|no file to read in"):
            wirescan.open(missing)
    with pytest.raises(FileNotFoundError, match="no file to read in"):
        wirescan.open(tmp_path)
    with pytest.raises(FileNotFoundError, match="No such file.*none.log"):
        wirescan.open([RAW, tmp_path / "none.log"])


def test_an_empty_file_has_no_rows(tmp_path):
    (tmp_path / "empty").touch()
    (view,) = wirescan.open(tmp_path / "empty")
    assert view == b""
    assert len(kafka.records(kafka.scan(tmp_path / "empty"))) == 0


def test_names_with_odd_characters(tmp_path):
    for odd in ("a [b] c*.log", "a?.log", "naïve \N{SNOWMAN}.log", "new\nline", "http:"):
        path = tmp_path / odd
        path.write_bytes(RAW)
        (view,) = wirescan.open(path)
        assert view == RAW
    path = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe.log")
    Path(path).write_bytes(RAW)
    assert wirescan.open(path)[0] == RAW


def test_bytes_paths_are_data():
    assert wirescan.open(b"/etc/hostname")[0] == b"/etc/hostname"


def test_a_fifo_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[RAW], daemon=True)
    writer.start()
    (view,) = wirescan.open(path)
    writer.join(10)
    assert view == RAW


def test_standard_input_is_read_to_its_end():
    program = "import wirescan; print(len(wirescan.scan('/dev/stdin', 'kafka.records')))"
    result = subprocess.run(
        [sys.executable, "-c", program], input=RAW, capture_output=True, check=True
    )
    assert result.stdout.strip() == b"5"


def test_file_objects_are_read(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    with builtins.open(path, "rb") as file:
        assert wirescan.open(file)[0] == RAW
    with builtins.open(path, "rb", buffering=0) as file:
        file.seek(len(RAW) // 5)
        assert len(kafka.scan(file)) == 4  # from the current position of the file
    assert wirescan.open(io.BytesIO(RAW))[0] == RAW
    assert wirescan.open(pa.BufferReader(RAW))[0] == RAW
    with pytest.raises(TypeError, match="text mode"):
        wirescan.open(io.StringIO("text"))
    with (
        builtins.open(path, encoding="latin-1") as text,
        pytest.raises(TypeError, match="text mode"),
    ):
        wirescan.open(text)


def test_file_urls_are_paths(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    url = path.as_uri()
    assert url.startswith("file:///")
    assert expand(url) == [str(path)]
    assert wirescan.open(url)[0] == RAW
    assert get_size(url) == len(RAW)
    assert read_range(url, 3, 10) == RAW[3:10]
    assert len(kafka.records(kafka.scan(url))) == 5
    (tmp_path / "empty").touch()
    assert wirescan.open((tmp_path / "empty").as_uri())[0] == b""
    with pytest.raises(FileNotFoundError, match="No such file.*none.bin"):
        wirescan.open((tmp_path / "none.bin").as_uri())


def test_file_urls_are_the_paths_in_them(partition, tmp_path):
    assert kafka.scan(partition.as_uri())["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(partition.as_uri() + "/0*5.log")["base_offset"].tolist() == [5]
    assert kafka.scan(tmp_path.as_uri() + "/*")["base_offset"].tolist() == [0, 5, 10]
    assert expand(f"FILE://localhost{partition}") == expand(partition)
    for odd in ("a b.log", "a%20b.log", "a[b]?#.log", os.fsdecode(b"\xff\xfe.log")):
        path = tmp_path / odd
        path.write_bytes(RAW)
        assert expand(path.as_uri()) == [str(path)]
        assert wirescan.open(path.as_uri())[0] == RAW
    with pytest.raises(ValueError, match="no file system for file://elsewhere: "):
        expand("file://elsewhere/a.log")
    with pytest.raises(FileNotFoundError, match=r"no file to read in .*none/\*\.log"):
        wirescan.open((tmp_path / "none").as_uri() + "/*.log")


# --- globs and directories


def test_globs_match_sorted_names(tmp_path):
    for where in ("b.log", "a.log", "deep/c.log", "deep/er/d.log", "other.txt"):
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_bytes(where.encode())

    def read_names(pattern):
        return [bytes(view).decode() for view in wirescan.open(os.path.join(tmp_path, pattern))]

    assert read_names("*.log") == ["a.log", "b.log"]
    assert read_names("**/*.log") == ["a.log", "b.log", "deep/c.log", "deep/er/d.log"]
    assert read_names("[ab].log") == ["a.log", "b.log"]
    assert read_names("?.log") == ["a.log", "b.log"]
    assert read_names("*") == ["a.log", "b.log", "deep/c.log", "deep/er/d.log", "other.txt"]
    views = wirescan.open(tmp_path)
    names = [bytes(view).decode() for view in views]
    assert names == ["a.log", "b.log", "deep/c.log", "deep/er/d.log", "other.txt"]
    views = wirescan.open(tmp_path, files=r"\.txt$")
    assert [bytes(view) for view in views] == [b"other.txt"]
    assert len(wirescan.open(os.path.join(tmp_path, "*"), ignore=r"\.txt$|/deep/$")) == 2
    with pytest.raises(FileNotFoundError, match="no file to read in"):
        wirescan.open(tmp_path, files="nothing")
    # The files of a directory that matches are read.
    assert read_names("deep**") == ["deep/c.log", "deep/er/d.log"]
    assert read_names("**/deep") == ["deep/c.log", "deep/er/d.log"]
    (tmp_path / "again").symlink_to(tmp_path / "deep")
    # Each file is read once.
    assert sorted(read_names("**/*.log")) == ["a.log", "b.log", "deep/c.log", "deep/er/d.log"]
    (tmp_path / "li\nes").mkdir()
    (tmp_path / "li\nes" / f"{7:020}.log").write_bytes(encode_batch([b"here"]))
    assert len(kafka.scan(tmp_path / "li*")) == len(kafka.scan(tmp_path / "li\nes")) == 1


def test_listed_files_have_sizes(partition, tmp_path):
    for source in (
        partition,
        str(partition) + "/0*.log",
        partition.as_uri(),
        partition / make_segment_name(5),
    ):
        listed = list_files(source, files=r"\d{20}\.log$", ignore="none")
        paths = expand(source, files=r"\d{20}\.log$", ignore="none")
        assert [file.path for file in listed] == paths
        assert [file.size for file in listed] == [os.path.getsize(file.path) for file in listed]
        assert listed
    os.mkfifo(tmp_path / "pipe")
    assert expand(tmp_path / "pipe") == expand(str(tmp_path / "pip?")) == [str(tmp_path / "pipe")]
    for source in (tmp_path / "pipe", tmp_path / "pip?", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            list_files(source)
    with pytest.raises(FileNotFoundError, match="none.log"):
        list_files(tmp_path / "none.log")


def test_sidecars_are_never_listed(partition, tmp_path):
    sidecar = partition / (make_segment_name(0) + SIDECAR)
    sidecar.write_bytes(b"{}")
    for source in (partition, str(partition) + "/*", str(tmp_path) + "/*", str(tmp_path) + "/**"):
        assert str(sidecar) not in expand(source)
        assert str(partition / make_segment_name(0)) in expand(source)
    assert wirescan.open(sidecar)[0] == b"{}"  # its own path is accepted


def test_a_partition_directory_is_read_in_order(partition):
    table = kafka.scan(partition)
    assert table["base_offset"].tolist() == [0, 5, 10]
    names = [os.path.basename(view.obj.path) for view in table.buffers]
    assert names == [make_segment_name(n) for n in (0, 5, 10)]
    assert kafka.open_log(partition)["base_offset"].tolist() == [0, 5, 10]
    assert kafka.open_log(str(partition), check=False)["base_offset"].tolist() == [0, 5, 10]


def test_directories_of_moved_partitions_are_skipped(partition):
    assert kafka.scan(partition.parent)["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(str(partition.parent) + "/*/0*")["base_offset"].tolist().count(0) == 1
    assert kafka.scan(str(partition.parent) + "/*")["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(partition.parent / "**" / "0*.log")["base_offset"].tolist() == [0, 5, 10]


def test_globs_skip_other_files_than_segments(partition):
    for other in ("notes.log", "readme.txt"):
        (partition / other).unlink()
    assert kafka.scan(str(partition / "*"))["base_offset"].tolist() == [0, 5, 10]


def test_the_directory_of_a_glob_does_not_exclude_its_files(partition, monkeypatch):
    moved = partition.parent / "topic-0.aa11-delete"
    shutil.copytree(partition, moved / "topic-1")
    for pattern in ("0*.log", "*.log", "/*.log", "**/0*.log"):
        assert 0 in kafka.scan(f"{moved}/{pattern}")["base_offset"].tolist()
    assert kafka.scan(f"{moved}/topic-1/0*.log")["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(f"{moved}/*")["base_offset"].tolist() == [0, 0, 5, 10]
    assert kafka.scan(moved)["base_offset"].tolist() == [0, 0, 5, 10]
    monkeypatch.chdir(moved)
    assert kafka.scan("0*.log")["base_offset"].tolist() == [0]
    assert kafka.scan(f"../{moved.name}/0*.log")["base_offset"].tolist() == [0]
    assert kafka.scan("../*/0*.log")["base_offset"].tolist() == [0, 5, 10]


def test_a_file_named_by_its_path_is_always_read(partition):
    deleted = partition / (make_segment_name(0) + ".deleted")
    deleted.write_bytes(RAW)
    assert len(kafka.scan(deleted)) == 5


def test_open_log_requires_a_directory(partition, tmp_path):
    with pytest.raises(NotADirectoryError, match="not a directory: .*log"):
        kafka.open_log(partition / make_segment_name(0))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(FileNotFoundError, match="no file to read in .*nothing"):
        kafka.open_log(tmp_path / "nothing")


def test_corpus_directory_is_its_segments_in_order():
    paths = expand(ORDERS, files=kafka.FORMATS[0].storage.files)
    first_offsets = sorted(int(path.stem) for path in ORDERS.glob("*.log"))
    assert [int(Path(path).stem) for path in paths] == first_offsets
    table = kafka.scan(ORDERS)
    assert (np.diff(table["base_offset"]) > 0).all()
    assert len(table.buffers) == len(paths)


def test_tree_with_two_partitions(tmp_path):
    for number in (1, 0):
        shutil.copytree(ORDERS, tmp_path / f"orders-{number}")
    table = kafka.scan(tmp_path)
    assert len(table) == 2 * 284
    assert "orders-0" in table.buffers[0].obj.path
    assert "orders-1" in table.buffers[-1].obj.path


# --- maps and ranges


def test_mapped_files_pickle_as_path_and_length(tmp_path):
    path = tmp_path / "grows.log"
    path.write_bytes(RAW)
    data = pickle.dumps(MappedFile(str(path)))
    assert len(data) < 400
    with builtins.open(path, "ab") as file:
        file.write(b"more")
    restored = pickle.loads(data)
    assert len(restored) == len(RAW)
    assert restored[:] == RAW
    assert restored.path == str(path)
    os.truncate(path, 10)
    with pytest.raises(EOFError, match="10 bytes now"):
        pickle.loads(data)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="No such file.*grows.log"):
        pickle.loads(data)
    with pytest.raises(TypeError, match="readonly"):
        MappedFile(str(ORDERS / make_segment_name(0)))[0] = 1


def test_read_range_returns_part_of_a_file(tmp_path):
    path = str(tmp_path / "one.bin")
    Path(path).write_bytes(RAW)
    assert get_size(path) == len(RAW)
    view = read_range(path, 0, len(RAW))
    assert view == RAW
    assert view.readonly
    assert read_range(path, 5, 9) == RAW[5:9]
    assert read_range(path, 9, 9) == b""
    assert read_range(path, len(RAW) - 3, len(RAW) + 100) == RAW[-3:]
    assert read_range(path, len(RAW) + 5, len(RAW) + 10) == b""
    assert read_range(path, 9, 5) == b""
    Path(path).write_bytes(b"")  # the view is a copy, so the file may shrink
    assert view == RAW
    with pytest.raises(FileNotFoundError, match="No such file.*one.bin.none"):
        read_range(path + ".none", 0, 1)
