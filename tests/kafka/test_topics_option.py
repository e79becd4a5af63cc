"""Which topics of a broker's directory are read, in every part of the package."""

import pickle

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import wirescan
from wirescan import kafka
from wirescan.cli.main import main
from wirescan.export.parquet import convert
from wirescan.files import file_pattern
from wirescan.files.source import expand, list_files
from wirescan.kafka.files import FILES
from wirescan.reading.splits import plan_tasks
from wirescan.seglog.log_salvage import salvage

TOPICS = ("orders", "orders-old", "payments", "__consumer_offsets", "__cluster_metadata")


@pytest.fixture(autouse=True)
def forget_messages():
    file_pattern._log_once.cache_clear()


@pytest.fixture
def broker(tmp_path):
    """A broker's directory with a record of each topic, whose offset is the topic's number."""
    directory = tmp_path / "kafka"
    for number, topic in enumerate(TOPICS):
        for partition in (0, 11):
            folder = directory / f"{topic}-{partition}"
            folder.mkdir(parents=True)
            batch = kafka.encode_batch([b"x"], base_offset=number)
            (folder / f"{number:020}.log").write_bytes(batch)
    return directory


def list_topics(paths, options=""):
    table = wirescan.scan(paths, f"kafka.records{options}")
    return sorted({TOPICS[offset] for offset in table["offset"].tolist()})


def test_own_topics_are_left_out_with_a_message(broker, caplog):
    assert list_topics(broker) == ["orders", "orders-old", "payments"]
    assert list_topics(broker) == ["orders", "orders-old", "payments"]
    (record,) = caplog.records  # once for a directory
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"{broker}: left out __cluster_metadata (2 files), __consumer_offsets (2 files); "
        "the option topics reads them, as in topics=*"
    )


@pytest.mark.parametrize(
    "patterns, topics",
    [
        ("*", sorted(TOPICS)),
        ("orders", ["orders"]),
        ("orders*", ["orders", "orders-old"]),
        ("order?,pay*", ["orders", "payments"]),
        ("[op]*", ["orders", "orders-old", "payments"]),
        ("__consumer_offsets", ["__consumer_offsets"]),
    ],
)
def test_topics_are_chosen_by_patterns(broker, caplog, patterns, topics):
    for directory in (broker, broker.parent):
        assert list_topics(directory, f"?topics={patterns}") == topics
    assert caplog.records == []  # the caller chose


def test_verify_and_salvage_leave_no_topic_out(broker, tmp_path, caplog):
    result = CliRunner().invoke(main, ["verify", str(broker), "--json"])
    assert len(result.stdout.splitlines()) >= 2 * len(TOPICS) and result.exit_code == 0
    for topic in TOPICS:
        assert f"{topic}-11/" in result.stdout
    salvage(broker, tmp_path / "salvaged", format="kafka.batches")
    files = [str(path) for path in (tmp_path / "salvaged").rglob("*.log")]
    offsets = wirescan.scan(files, "kafka.records")["offset"]
    assert set(offsets.tolist()) == set(range(len(TOPICS)))
    assert caplog.records == []


def test_digits_of_other_scripts_number_no_partition(tmp_path):
    for name in ("orders-0", "orders-\N{ARABIC-INDIC DIGIT ONE}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(kafka.encode_batch([kafka.Record(0)]))
    assert len(wirescan.scan(tmp_path, "kafka.records?topics=orders")) == 1


def test_a_pattern_is_for_one_name(broker):
    with pytest.raises(FileNotFoundError, match="no file to read"):
        wirescan.scan(broker.parent, "kafka.records?topics=kafka*")


def test_what_is_named_itself_is_read(broker, caplog):
    own = broker / "__consumer_offsets-0"
    assert list_topics(own) == ["__consumer_offsets"]
    assert list_topics(own, "?topics=orders") == ["__consumer_offsets"]
    assert list_topics(own / f"{3:020}.log") == ["__consumer_offsets"]
    assert list_topics(str(broker / "__c*-0")) == ["__cluster_metadata", "__consumer_offsets"]
    assert caplog.records == []


def test_a_directory_of_own_topics_only_is_read(tmp_path, caplog):
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(kafka.encode_batch([b"x"]))
    assert len(wirescan.scan(tmp_path, "kafka.records")) == 1
    assert caplog.records == []


def test_every_way_to_read_a_directory_has_the_option(broker, tmp_path):
    format = "kafka.records?topics=pay*"
    assert {part.path for part in plan_tasks(broker, format).slices} == set(
        map(str, broker.glob("payments-*/*.log"))
    )
    assert len(wirescan.scan(broker, "kafka.batches?topics=pay*")) == 2
    convert(broker, tmp_path / "out", format)
    assert pq.read_table(tmp_path / "out").num_rows == 2
    done = CliRunner().invoke(main, ["scan", str(broker), "--topics", "pay*", "--columns", "topic"])
    assert done.exit_code == 0, done.output
    assert "payments-11" in done.output
    assert "orders" not in done.output


def test_objects_of_a_store_are_left_out_too(broker, caplog):
    url = f"mock://bucket{broker}"
    pytest.importorskip("pyarrow.fs")
    from wirescan.files import object_store

    names = [f"{broker.name}/{path.relative_to(broker)}" for path in broker.rglob("*.log")]

    def list_objects(url, is_asked_for, is_left_out):
        return [(f"{url}/{name}", 1) for name in names if is_asked_for(name.removeprefix("kafka/"))]

    original = object_store.list_objects
    object_store.list_objects = list_objects
    try:
        files = list_files(url, files=FILES)
    finally:
        object_store.list_objects = original
    assert len(files) == 6
    assert "left out __cluster_metadata (2 files)" in caplog.text


@pytest.mark.parametrize("patterns", ["", "orders,", "a/b", "a b"])
def test_invalid_patterns_are_refused(patterns):
    with pytest.raises(ValueError, match="option topics must be names"):
        wirescan.frames.registry.format_of(f"kafka.records?topics={patterns or ','}")


def test_the_pattern_is_sent_to_other_processes(broker):
    sent = pickle.loads(pickle.dumps(FILES))
    assert (sent, sent.left_out, sent.hint) == (FILES, FILES.left_out, FILES.hint)
    assert len(expand(broker, files=sent)) == 6
