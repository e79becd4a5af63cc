"""A slow decoder of RESP, written from the specification alone. It shares no code with the kernels.

The laws compare the tables of wirescan with the rows of `expect_tables`.
"""

import re

OK, TRUNCATED, BAD_INTEGER, TOO_DEEP = 0, 1, 64, 65
SHORT, BAD_LENGTH, NOT_A_VALUE, BAD_LINE = 128, 160, 192, 193
SIMPLE_STRING, ERROR, INTEGER, BULK_STRING, ARRAY = 1, 2, 3, 4, 5
TYPES = {b"+": 1, b"-": 2, b":": 3, b"$": 4, b"*": 5}
LEVELS = 32  # of arrays
SMALLEST = 3  # bytes of a value
LONGEST_LINE = 65536
LONGEST_LENGTH = 20  # of the line of a length or a count
HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
FRAME = HEAD | dict(
    integer=0, value_at=0, value_size=0, name_at=0, name_size=0, count=0, value_count=0
)
VALUE = HEAD | dict(
    integer=0, value_at=0, value_size=0, enclosing=-1, count=0, index=0, depth=0, element_kind=0
)


class Stop(Exception):  # noqa: N818 - an end is no error
    """The bytes of a frame end, or are no value. `needed`: the size of the value at least."""

    def __init__(self, fault, needed=0):
        super().__init__(fault)
        self.fault = fault
        self.needed = needed


class Node:
    """A value and the values in it."""

    def __init__(self, raw, at):
        self.at = at
        self.elements = []
        self.fault = OK
        self.integer = self.count = 0
        if at == len(raw):
            raise Stop(SHORT, SMALLEST)
        self.kind = TYPES.get(raw[at : at + 1])
        if self.kind is None:
            raise Stop(NOT_A_VALUE)
        text = self.read_line(raw)
        if self.kind == INTEGER:
            is_number = re.fullmatch(rb"[+-]?[0-9]{1,19}", text) is not None
            if is_number and -(2**63) <= int(text) < 2**63:
                self.integer = int(text)
            else:
                self.fault = BAD_INTEGER
        elif self.kind in (BULK_STRING, ARRAY):
            self.read_length(raw, text)

    def read_line(self, raw):
        line = re.compile(rb"[^\r\n]*").match(raw, self.at + 1)[0]
        self.value_at = self.at + 1
        self.value_size = len(line)
        self.end = self.value_at + len(line) + 2
        is_length = self.kind in (BULK_STRING, ARRAY)
        if len(line) > (LONGEST_LENGTH if is_length else LONGEST_LINE):
            raise Stop(BAD_LINE)
        if raw[self.end - 2 : self.end] in (b"", b"\r"):
            raise Stop(SHORT, len(line) + SMALLEST)
        if raw[self.end - 2 : self.end] != b"\r\n":
            raise Stop(BAD_LINE)
        return line

    def read_length(self, raw, text):
        self.value_at = self.end
        if text == b"-1":
            self.value_size = -1
            return
        if not re.fullmatch(rb"[0-9]{1,10}", text) or int(text) > 2**31 - 1:
            raise Stop(BAD_LENGTH)
        if self.kind == ARRAY:
            self.count = int(text)
            self.value_size = 0
            return
        self.value_size = int(text)
        self.end += self.value_size + 2
        if self.end > len(raw):
            raise Stop(SHORT, self.end - self.at)
        if raw[self.end - 2 : self.end] != b"\r\n":
            raise Stop(BAD_LENGTH)

    def list_nodes(self):
        """Return this value and all inside it, in the order of the wire."""
        return [self, *(node for element in self.elements for node in element.list_nodes())]


class Frame:
    """What begins at a position: `fault`, `size`, and `root`, the outermost value.

    whole: the bytes of the values before the end, if the bytes end inside the frame.
    """

    def __init__(self, raw, at):
        self.fault = OK
        self.size = 0
        self.root = None
        position = at
        missing = 1
        short = False
        open_nodes = []
        while missing:
            try:
                node = Node(raw, position)
            except Stop as stop:
                self.fault = stop.fault
                short = short or stop.fault == SHORT
                break
            position = node.end
            missing += node.count - 1
            short = short or SMALLEST * missing > len(raw) - position
            self.add(node, open_nodes)
        self.whole = position - at
        if short:
            self.fault = SHORT
        elif self.fault < SHORT:
            self.size = position - at

    def add(self, node, open_nodes):
        while open_nodes and len(open_nodes[-1].elements) == open_nodes[-1].count:
            open_nodes.pop().end = node.at
        node.depth = len(open_nodes) + 1
        node.index = 0
        node.enclosing = open_nodes[-1] if open_nodes else None
        if node.enclosing is None:
            self.root = node
        else:
            node.index = len(node.enclosing.elements)
            node.enclosing.elements.append(node)
        self.fault = self.fault or node.fault
        if node.count and len(open_nodes) < LEVELS:
            open_nodes.append(node)
        elif node.count:
            open_nodes[-1].count += node.count
            self.fault = self.fault or TOO_DEEP


