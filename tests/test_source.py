"""Where bytes come from: every kind of source gives the same buffers, and nothing is copied."""
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
from wirescan import kafka
from wirescan.kafka import encode_batch
from wirescan.source import SIDECAR, MappedFile, expand, found, read_range, size_of, view_of

ORDERS = Path(__file__).parent / "corpus" / "kafka" / "orders-0"
RAW = b"".join(encode_batch([b"%d" % i * 9], base_offset=i) for i in range(5))


def address(data):
    return np.frombuffer(data, np.uint8).ctypes.data


def name(number):
    return f"{number:020}.log"


@pytest.fixture
def partition(tmp_path):
    """Three segments, and all that may lie beside them."""
    folder = tmp_path / "topic-0"
    folder.mkdir()
    for number in (5, 0, 10):
        (folder / name(number)).write_bytes(encode_batch([b"x"], base_offset=number))
    for other in (name(0) + ".deleted", name(1) + ".cleaned", name(2) + ".swap", name(0)[:-4] + ".index",
                  name(0)[:-4] + ".timeindex", name(5)[:-4] + ".txnindex", name(5)[:-4] + ".snapshot",
                  "leader-epoch-checkpoint", "partition.metadata", "notes.log", "readme.txt"):
        (folder / other).write_bytes(b"not a segment")
    for moved in ("topic-0.aa11-delete", "topic-0.bb22-future", "topic-0.cc33-stray"):
        (tmp_path / moved).mkdir()
        (tmp_path / moved / name(0)).write_bytes(encode_batch([b"moved"]))
    return folder


# ---------------------------------------------------------------------------- in memory

def makers():
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
        lambda raw: np.frombuffer(raw + bytes(-len(raw) % 4), [("a", "<u2"), ("b", "u1"), ("c", "i1")]),
    )
    yield "void", lambda raw: np.frombuffer(raw + bytes(-len(raw) % 4), "V4")
    yield "datetimes", lambda raw: np.frombuffer(raw + bytes(-len(raw) % 8), "M8[s]")
    yield "arrow", pa.py_buffer


@pytest.mark.parametrize("make", [pytest.param(make, id=label) for label, make in makers()])
def test_buffers_are_taken_as_they_are(make):
    data = make(RAW)
    view, = wirescan.open(data)
    assert isinstance(view, memoryview) and view.format == "B" and view.ndim == 1
    assert bytes(view).rstrip(b"\0") == RAW.rstrip(b"\0") and bytes(view[:len(RAW)]) == RAW
    assert address(view) == address(data)                     # nothing is copied
    table = kafka.scan(data)
    assert table["base_offset"].tolist() == list(range(5))
    assert address(table.frame(0)) == address(data)


def test_mmap_is_not_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(RAW)
    with builtins.open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view, = wirescan.open(data)
    assert address(view) == address(data) and view == RAW


def test_buffers_that_are_not_contiguous_are_refused():
    for data in (memoryview(RAW)[::2], np.frombuffer(RAW, np.uint8)[::2], np.zeros((4, 4), np.uint8)[:, :2],
                 np.frombuffer(RAW, np.uint8)[::-1]):
        with pytest.raises(TypeError, match="contiguous"):
            view_of(data)


@pytest.mark.parametrize(
    "wrong", [None, 5, 1.5, {"a": b""}, {b""}, object(), pa.array([b"a"]), range(3)],
    ids=lambda value: type(value).__name__
)
def test_other_objects_are_refused(wrong):
    with pytest.raises(TypeError, match="neither a path nor a bytes-like object"):
        wirescan.open(wrong)


def test_arrays_of_objects_are_refused():
    with pytest.raises(TypeError):
        wirescan.open(np.array([b"a", None], object))


def test_empty_buffers():
    for nothing in (
        b"",
        bytearray(),
        memoryview(b""),
        np.empty(0, np.uint8),
        np.empty((0, 4)),
        pa.py_buffer(b""),
    ):
        view, = wirescan.open(nothing)
        assert view.nbytes == 0 and view.format == "B"
    assert wirescan.open([]) == () and len(kafka.scan([])) == 0


