"""Generators of RESP, good and damaged, and the package for the laws."""

import reference
from hypothesis import strategies as st

import wirescan_resp as resp
from wirescan.testing import ProtocolPackage

texts = st.binary(max_size=8).map(lambda text: text.replace(b"\r", b"-").replace(b"\n", b"-"))
scalars = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.binary(max_size=12)
    | st.just(bytes(1000))
    | st.sampled_from((b"\r\n", resp.NullArray()))
    | st.builds(resp.Text, texts, st.booleans())
)
commands = st.lists(st.binary(max_size=8), min_size=1, max_size=4)
frame_in_text = st.just(b"*1\r\n$1\r\na\r\n")
cuts = st.lists(st.integers(0, 1000), max_size=6)


def limit_cuts(cuts, raw):
    """Return positions at which a stream is cut."""
    return [cut % (len(raw) + 1) for cut in cuts]


def nest(scalars):
    """Return a strategy of values: scalars, lists of values, and commands."""
    return commands | st.recursive(scalars, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


def join_values(values):
    return b"".join(map(resp.encode, values))


def cut(pair):
    value, size = pair
    raw = resp.encode(value)
    return raw[: size % len(raw)]


def replace_bytes(pair):
    """Return bytes with replacements from a list of (position, byte)."""
    raw, changes = pair
    replaced = {at % max(len(raw), 1): byte for at, byte in changes}
    return bytes(replaced.get(i, byte) for i, byte in enumerate(raw))


def read_values(table):
    """Return the values of a table of resp.values as the objects that `encode` takes."""
    results = []
    lists = {}
    for i, row in enumerate(table.rows):
        data = table.bytes(i, "value")
        value = None if data is None else bytes(data)
        if row["kind"] == resp.Kind.INTEGER:
            value = int(row["integer"])
        elif row["kind"] in (resp.Kind.SIMPLE_STRING, resp.Kind.ERROR):
            value = resp.Text(value, bool(row["kind"] == resp.Kind.ERROR))
        elif row["kind"] == resp.Kind.ARRAY:
            value = resp.NullArray() if value is None else lists.setdefault(i, [])
        (results if row["enclosing"] < 0 else lists[int(row["enclosing"])]).append(value)
    return results


def find_children(row):
    """Return (start, stop, fault) of the values in a row of resp.frames."""
    return 0, row["size"], row["fault"]


# Good bytes are also cut, so no text in them holds a frame. See section 13 of the page.
values = nest(scalars)
good = st.lists(values, max_size=5).map(join_values)
streams = st.lists(nest(scalars | frame_in_text), max_size=5)
changes = st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(b"+-:$*0123459\r\nx\xff")))
PACKAGE = ProtocolPackage(
    formats=("resp.frames", "resp.values"),
    good=good,
    tails=st.tuples(values, st.integers(0, 10000)).map(cut),
    damaged=st.tuples(streams.map(join_values), changes).map(replace_bytes)
    | st.text("+-:$*0123\r\na", max_size=60).map(str.encode),
    written=streams.map(lambda values: (join_values(values), values)),
    values=read_values,
    expected=reference.expect_tables,
    children={"resp.values": find_children},
)
