"""The rooms that the laws are run for: one entry each."""
from hypothesis import strategies as st

from laws import Room
from reference import kafka as reference
from reference import kafka_resync
from strategies import kafka as strategies
from wirescan.kafka.encode import encode_batch, encode_message_set


def expect(raw, check, resync):
    """What tests/reference says of Kafka bytes."""
    batches, fault, at = (kafka_resync if resync else reference).batches(raw, check)
    records, headers = [], []
    for i, batch in enumerate(batches):
        for row in reference.records(raw, batch, check, parent=i):
            data = reference.payload(raw, batch) if row["buffer"] else raw
            headers += [(header, data) for header in reference.headers(data, row, parent=len(records))]
            records.append((row, data))
    return {"kafka.batches": [(row, raw) for row in batches], "kafka.records": records,
            "kafka.headers": headers}, fault, at


def values(headers):
    """[(offset, timestamp, key, value, headers)] of a table of kafka.headers."""
    pairs = {}
    for parent, key, value in zip(headers["parent"].tolist(), *(
            [None if (view := headers.bytes(i, name)) is None else bytes(view) for i in range(len(headers))]
            for name in ("key", "value"))):
        pairs.setdefault(parent, []).append((key, value))
    out = []
    for i, record in enumerate(headers.outer):
        key, value = (None if view is None else bytes(view) for view in record)
        out.append((record.offset, record.timestamp, key, value, tuple(pairs.get(i, ()))))
    return out


@st.composite
def written(draw):
    """Bytes of the encoders, and the records that they were given."""
    raw, rows = b"", []
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            given, call = draw(strategies.batch_calls())
            raw += encode_batch(given, **call)
        else:
            given, call = draw(strategies.message_set_calls())
            if call.pop("wrapper_offset", None) is not None:      # of such a set the true offsets are lost
                call["codec"] = "none"
            raw += encode_message_set(given, **call)
        times = [-1 if row.timestamp is None else row.timestamp for row in given]
        if call.get("timestamp_type") == "append":
            if "producer_id" in call or "base_offset" in call:
                times = [call.get("max_timestamp", max(times, default=-1))] * len(times)
            elif call["codec"] != "none":
                times = [max(times)] * len(times)
        rows += [(row.offset, time, row.key, row.value, tuple(row.headers)) for row, time in zip(given, times)]
    return raw, rows


ROOMS = {
    "kafka": Room(
        formats=("kafka.batches", "kafka.records", "kafka.headers"),
        good=strategies.logs(), tails=strategies.tails(), damaged=strategies.damaged_logs()
        | st.lists(strategies.damaged_inside(), min_size=1, max_size=2).map(b"".join),
        written=written(), values=values, expected=expect,
        children={
            "kafka.records": ("body", lambda row: row["record_count"] or row["fault"] or row["size"] > row["body"]),
            "kafka.headers": ("headers_at", lambda row: row["header_count"] or row["fault"]),
        }),
}