def test_lists_nest(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(RAW)
    views = wirescan.open([RAW, (path, [bytearray(RAW)]), str(path)])
    assert [view == RAW for view in views] == [True] * 4
    table = kafka.scan([RAW, str(path)])
    assert table["buffer"].tolist() == [0] * 5 + [1] * 5 and len(table.stops) == 2


def test_a_buffer_outlives_its_name():
    table = kafka.records(kafka.scan(bytearray(RAW)))
    gc.collect()
    assert [bytes(row.value) for row in table] == [b"%d" % i * 9 for i in range(5)]


def test_a_bytearray_cannot_grow_while_a_table_holds_it():
    data = bytearray(RAW)
    table = kafka.scan(data)
    with pytest.raises(BufferError):
        data.extend(b"more")
    assert len(table) == 5


# ---------------------------------------------------------------------------- files

def test_paths_are_mapped(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    for source in (path, str(path)):
        view, = wirescan.open(source)
        assert isinstance(view.obj, MappedFile) and view.obj.path == str(path)
        assert view == RAW and view.readonly
        table = kafka.records(kafka.scan(source))
        assert table.frame(0).obj is table.buffers[0].obj


def test_the_table_keeps_the_map_alive(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    value = kafka.records(kafka.scan(path))[3].value
    gc.collect()
    path.unlink()
    assert value == b"3" * 9                                 # the view alone is enough
    with pytest.raises(BufferError):
        value.obj.close()


def test_no_file_stays_open(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    tables = [kafka.scan(path) for _ in range(50)]
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after - before <= len(tables)                     # one a map, that mmap keeps; none for reading
    del tables
    gc.collect()
    assert not before or len(os.listdir("/proc/self/fd")) <= before


def test_many_mapped_files_do_not_exhaust_descriptors(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    program = ("import resource, sys, wirescan; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
               "print(len(wirescan.open([sys.argv[1]] * 150)))")
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "150"


def test_missing_files(tmp_path):
    for missing in (tmp_path / "none.log", str(tmp_path / "none*.log"), tmp_path / "no" / "folder"):
        with pytest.raises(FileNotFoundError):
            wirescan.open(missing)
    with pytest.raises(FileNotFoundError, match="no file to read in"):
        wirescan.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        wirescan.open([RAW, tmp_path / "none.log"])


def test_empty_file(tmp_path):
    (tmp_path / "empty").touch()
    view, = wirescan.open(tmp_path / "empty")
    assert view == b"" and len(kafka.records(kafka.scan(tmp_path / "empty"))) == 0


def test_names_with_odd_characters(tmp_path):
    for odd in ("a [b] c*.log", "a?.log", "naïve \N{SNOWMAN}.log", "new\nline", "http:"):
        path = tmp_path / odd
        path.write_bytes(RAW)
        view, = wirescan.open(path)
        assert view == RAW
    path = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe.log")
    Path(path).write_bytes(RAW)
    assert wirescan.open(path)[0] == RAW


def test_bytes_paths_are_data():
    assert wirescan.open(b"/etc/hostname")[0] == b"/etc/hostname"


def test_fifo(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[RAW], daemon=True)
    writer.start()
    view, = wirescan.open(path)
    writer.join(10)
    assert view == RAW


def test_standard_input():
    program = "import wirescan; print(len(wirescan.scan('/dev/stdin', 'kafka.records')))"
    done = subprocess.run([sys.executable, "-c", program], input=RAW, capture_output=True, check=True)
    assert done.stdout.strip() == b"5"


def test_file_objects(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    with builtins.open(path, "rb") as file:
        assert wirescan.open(file)[0] == RAW
    with builtins.open(path, "rb", buffering=0) as file:
        file.seek(len(RAW) // 5)
        assert len(kafka.scan(file)) == 4                    # from where it stands
    assert wirescan.open(io.BytesIO(RAW))[0] == RAW
    assert wirescan.open(pa.BufferReader(RAW))[0] == RAW
    for text in (io.StringIO("text"), builtins.open(path, encoding="latin-1")):
        with text, pytest.raises(TypeError, match="text mode"):
            wirescan.open(text)


def test_urls(tmp_path):
    path = tmp_path / "one.bin"
    path.write_bytes(RAW)
    url = path.as_uri()
    assert url.startswith("file:///") and expand(url) == [str(path)]
    assert wirescan.open(url)[0] == RAW and size_of(url) == len(RAW)
    assert read_range(url, 3, 10) == RAW[3:10]
    assert len(kafka.records(kafka.scan(url))) == 5
    (tmp_path / "empty").touch()
    assert wirescan.open((tmp_path / "empty").as_uri())[0] == b""
    with pytest.raises(FileNotFoundError):
        wirescan.open((tmp_path / "none.bin").as_uri())


def test_file_urls_are_the_paths_in_them(partition, tmp_path):
    assert kafka.scan(partition.as_uri())["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(partition.as_uri() + "/0*5.log")["base_offset"].tolist() == [5]
    assert kafka.scan(tmp_path.as_uri() + "/*")["base_offset"].tolist() == [0, 5, 10]
    assert expand(f"FILE://localhost{partition}") == expand(partition)
    for odd in ("a b.log", "a%20b.log", "a[b]?#.log", os.fsdecode(b"\xff\xfe.log")):
        path = tmp_path / odd
        path.write_bytes(RAW)
        assert expand(path.as_uri()) == [str(path)] and wirescan.open(path.as_uri())[0] == RAW
    with pytest.raises(ValueError, match="no file system for file://elsewhere: "):
        expand("file://elsewhere/a.log")
    with pytest.raises(FileNotFoundError):
        wirescan.open((tmp_path / "none").as_uri() + "/*.log")


# ---------------------------------------------------------------------------- globs and directories

def test_globs(tmp_path):
    for where in ("b.log", "a.log", "deep/c.log", "deep/er/d.log", "other.txt"):
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_bytes(where.encode())
    def found(pattern):
        return [bytes(view).decode() for view in wirescan.open(os.path.join(tmp_path, pattern))]
    assert found("*.log") == ["a.log", "b.log"]
    assert found("**/*.log") == ["a.log", "b.log", "deep/c.log", "deep/er/d.log"]
    assert found("[ab].log") == ["a.log", "b.log"] and found("?.log") == ["a.log", "b.log"]
    assert found("*") == ["a.log", "b.log", "deep/c.log", "deep/er/d.log", "other.txt"]
    assert [bytes(view) for view in wirescan.open(tmp_path)] == [
        b"a.log", b"b.log", b"deep/c.log", b"deep/er/d.log", b"other.txt"]
    views = wirescan.open(tmp_path, files=r"\.txt$")
    assert [bytes(view) for view in views] == [b"other.txt"]
    assert len(wirescan.open(os.path.join(tmp_path, "*"), ignore=r"\.txt$|/deep/$")) == 2
    with pytest.raises(FileNotFoundError):
        wirescan.open(tmp_path, files="nothing")
    assert found("deep**") == ["deep/c.log", "deep/er/d.log"] == found("**/deep")      # a directory that is met
    (tmp_path / "again").symlink_to(tmp_path / "deep")
    assert sorted(found("**/*.log")) == ["a.log", "b.log", "deep/c.log", "deep/er/d.log"]          # each once
    (tmp_path / "li\nes").mkdir()
    (tmp_path / "li\nes" / f"{7:020}.log").write_bytes(encode_batch([b"here"]))
    assert len(kafka.scan(tmp_path / "li*")) == len(kafka.scan(tmp_path / "li\nes")) == 1


def test_found_has_sizes(partition, tmp_path):
    for source in (partition, str(partition) + "/0*.log", partition.as_uri(), partition / name(5)):
        listed = found(source, files=r"\d{20}\.log$", ignore="none")
        assert [one.path for one in listed] == expand(source, files=r"\d{20}\.log$", ignore="none")
        assert [one.size for one in listed] == [os.path.getsize(one.path) for one in listed] and listed
    os.mkfifo(tmp_path / "pipe")
    assert expand(tmp_path / "pipe") == expand(str(tmp_path / "pip?")) == [str(tmp_path / "pipe")]
    for source in (tmp_path / "pipe", tmp_path / "pip?", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            found(source)
    with pytest.raises(FileNotFoundError, match="none.log"):
        found(tmp_path / "none.log")


def test_sidecars_are_never_listed(partition, tmp_path):
    sidecar = partition / (name(0) + SIDECAR)
    sidecar.write_bytes(b"{}")
    for source in (partition, str(partition) + "/*", str(tmp_path) + "/*", str(tmp_path) + "/**"):
        assert str(sidecar) not in expand(source) and str(partition / name(0)) in expand(source)
    assert wirescan.open(sidecar)[0] == b"{}"                # but for who names them


def test_partition_directory(partition):
    table = kafka.scan(partition)
    assert table["base_offset"].tolist() == [0, 5, 10]
    assert [os.path.basename(view.obj.path) for view in table.buffers] == [name(n) for n in (0, 5, 10)]
    assert kafka.open_log(partition)["base_offset"].tolist() == [0, 5, 10]
    assert kafka.open_log(str(partition), check=False)["base_offset"].tolist() == [0, 5, 10]


def test_directories_on_the_move_are_left_out(partition):
    assert kafka.scan(partition.parent)["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(str(partition.parent) + "/*/0*")["base_offset"].tolist().count(0) == 1
    assert kafka.scan(str(partition.parent) + "/*")["base_offset"].tolist() == [0, 5, 10]
    assert kafka.scan(partition.parent / "**" / "0*.log")["base_offset"].tolist() == [0, 5, 10]


def test_globs_leave_out_what_is_not_a_segment(partition):
    for other in ("notes.log", "readme.txt"):
        (partition / other).unlink()
    assert kafka.scan(str(partition / "*"))["base_offset"].tolist() == [0, 5, 10]


def test_what_is_left_out_is_not_decided_by_a_directory_that_was_named(partition, monkeypatch):
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
    deleted = partition / (name(0) + ".deleted")
    deleted.write_bytes(RAW)
    assert len(kafka.scan(deleted)) == 5


def test_open_log_wants_a_directory(partition, tmp_path):
    with pytest.raises(NotADirectoryError):
        kafka.open_log(partition / name(0))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(FileNotFoundError):
        kafka.open_log(tmp_path / "nothing")


def test_corpus_directory_is_its_segments_in_order():
    paths = expand(ORDERS, files=kafka.FORMATS[0].files)
    assert [int(Path(path).stem) for path in paths] == sorted(int(p.stem) for p in ORDERS.glob("*.log"))
    table = kafka.scan(ORDERS)
    assert (np.diff(table["base_offset"]) > 0).all() and len(table.buffers) == len(paths)


def test_tree_with_two_partitions(tmp_path):
    for number in (1, 0):
        shutil.copytree(ORDERS, tmp_path / f"orders-{number}")
    table = kafka.scan(tmp_path)
    assert (
        len(table) == 2 * 284
        and "orders-0" in table.buffers[0].obj.path
        and "orders-1" in table.buffers[-1].obj.path
    )


# ---------------------------------------------------------------------------- maps and ranges

def test_mapped_files_pickle_as_path_and_length(tmp_path):
    path = tmp_path / "grows.log"
    path.write_bytes(RAW)
    data = pickle.dumps(MappedFile(str(path)))
    assert len(data) < 400
    with builtins.open(path, "ab") as file:
        file.write(b"more")
    back = pickle.loads(data)
    assert len(back) == len(RAW) and back[:] == RAW and back.path == str(path)
    os.truncate(path, 10)
    with pytest.raises(EOFError, match="10 bytes now"):
        pickle.loads(data)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)
    with pytest.raises(TypeError):
        MappedFile(str(ORDERS / name(0)))[0] = 1


def test_read_range(tmp_path):
    path = str(tmp_path / "one.bin")
    Path(path).write_bytes(RAW)
    assert size_of(path) == len(RAW)
    view = read_range(path, 0, len(RAW))
    assert view == RAW and view.readonly
    assert read_range(path, 5, 9) == RAW[5:9] and read_range(path, 9, 9) == b""
    assert read_range(path, len(RAW) - 3, len(RAW) + 100) == RAW[-3:]
    assert read_range(path, len(RAW) + 5, len(RAW) + 10) == b"" and read_range(path, 9, 5) == b""
    Path(path).write_bytes(b"")                              # a copy: the file may shrink
    assert view == RAW
    with pytest.raises(FileNotFoundError):
        read_range(path + ".none", 0, 1)
