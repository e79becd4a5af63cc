"""Segments in the layout of Aiven's plugin for tiered storage: chunks, compressed and encrypted."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import wirescan
from tests.peers.canonical import digest
from tests.reference.aiven_writer import Encryptor, encode_sizes, store_segment
from tests.support.canonical_records import list_canonical_records
from tests.support.command import parse_lines, run
from tests.support.paths import AIVEN_STORAGE, ORDERS
from tests.support.slow_store import SlowStore
from wirescan import FrameError, kafka
from wirescan.files import source
from wirescan.files.object_ranges import OBJECTS
from wirescan.files.source import list_files
from wirescan.frames.registry import format_of
from wirescan.kafka import PartitionLog
from wirescan.kafka.files import find_boundaries, read_partition, read_topic
from wirescan.kafka.log import aiven_segments
from wirescan.kafka.log.aiven_segments import KEYS
from wirescan.reading.filters import check_filters, prune_file

cryptography = pytest.importorskip("cryptography")

TOPIC_ID = "XprrI0G0RYqfRBYQZua88g"
SEGMENT_ID = "6jg2M_7MSpGITTDwS-pu9A"
CHUNK = 20_000
FORMS = [(False, False), (True, False), (False, True), (True, True)]
KEY_ID = "key1"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The paths of two private keys. The public key of the first one encrypts."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    directory = tmp_path_factory.mktemp("keys")
    made = [rsa.generate_private_key(65537, 2048) for _ in range(2)]
    for number, key in enumerate(made):
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (directory / f"{number}.pem").write_bytes(pem)
    return directory / "0.pem", directory / "1.pem", made[0].public_key()


@pytest.fixture(autouse=True)
def environment(keys, monkeypatch):
    monkeypatch.setenv(KEYS, f"other=/nowhere,{KEY_ID}={keys[0]}")


def store(target: Path, public_key, *, compression=False, encryption=False) -> Path:
    """Store the partition `ORDERS` as the plugin does. Returns the directory of the partition."""
    directory = target / "tiered" / f"orders-{TOPIC_ID}" / "0"
    bases = [int(path.stem) for path in sorted(ORDERS.glob("*.log"))]
    for base, following in zip(bases, [*bases[1:], 27708]):
        plain = ORDERS / f"{base:020}"
        indexes = {
            name: Path(f"{plain}.{ending}").read_bytes()
            for name, ending in (
                ("offset", "index"),
                ("timestamp", "timeindex"),
                ("transaction", "txnindex"),
            )
            if Path(f"{plain}.{ending}").exists()
        }
        indexes["producerSnapshot"] = (ORDERS / f"{following:020}.snapshot").read_bytes()
        indexes["leaderEpoch"] = (ORDERS / "leader-epoch-checkpoint").read_bytes()
        store_segment(
            directory / f"{base:020}-{SEGMENT_ID}",
            Path(f"{plain}.log").read_bytes(),
            indexes,
            chunk_size=CHUNK,
            compression=compression,
            encryptor=Encryptor(KEY_ID, public_key) if encryption else None,
            metadata={"startOffset": base, "endOffset": following - 1, "maxTimestampMs": 1 << 50},
        )
    return directory


@pytest.fixture(params=FORMS, ids=["plain", "compressed", "encrypted", "both"])
def stored(request, tmp_path, keys):
    compression, encryption = request.param
    return store(tmp_path, keys[2], compression=compression, encryption=encryption)


@pytest.fixture
def encrypted(tmp_path, keys):
    return store(tmp_path, keys[2], compression=True, encryption=True)


def find_segment(directory: Path, base: int, ending: str = "log") -> Path:
    return directory / f"{base:020}-{SEGMENT_ID}.{ending}"


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("name", ["plain", "compressed", "encrypted", "compressed-encrypted"])
def test_records_are_those_of_a_consumer(name, isolation, monkeypatch):
    """A consumer read them through the broker whose plugin wrote the corpus."""
    monkeypatch.setenv(KEYS, f"{KEY_ID}={AIVEN_STORAGE / 'private.pem'}")
    expected = json.loads((AIVEN_STORAGE / "expected.json").read_text())[name][isolation]
    (directory,) = (AIVEN_STORAGE / name / "tiered").glob("orders-*/0")
    batches = kafka.open_log(directory, isolation=isolation)
    records = kafka.records(batches)
    records = records.where(batches["is_control"][records["parent"]] == 0)
    assert len(records) == expected["records"]
    assert digest(list_canonical_records(records)) == expected["sha256"]


def list_rows(records):
    names = ("offset", "timestamp", "key", "value")
    return list(zip(*(np.asarray(records[name]).tolist() for name in names)))


def change_manifest(path: Path, change) -> None:
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_records_are_those_of_the_partition(stored):
    expected = list_rows(wirescan.scan(ORDERS, "kafka.records"))
    assert len(expected) > 27_000
    assert list_rows(wirescan.scan(stored, "kafka.records")) == expected
    assert list_rows(kafka.records(kafka.open_log(stored))) == expected
    assert list_rows(wirescan.scan(stored.parents[1], "kafka.records")) == expected


def test_files_are_those_of_the_partition(stored):
    for base in (0, 20_800):
        log = ORDERS / f"{base:020}.log"
        path = find_segment(stored, base)
        assert bytes(source.read_range(str(path), 0, 1 << 30)) == log.read_bytes()
        for start, stop in ((0, 10), (CHUNK - 1, CHUNK + 1), (CHUNK, CHUNK), (50_000, 90_001)):
            assert bytes(source.read_range(str(path), start, stop)) == log.read_bytes()[start:stop]
        for ending in ("index", "timeindex"):
            plain = log.with_suffix(f".{ending}").read_bytes()
            index = str(path.with_suffix(f".{ending}"))
            assert source.get_size(index) == len(plain)
            assert bytes(source.read_range(index, 0, len(plain))) == plain


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(("start", "stop"), [(None, None), (1400, 1500), (20_000, 26_000)])
def test_ranges_are_those_of_the_partition(encrypted, start, stop, isolation):
    ours, theirs = (
        kafka.records(kafka.open_log(directory, start=start, stop=stop, isolation=isolation))
        for directory in (encrypted, ORDERS)
    )
    assert list_rows(ours) == list_rows(theirs)


def test_times_and_side_files_are_those_of_the_partition(encrypted):
    log, original = PartitionLog(encrypted), PartitionLog(ORDERS)
    assert (log.topic, log.partition) == ("orders", 0)
    times = kafka.records(original.read())["timestamp"][::5000].tolist()
    assert [log.find_offset(time) for time in times] == [
        original.find_offset(time) for time in times
    ]
    for ours, theirs in zip(log.segments, original.segments, strict=True):
        assert (ours.read_offset_index() == theirs.read_offset_index()).all()
        assert (ours.read_transaction_index() == theirs.read_transaction_index()).all()
    assert (log.read_leader_epochs() == original.read_leader_epochs()).all()


def test_the_manifest_excludes_a_segment(encrypted):
    path = str(find_segment(encrypted, 20_800))
    manifest = aiven_segments.read_manifest(path)
    excludes = partial(aiven_segments.excludes_segment, path)
    assert excludes({"offset": (manifest.last_offset + 1, None)})
    assert excludes({"offset": (None, manifest.first_offset - 1)})
    assert excludes({"timestamp": (manifest.max_timestamp + 1, None)})
    wanted = {"offset": (manifest.last_offset, None), "timestamp": (manifest.max_timestamp, None)}
    assert not excludes(wanted)
    assert not excludes({"offset": (None, manifest.first_offset)})
    assert not excludes({})


def test_only_the_chunks_of_a_range_are_read(encrypted):
    """All other chunks are destroyed, so that reading one of them fails."""
    records = kafka.records(kafka.open_log(encrypted, start=22_000, stop=22_100))
    expected = list_rows(records)
    filters = check_filters(
        [("offset", ">=", 22_000), ("offset", "<", 22_100)], format_of("kafka.records")
    )
    path = find_segment(encrypted, 20_800)
    start, stop = prune_file(str(path), format_of("kafka.records"), filters)
    assert 0 < start < stop < source.get_size(str(path))
    manifest = aiven_segments.read_manifest(str(path))
    data = bytearray(path.read_bytes())
    # The look-up reads the first batch of the segment, and frames near the range.
    near = {0, *range(start // CHUNK - 1, stop // CHUNK + 2)}
    destroyed = set(range(manifest.chunk_count)) - near
    assert len(destroyed) > 3
    for chunk in destroyed:
        begin, end = manifest.find_stored(chunk), manifest.find_stored(chunk + 1)
        data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    for other in encrypted.glob("*.log"):
        if other != path:
            other.write_bytes(b"x" * other.stat().st_size)
    again = kafka.records(kafka.open_log(encrypted, start=22_000, stop=22_100))
    assert list_rows(again) == expected
    where = ["--where", "offset >= 22000 and offset < 22100"]
    columns = ["--columns", "topic,partition,offset", "--json"]
    result = run("scan", encrypted, "--format", "kafka.records", *where, *columns)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["offset"] for row in rows] == list(range(22_000, 22_100))
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 0)}


def test_a_segment_is_cut_at_batches(stored):
    path = find_segment(stored, 20_800)
    assert find_boundaries(str(path), 50_000) == find_boundaries(
        str(ORDERS / f"{20_800:020}.log"), 50_000
    )


def test_topic_and_partition_are_those_of_the_directories():
    name = f"{0:020}-{SEGMENT_ID}.log"
    for path, expected in (
        (f"/s/tiered/a-1-{TOPIC_ID}/12/{name}", ("a-1", 12)),
        (f"/s/tiered/a-1-{TOPIC_ID}/x/{name}", (None, None)),
        (f"/s/tiered/a-1/12/{name}", (None, None)),
    ):
        assert (read_topic(path), read_partition(path)) == expected


def test_a_segment_without_a_manifest_is_not_read(encrypted):
    """The plugin writes the manifest last, so an upload that failed has none."""
    find_segment(encrypted, 4160, "rsm-manifest").unlink()
    offsets = wirescan.scan(encrypted, "kafka.records")["offset"]
    assert 4159 in offsets and 4160 not in offsets
    with pytest.raises(FileNotFoundError):
        wirescan.scan(find_segment(encrypted, 4160), "kafka.records")


def test_the_key_must_be_given(encrypted, keys, monkeypatch):
    monkeypatch.setenv(KEYS, "")
    with pytest.raises(PermissionError, match=f"set {KEYS} to key1=FILE"):
        wirescan.scan(encrypted, "kafka.records")
    monkeypatch.setenv(KEYS, f"{KEY_ID}={keys[1]}")
    with pytest.raises(PermissionError, match=r"1\.pem does not decrypt the data key"):
        wirescan.scan(encrypted, "kafka.records")
    monkeypatch.setenv(KEYS, f"{KEY_ID}={find_segment(encrypted, 0)}")
    with pytest.raises(PermissionError, match="not the PEM file of an RSA key"):
        wirescan.scan(encrypted, "kafka.records")


def set_index(**values):
    return lambda manifest: manifest["chunkIndex"].update(values)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda manifest: manifest.update(version="2"), "only 1 is known"),
        (lambda manifest: manifest.pop("chunkIndex"), "chunkIndex is missing"),
        (set_index(type="other"), "neither fixed nor variable"),
        (set_index(originalChunkSize=0), "originalChunkSize is 0"),
        (set_index(originalChunkSize=1 << 31), "originalChunkSize is not from"),
        (set_index(originalFileSize=-1), "originalFileSize is not from"),
        (set_index(originalFileSize=2.5), "originalFileSize is missing or"),
        (set_index(originalFileSize=1 << 30), r"chunks of 20000 bytes are not"),
        (set_index(transformedChunks="*"), "is not base64"),
        (set_index(transformedChunks="AAAA"), "cannot be decompressed"),
        (set_index(transformedChunks=encode_sizes([1])), "1 chunks of"),
        (lambda manifest: manifest.update(compression="no"), "compression is missing or"),
        (lambda manifest: manifest["encryption"].update(dataKey="x"), "no key id"),
        (lambda manifest: manifest["segmentIndexes"].update(offset=None), "offset is missing"),
    ],
)
def test_a_wrong_manifest_is_an_error(encrypted, change, problem):
    path = find_segment(encrypted, 0, "rsm-manifest")
    change_manifest(path, change)
    with pytest.raises(FrameError, match=problem) as raised:
        wirescan.scan(encrypted, "kafka.records")
    assert raised.value.source == str(path)


def test_bytes_that_are_no_manifest_are_an_error(encrypted):
    path = find_segment(encrypted, 0, "rsm-manifest")
    for data in (b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null"):
        path.write_bytes(data)
        with pytest.raises(FrameError, match="the manifest of a segment"):
            wirescan.scan(encrypted, "kafka.records")
    path.write_bytes(b" " * (aiven_segments.MANIFEST_BYTES + 1))
    with pytest.raises(FrameError, match="a manifest has more than"):
        wirescan.scan(encrypted, "kafka.records")


def test_wrong_chunks_are_errors(encrypted):
    path = find_segment(encrypted, 0)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(FrameError, match=r"chunks up to byte \d+ are stored") as raised:
        wirescan.scan(path, "kafka.records")
    assert raised.value.offset == len(data) - 1
    for position in (0, 12, len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(FrameError, match=r"tag of an encrypted chunk is wrong.*BAD_CHECKSUM"):
            wirescan.scan(path, "kafka.records")


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK + 1])
def test_a_chunk_of_another_size_is_an_error(tmp_path, keys, size):
    """The chunks have CHUNK bytes, and the manifest states one byte less or more."""
    directory = store(tmp_path, keys[2], compression=True)
    path = find_segment(directory, 0)
    total = source.get_size(str(path))
    count = -(-total // CHUNK)
    path = find_segment(directory, 0, "rsm-manifest")
    change = set_index(originalChunkSize=size, originalFileSize=size * (count - 1) + 5)
    change_manifest(path, change)
    with pytest.raises(FrameError, match=r"chunk 0 (of|decompresses)"):
        wirescan.scan(directory, "kafka.records")


def test_chunks_of_a_fixed_size_must_hold_the_segment(tmp_path, keys):
    directory = store(tmp_path, keys[2])
    path = find_segment(directory, 0, "rsm-manifest")
    change_manifest(path, set_index(originalFileSize=(1 << 31) - 1, originalChunkSize=1))
    with pytest.raises(FrameError, match=r"do not hold 2147483647 bytes"):
        wirescan.scan(directory, "kafka.records")


def test_manifests_in_a_store_are_read_several_at_a_time(encrypted):
    objects = {
        f"orders-{TOPIC_ID}/0/{path.name}": path.read_bytes() for path in encrypted.iterdir()
    }
    with SlowStore(b"", 0.05, objects) as slow:
        files = list_files(slow.make_url(f"orders-{TOPIC_ID}/0"), files=r"\.log$")
        assert [file.size for file in files] == [
            path.stat().st_size for path in sorted(ORDERS.glob("*.log"))
        ]
        assert 1 < slow.most_at_once <= OBJECTS
        assert len(slow.ranges) == len(files)


@pytest.mark.peers
def test_an_object_store_gives_only_the_chunks_of_a_range(encrypted):
    from tests.support.object_store import ObjectStore

    expected = list_rows(kafka.records(kafka.open_log(ORDERS, start=22_000, stop=22_100)))
    root = encrypted.parents[1]
    where = "offset >= 22000 and offset < 22100"
    with ObjectStore() as store:
        for path in encrypted.iterdir():
            store.put(str(path.relative_to(root)), path.read_bytes())
        url = store.url(f"orders-{TOPIC_ID}/0")
        store.requests.clear()
        result = run("scan", url, "--format", "kafka.records", "--where", where, "--json")
        requests = list(store.requests)
        assert result.exit_code == 0, result.output
        offsets = [json.loads(line)["offset"] for line in result.output.splitlines()]
        assert offsets == [row[0] for row in expected]
        assert list_rows(wirescan.scan(url, "kafka.records")) == list_rows(
            wirescan.scan(ORDERS, "kafka.records")
        )
    logs = [request for request in requests if ".log" in request and request.startswith("GET")]
    assert logs
    assert all(f"{20_800:020}" in request for request in logs), logs


@pytest.mark.peers
def test_a_log_in_an_object_store_is_that_of_the_partition(encrypted):
    from tests.support.object_store import ObjectStore

    original = PartitionLog(ORDERS)
    with ObjectStore() as store:
        store.put_directory(encrypted, f"orders-{TOPIC_ID}/0")
        store.put_directory(ORDERS, "plain/orders-0")
        for name in ("00000000000000000000.log", "00000000000000000007.snapshot"):
            store.put(f"plain/orders-0/other/{name}", b"of another directory")
        for path in (f"orders-{TOPIC_ID}/0/", "plain/orders-0"):
            url = store.url(path)
            log = PartitionLog(url)
            assert (log.topic, log.partition, log.high_watermark) == ("orders", 0, None)
            assert [segment.base_offset for segment in log.segments] == [
                segment.base_offset for segment in original.segments
            ]
            assert np.array_equal(log.read_leader_epochs(), original.read_leader_epochs())
            times = kafka.records(original.read())["timestamp"][::9000].tolist()
            assert [log.find_offset(time) for time in times] == [
                original.find_offset(time) for time in times
            ]
            for arguments in (
                {"start": 22_000, "stop": 22_100},
                {"start_time": times[1], "stop": 12_000},
                {"isolation": "read_committed"},
            ):
                ours, theirs = (
                    kafka.records(kafka.open_log(directory, **arguments))
                    for directory in (url, ORDERS)
                )
                assert list_rows(ours) == list_rows(theirs)
        batches = kafka.open_log(store.url(f"orders-{TOPIC_ID}"))
        assert list_rows(kafka.records(batches)) == list_rows(kafka.records(original.read()))
        store.requests.clear()
        kafka.open_log(store.url(f"orders-{TOPIC_ID}/0"), start=22_000, stop=22_100)
        fetched = [name for name in store.requests if ".log" in name and name.startswith("GET")]
        assert fetched and all(f"{20_800:020}" in name for name in fetched)
        names = log.list_snapshots()
        assert set(names) == set(original.list_snapshots())
        assert all(source.exists(path) for path in names.values())
        with pytest.raises(FileNotFoundError):
            kafka.open_log(store.url("nowhere"), start=1)


def change_byte(path: Path, at: int) -> bytes:
    """Change a byte of a file, and return the old content."""
    old = path.read_bytes()
    data = bytearray(old)
    data[at] ^= 1
    path.write_bytes(data)
    return old


def test_verify_checks_the_indexes_of_segments(stored):
    result = run("verify", stored)
    assert result.exit_code == 0, result.output
    assert "9 files, 284 frames, 27,708 records" in result.output
    manifest = find_segment(stored, 20_800, "rsm-manifest")
    # The manifest gives the .index another place: that of the .timeindex.
    with_other_index = json.loads(manifest.read_text())
    indexes = with_other_index["segmentIndexes"]
    indexes["offset"] = indexes["timestamp"]
    old = manifest.read_text()
    manifest.write_text(json.dumps(with_other_index))
    result = run("verify", stored)
    assert result.exit_code == 1
    index = find_segment(stored, 20_800, "index")
    assert f"{index.name}: " in result.output
    assert "9 files, 284 frames, 27,708 records" in result.output
    manifest.write_text(old)
    assert run("verify", stored).exit_code == 0


def test_verify_reports_damaged_indexes_and_snapshots(encrypted):
    manifest = aiven_segments.read_manifest(str(find_segment(encrypted, 20_800)))
    indexes = find_segment(encrypted, 20_800, "indexes")
    for kind in "index", "timeindex", "snapshot":
        position, size = manifest.indexes[kind]
        old = change_byte(indexes, position + size // 2)
        result = run("verify", encrypted)
        left = len(old) - position
        assert f"{indexes.name}: byte {position}, {left:,} bytes: BAD_CHECKSUM" in result.output
        assert "27,708 records" in result.output and "1 finding of damage" in result.output
        assert result.exit_code == 1
        indexes.write_bytes(old)
    assert run("verify", encrypted, "--log-only").exit_code == 0


def test_verify_reports_missing_objects(encrypted):
    indexes = find_segment(encrypted, 20_800, "indexes")
    old = indexes.read_bytes()
    indexes.unlink()
    result = run("verify", encrypted)
    assert f"{indexes.name}: MISSING_FILE" in result.output
    assert "1 finding of damage" in result.output and "27,708 records" in result.output
    indexes.write_bytes(old)
    find_segment(encrypted, 20_800).unlink()
    output = run("verify", encrypted).output
    name = find_segment(encrypted, 20_800, "rsm-manifest").name
    assert "MISSING_SEGMENT" in output and f"{name} exists; lost 4,000 records" in output


def test_verify_continues_after_a_chunk_that_cannot_be_decrypted(encrypted):
    segment = find_segment(encrypted, 4160)
    change_byte(segment, segment.stat().st_size // 2)
    result = run("verify", encrypted)
    assert result.exit_code == 1
    assert f"{segment.name}: byte " in result.output
    assert "BAD_CHECKSUM, the tag of an encrypted chunk is wrong" in result.output
    assert "MISSING_SEGMENT" not in result.output
    assert "9 files, " in result.output and "1 finding of damage" in result.output
    assert "lost: 4,000 records in 1 range of offsets" in result.output
    for options in (
        "--offset 4160:8160",
        "--offset 6000:6010",
        "--where offset>=4200 --limit 7000",
    ):
        result = run("verify", encrypted, *options.split())
        assert result.exit_code == 1, (options, result.output)
        assert "BAD_CHECKSUM, the tag of an encrypted chunk is wrong" in result.output
        assert "1 finding of damage" in result.output
    assert run("verify", encrypted, "--offset", ":4160").exit_code == 0
    assert run("verify", encrypted, "--offset", "8160:").exit_code == 0


def test_verify_reports_a_first_chunk_that_a_selection_cannot_read(encrypted):
    segment = find_segment(encrypted, 4160)
    change_byte(segment, 20)
    expected = [line for line in parse_lines(run("verify", encrypted, "--json")) if "fault" in line]
    assert [line["fault"] for line in expected] == ["BAD_CHECKSUM"]
    for options in ("--offset 4170:4180", "--offset 4160:8160", "--where offset>=4200"):
        lines = parse_lines(run("verify", encrypted, *options.split(), "--json"))
        assert [line for line in lines if "fault" in line] == expected
        assert (lines[-1]["clean"], lines[-1]["lost_records"]) == (False, 4000)