def is_intact(raw, at):
    """Return whether the search after damage finds a frame there: an array with elements."""
    if raw[at : at + 1] != b"*":
        return False
    frame = Frame(raw, at)
    return not frame.fault and frame.root.count > 0


def find_name(node):
    """Return the (position, size) of the name in the frame of an outermost value."""
    if node.kind == ERROR:
        return node.value_at - node.at, node.value_size
    first = node.elements[0] if node.elements else None
    if first is not None and first.kind == BULK_STRING and first.value_size >= 0:
        return first.value_at - node.at, first.value_size
    return 0, -1


def make_frame_row(raw, at, frame):
    row = FRAME | dict(start=at, size=frame.size, fault=frame.fault, kind=frame.root.kind)
    if frame.fault:
        return row
    node = frame.root
    name_at, name_size = find_name(node)
    if node.kind == ERROR:
        text = raw[node.value_at : node.value_at + node.value_size]
        name_size = len(text.split(b" ")[0])
    value_at = node.value_at - at
    size = frame.size - value_at if node.count or node.value_size == 0 else node.value_size
    return row | dict(
        body=value_at,
        integer=node.integer,
        value_at=value_at,
        value_size=size if node.kind == ARRAY else node.value_size,
        name_at=name_at,
        name_size=name_size,
        count=node.count,
        value_count=len(node.list_nodes()),
    )


def make_value_rows(raw, parent, first, row, frame):
    """Return the rows of resp.values for a row of resp.frames. `first`: their number so far."""
    if row["fault"]:
        place = dict(start=row["start"], size=row["size"], parent=parent)
        return [VALUE | place | dict(fault=row["fault"])]
    nodes = frame.root.list_nodes()
    numbers = {id(node): first + i for i, node in enumerate(nodes)}
    rows = []
    for node in nodes:
        stop = max(inner.end for inner in node.list_nodes())
        value_at = node.value_at - node.at
        size = node.value_size
        if node.kind == ARRAY and size >= 0:
            size = stop - node.value_at
        rows.append(
            VALUE
            | dict(
                start=node.at,
                size=stop - node.at,
                body=value_at,
                parent=parent,
                kind=node.kind,
                integer=node.integer,
                value_at=value_at,
                value_size=size,
                enclosing=numbers[id(node.enclosing)] if node.enclosing else -1,
                count=node.count,
                index=node.index,
                depth=node.depth,
                element_kind=node.elements[0].kind if node.elements else 0,
            )
        )
    return rows


def expect_tables(raw, check, resync):
    """Return ({format: [(row, raw)]}, fault, position of the stop) that a scan must have."""
    rows = []
    values = []
    at = 0
    fault = OK
    while at < len(raw):
        frame = Frame(raw, at)
        if frame.fault < SHORT:
            row = make_frame_row(raw, at, frame)
        else:
            skipped = frame.whole if frame.fault == SHORT else 0
            later = range(at + max(skipped, 1), len(raw))
            found = next((i for i in later if is_intact(raw, i)), None)
            fault = frame.fault
            if fault == SHORT and found is not None:
                fault = BAD_LENGTH  # an intact frame follows, so this one is not cut
            if fault == SHORT or not resync:
                break
            stop = len(raw) if found is None else found
            row = FRAME | dict(start=at, size=stop - at, fault=fault)
        if row["fault"] and row["fault"] < SHORT and resync:
            extend_to_the_next_frame(raw, row)
        values += make_value_rows(raw, len(rows), len(values), row, frame)
        rows.append(row)
        at += row["size"]
        fault = OK
    tables = {"resp.frames": rows, "resp.values": values}
    return {name: [(row, raw) for row in table] for name, table in tables.items()}, fault, at


def extend_to_the_next_frame(raw, row):
    """Extend a bad row whose end is known, unless a value may begin there."""
    stop = row["start"] + row["size"]
    if stop == len(raw) or raw[stop : stop + 1] in TYPES:
        return
    found = next((i for i in range(row["start"] + 1, len(raw)) if is_intact(raw, i)), None)
    if found is not None:
        row["size"] = found - row["start"]
