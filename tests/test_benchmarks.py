"""The benchmarks: programs that are compared with wirescan, and the picture of growth."""

import sys
from pathlib import Path

import pytest

from wirescan import kafka

pytest.importorskip("bench", reason="the sdist has no benchmarks")

from bench import growth_picture
from bench.__main__ import choose_scale
from bench.peers import compiled
from bench.suites import growth

ROOT = Path(__file__).parents[1]
VALUES = [b"first", None, b"the third", b""]
KEYS = [b"k", b"key", None, b""]
ECHO = "import sys\nfor line in sys.stdin: print(sys.argv[1], 1500000000, flush=True)"
FAIL = "import sys\nsys.exit('no such segment')"


def make_batches(count=300):
    return kafka.encode_batches(VALUES * count, keys=KEYS * count, base_offset=7, batch_bytes=4096)


def sum_batches(data):
    return compiled.sum_records([kafka.records(kafka.scan(data))])


def start_echo(totals, expected):
    """A program that prints the same totals for each pass, and 1.5 seconds."""
    text = " ".join(map(str, totals))
    return compiled.Program("echo", [sys.executable, "-c", ECHO, text], expected)


def test_totals_are_sums_without_nulls():
    totals = sum_batches(make_batches(300))
    assert totals == (1200, 300 * 4, 300 * 14, 7 + 1199)


def test_totals_of_several_tables_and_of_none():
    table = kafka.records(kafka.scan(make_batches(2)))
    assert compiled.sum_records([table, table]) == (16, 16, 56, 14)
    assert compiled.sum_records([]) == (0, 0, 0, -1)


def test_a_program_states_its_seconds():
    expected = compiled.Totals(5, 10, 20, 4)
    program = start_echo(expected, expected)
    try:
        assert program.seconds() == 1.5
    finally:
        program.close()


@pytest.mark.parametrize("field", compiled.Totals._fields)
def test_a_program_that_reads_something_else_is_an_error(field):
    expected = compiled.Totals(5, 10, 20, 4)
    other = expected._replace(**{field: 3})
    with pytest.raises(RuntimeError, match="echo reads .* and wirescan reads"):
        start_echo(other, expected)


def test_a_program_that_ends_is_an_error_with_its_message():
    with pytest.raises(RuntimeError, match="quitter ended: no such segment"):
        compiled.Program("quitter", [sys.executable, "-c", FAIL], compiled.Totals(1, 1, 1, 0))


