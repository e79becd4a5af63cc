"""Parquet files, and the directory in which they become visible together."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.slowness import SLOWNESS
from wirescan.export import parquet_writer as sink
from wirescan.export.parquet_writer import (
    FAULTS,
    Output,
    Sink,
    WrittenFile,
    find_foreign_file,
    find_small,
    merge,
    replace_merged,
)

ONE = pa.schema([("a", pa.int64())])


def make_rows(*values):
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=ONE)


def list_names(out):
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def put(output, name, *values, directory=""):
    path = f"{output.make_part_path(name)}.parquet"
    pq.write_table(pa.Table.from_batches([make_rows(*values)]), path)
    return WrittenFile(directory, path, len(values), os.path.getsize(path))


def test_output_is_put_in_place_at_once(tmp_path):
    out, beside = tmp_path / "deep" / "out", tmp_path / "deep" / "out.faults"
    with Output(out) as output:
        parts = [put(output, 0, 0), put(output, 1, 1, directory="k=1"), put(output, 2, 2)]
        put(output, "7-tried", 3)  # of a try that did not count
        fault_part = put(output, 8, 4, directory=FAULTS)
        assert list_names(out) == [
            f"{output._partial.name}/{Path(name).name}"
            for name in sorted(os.listdir(output._partial))
        ]
        assert output.commit([*parts, fault_part], ONE) == sum(part.written for part in parts)
    assert list_names(out) == [
        "_SUCCESS",
        "k=1/part-00000.parquet",
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert list_names(beside) == ["part-00000.parquet"] and pq.read_table(beside)[
        "a"
    ].to_pylist() == [4]
    assert [pq.read_table(out / f"part-0000{n}.parquet")["a"].to_pylist() for n in range(2)] == [
        [0],
        [2],
    ]
    with Output(out, overwrite=True) as output:
        assert output.commit([], ONE) == os.path.getsize(out / "part-00000.parquet")
    assert (
        list_names(out) == ["_SUCCESS", "part-00000.parquet"] and pq.read_table(out).num_rows == 0
    )
    assert not beside.exists()  # it told of files that are gone
    with Output(out, overwrite=True) as output:  # no file without rows where others have some
        output.commit([put(output, 0, 1, directory="k=1")], ONE)
    assert list_names(out) == ["_SUCCESS", "k=1/part-00000.parquet"]
    assert pq.read_table(out, partitioning="hive").to_pydict() == {"a": [1], "k": [1]}
    with (
        pytest.raises(ZeroDivisionError, match="division by zero"),
        Output(tmp_path / "other") as output,
    ):
        put(output, 0, 1)
        1 / 0
    assert not (tmp_path / "other").exists()


def test_faults_of_another_output_are_not_overwritten(tmp_path):
    beside = tmp_path / "out.faults"
    beside.mkdir()
    (beside / "part-00000.parquet").touch()
    with pytest.raises(FileExistsError, match=r"out\.faults has files in it"):
        Output(tmp_path / "out")
    (beside / "letters.txt").touch()
    with pytest.raises(FileExistsError, match=r"out\.faults holds letters\.txt"):
        Output(tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_success_is_told_when_all_files_are_in_place(tmp_path, monkeypatch, overwrite):
    out, moved, replace = tmp_path / "out", [], os.replace
    if overwrite:
        with Output(out) as output:
            output.commit([put(output, 0, 0)])

    def move(old, new):
        moved.append((Path(new).name, (out / "_SUCCESS").exists()))
        replace(old, new)

    monkeypatch.setattr(os, "replace", move)
    with Output(out, overwrite=overwrite) as output:
        output.commit([put(output, 0, 1), put(output, 1, 2)])
    assert moved == [("part-00000.parquet", False), ("part-00001.parquet", False)]
    assert list_names(out) == ["_SUCCESS", "part-00000.parquet", "part-00001.parquet"]


def test_who_is_late_leaves_nothing(tmp_path):
    """A task that Spark gave up may still run: it has no directory to create a file in."""
    with Output(tmp_path / "out") as output:
        late = put(output, 0, 1)
        output.commit([late], ONE)
        begun = open(f"{output.make_part_path(1)}.parquet", "wb")  # noqa: SIM115 - the task outlives `with`
    begun.write(b"PAR1")
    begun.close()
    task = Sink(lambda number: f"{output.make_part_path(2)}.parquet")
    with pytest.raises(FileNotFoundError, match="00002.parquet"), task:
        task.add("", make_rows(1))
    assert (
        list_names(tmp_path / "out") == ["_SUCCESS", "part-00000.parquet"]
        and len(os.listdir(tmp_path / "out")) == 2
    )


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_outputs_at_once_do_not_mix(tmp_path, overwrite):
    (tmp_path / "out").mkdir()
    if overwrite:
        (tmp_path / "out" / "part-00000.parquet").touch()
    first, other = (
        Output(tmp_path / "out", overwrite=overwrite),
        Output(tmp_path / "out", overwrite=overwrite),
    )
    with pytest.raises(FileExistsError, match="another conversion"), first, other:
        first.commit([put(first, number, number) for number in range(3)])
        other.commit([put(other, 0, 7)])
    assert list_names(tmp_path / "out") == [
        "_SUCCESS",
        *(f"part-{number:05}.parquet" for number in range(3)),
    ]
    assert pq.read_table(tmp_path / "out")["a"].to_pylist() == [0, 1, 2]


def test_who_fails_leaves_what_another_made(tmp_path):
    first, other = Output(tmp_path / "out"), Output(tmp_path / "out")
    with pytest.raises(ZeroDivisionError, match="division by zero"), other:
        with first:
            first.commit([put(first, 0, 1)])
        1 / 0
    assert list_names(tmp_path / "out") == ["_SUCCESS", "part-00000.parquet"]


def test_other_files_are_not_removed(tmp_path):
    for name in (
        "part-1.parquet",
        "_SUCCESS",
        "k=1/l=__HIVE_DEFAULT_PARTITION__/part-0.parquet",
        "_faults/part-0.parquet",
        "_temporary-0/anything",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_foreign_file(tmp_path) is None
    for name in (
        "k=1/letters.txt",
        "k=2",
        "_faults/mine",
        "_other/part-0.parquet",
        "k=1/x/part-0.parquet",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        foreign = find_foreign_file(tmp_path)
        assert foreign is not None and path.is_relative_to(foreign)
        with pytest.raises(FileExistsError, match="no output of a conversion"):
            Output(tmp_path, overwrite=True)
        path.unlink()
        if path.parent.name in ("_other", "x"):
            path.parent.rmdir()


def test_files_of_a_task(tmp_path, monkeypatch):
    """Each directory has its own files; a full one is followed by another; few are open."""
    monkeypatch.setattr(sink, "GROUP_BYTES", 80)
    monkeypatch.setattr(sink, "OPEN", 2)
    with Sink(lambda number: str(tmp_path / f"{number}.parquet"), "none", 1500) as task:
        for turn in range(40):
            for directory in ("a", "b", "c"):
                task.add(directory, make_rows(*range(turn * 10, turn * 10 + 10)))
                assert len(task._open) <= 2
        task.add("d", make_rows())
    assert {part.directory for part in task.parts} == {"a", "b", "c"} and len(task.parts) > 12
    for part in task.parts:
        assert part.records == pq.read_metadata(
            part.path
        ).num_rows and part.written == os.path.getsize(part.path)
    for directory in ("a", "b", "c"):
        values = [
            pq.read_table(part.path)["a"].to_pylist()
            for part in task.parts
            if part.directory == directory
        ]
        assert sum(values, []) == list(range(400))


def test_a_full_file_is_followed_by_another(tmp_path, monkeypatch):
    monkeypatch.setattr(sink, "GROUP_BYTES", 800)
    with Sink(lambda number: str(tmp_path / f"{number}.parquet"), "none", 5000) as task:
        for turn in range(80):
            task.add(
                "", make_rows(*(value * value for value in range(turn * 100, turn * 100 + 100)))
            )
    assert len(task.parts) > 2 and [part.directory for part in task.parts] == [""] * len(task.parts)
    assert all(part.written >= 5000 for part in task.parts[:-1])
    values = [pq.read_table(part.path)["a"].to_pylist() for part in task.parts]
    assert sum(values, []) == [value * value for value in range(8000)]


def test_small_files_are_merged_with_their_neighbours(tmp_path):
    def part(number, size, directory=""):
        return WrittenFile(directory, str(number), 1, size)

    parts = [
        part(0, 5),
        part(1, 5, "k=1"),
        part(2, 6),
        part(3, 100),
        part(4, 6),
        part(5, 5),
        part(6, 5, "k=1"),
        *(part(number, 6) for number in range(7, 50)),
    ]
    runs = find_small(parts, 100)
    assert [[int(part.path) for part in run] for run in runs] == [
        [0, 2],
        [4, 5, *range(7, 21)],
        [*range(21, 37)],
        [*range(37, 50)],
        [1, 6],
    ]
    assert find_small(parts, 80) == [] == find_small([part(0, 1), part(1, 50), part(2, 1)], 100)
    into = [
        WrittenFile(run[0].directory, f"m{number}", len(run), 1) for number, run in enumerate(runs)
    ]
    assert [(part.path, part.directory) for part in replace_merged(parts, runs, into)] == [
        ("m0", ""),
        ("m4", "k=1"),
        ("3", ""),
        ("m1", ""),
        ("m2", ""),
        ("m3", ""),
    ]


def test_many_directories_take_no_time_for_each_other(tmp_path):
    begun = time.perf_counter()
    parts = [
        WrittenFile(f"k={number}", str(tmp_path / str(number)), 1, 5) for number in range(30_000)
    ]
    assert find_small(parts, 100) == []
    assert time.perf_counter() - begun < 5 * SLOWNESS  # comparing all with all took a minute


def test_what_is_merged_is_all_there(tmp_path, monkeypatch):
    parts = []
    for number in range(5):
        with Sink(lambda _, number=number: str(tmp_path / f"{number}.parquet")) as task:
            task.add("k=1", make_rows(number, number))
        parts += task.parts
    monkeypatch.setattr(sink, "GROUP_BYTES", 64)
    done = merge(parts, str(tmp_path / "all.parquet"))
    assert done == WrittenFile(
        "k=1", str(tmp_path / "all.parquet"), 10, os.path.getsize(tmp_path / "all.parquet")
    )
    assert pq.read_table(done.path)["a"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert pq.read_metadata(done.path).num_row_groups == 2
    assert pq.read_schema(done.path).remove_metadata() == ONE