def test_missing_tools_leave_peers_out_with_a_message(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    built = compiled.build_decoders.__wrapped__()
    assert built.paths == {}
    assert built.missing == [
        "franz-go takes no part: Go is not installed.",
        "kafka-protocol (Rust) takes no part: cargo (Rust) is not installed.",
    ]
    assert compiled.list_versions(built) == []


def test_a_failed_build_leaves_the_peer_out(monkeypatch, tmp_path):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setenv("WIRESCAN_PEERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("gcc", "go"):
        command = tmp_path / name
        command.write_text("#!/bin/sh\nexit 3\n")
        command.chmod(0o755)
    built = compiled.build_consumers.__wrapped__()
    assert built.paths == {}
    assert [text.partition(": ")[0] for text in built.missing] == [
        "librdkafka (C) takes no part",
        "franz-go takes no part",
    ]
    assert all("it cannot be built here" in text for text in built.missing)


def test_versions_are_those_of_the_sources():
    paths = dict.fromkeys([compiled.FRANZ_GO, compiled.KAFKA_PROTOCOL], Path("decode"))
    franz_go, kafka_protocol = compiled.list_versions(compiled.Built(paths))
    assert f"twmb/franz-go v{franz_go.split()[1]}\n" in (compiled.GO_SOURCE / "go.mod").read_text()
    lock = (compiled.RUST_SOURCE / "Cargo.lock").read_text()
    assert f'name = "kafka-protocol"\nversion = "{kafka_protocol.split()[1]}"' in lock


@pytest.mark.parametrize("size", [*growth.VALUES, 1 << 20, 1 << 30, 8 << 30])
def test_sizes_read_back(size):
    assert growth.parse_size(growth.format_size(size)) == size


def test_sizes_grow_to_the_largest():
    assert growth.list_sizes(1 << 20) == [1 << 20]
    assert growth.list_sizes(1 << 30) == [4**n << 20 for n in range(6)]
    assert growth.list_sizes(8 << 30) == [*(4**n << 20 for n in range(7)), 8 << 30]


def test_a_repeated_segment_has_whole_batches_at_each_length(tmp_path):
    data = bytes(make_batches())
    segment = tmp_path / "segment.log"
    segment.write_bytes(data)
    sizes = [len(data) // 2, len(data), 3 * len(data) - 1]
    path = tmp_path / "repeated.log"
    lengths = growth.write_repeated(segment, path, sizes)
    assert path.stat().st_size == 3 * len(data)
    for size, length in zip(sizes, lengths, strict=True):
        assert size - 4200 < length <= size
        table = kafka.scan(path.read_bytes()[:length])
        assert table.consumed == length
        assert not table.bad.any()


def make_results():
    head = f"| ns per byte | {' | '.join(growth.CALLS)} |\n| --- | ---: | ---: | ---: |\n"
    return (
        f"# Results\n\n## Fetch\n\n| 1 MiB | 9 | 9 | 9 |\n\n## {growth.TITLE}\n\ntext\n\n"
        f"### {growth.BY_SIZE}\n\n{head}| 1 MiB | 0.001 | 0.05 | 0.2 |\n"
        f"| 1 GiB | 0.002 | 0.06 | 1,000 |\n\n"
        f"### {growth.BY_VALUE}\n\n{head}| 20 B | 0.001 | 0.05 | 0.2 |\n"
        f"| 16 MiB | 1e-05 | 0.06 | 0.1 |\n\n## Later\n\n| 4 MiB | 9 | 9 | 9 |\n"
    )


def test_charts_are_the_tables_of_the_results():
    by_size, by_value = growth_picture.read_charts(make_results())
    assert by_size.title == growth.BY_SIZE
    assert list(by_size.curves) == growth.CALLS
    assert by_size.curves[growth.RECORDS] == [(1 << 20, 0.2), (1 << 30, 1000)]
    assert by_value.curves[growth.BATCHES] == [(20, 0.001), (16 << 20, 1e-05)]


@pytest.mark.parametrize("title", [growth.TITLE, growth.BY_SIZE, growth.BY_VALUE])
def test_results_without_a_table_have_no_charts(title):
    with pytest.raises(ValueError, match="has no table"):
        growth_picture.read_charts(make_results().replace(f"# {title}\n", "# Other\n"))


def test_the_picture_has_a_line_and_a_name_for_each_curve():
    picture = growth_picture.draw(growth_picture.read_charts(make_results()))
    assert picture.count("<polyline") == 2 * len(growth.CALLS)
    assert picture.count("<circle") == 2 * 2 * len(growth.CALLS)
    for name in growth.CALLS:
        assert picture.count(f">{name}</text>") == 2
    for label in ("1 MiB", "1 GiB", "20 B", "16 MiB"):
        assert f">{label}</text>" in picture
    # The largest time is at the top of the first chart, and the largest size at its right.
    top = growth_picture.MARGIN + growth_picture.TITLE_SPACE
    assert f'cx="{growth_picture.RIGHT:.1f}" cy="{top:.1f}"' in picture


def test_the_picture_shows_the_figures_of_the_results():
    results = growth_picture.RESULTS.read_text()
    if f"\n## {growth.TITLE}\n" not in results:
        pytest.skip("bench/RESULTS.md has no such section yet: run python -m bench growth")
    picture = growth_picture.draw(growth_picture.read_charts(results))
    assert growth_picture.PICTURE.read_text() == picture, "run python -m bench.growth_picture"


def test_only_growth_has_a_huge_scale():
    assert choose_scale(growth, quick=True, huge=True) == growth.QUICK
    assert choose_scale(growth, quick=False, huge=False) == growth.FULL
    assert choose_scale(growth, quick=False, huge=True)["largest"] == 8 << 30
