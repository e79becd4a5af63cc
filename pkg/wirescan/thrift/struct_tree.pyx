# cython: boundscheck=False, wraparound=False
"""Read one struct into a small tree of Python values, without its schema.

`call_text.py` makes text of the tree. The tree is bounded: long byte strings, long lists and deep
values are cut. What is cut is stepped over, so the time is linear in the bytes of the struct.
walk.pxd draws the wire.

Source: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md.
"""
import struct

from wirescan.core cimport (
    LEFTOVER, Reader, TRUNCATED, int16_t, int32_t, int64_t, take, uint8_t, uint32_t, zigzag32,
    zigzag64)
from wirescan.thrift.walk cimport (
    BOOL, DOUBLE, FIXED_SIZE, FLOAT, I64, LIST, Level, MAP, STOP, STRING, STRUCT, U64, UUID, Walk,
    begin_walk, open_value, read_field, read_size, skip)

cdef enum:
    COMPACT_VERSION = 1         # of Apache Thrift, whose doubles are little-endian
    VALUE_COST = 4              # of each value; each byte of a string costs 1 more


cdef class WireValue:
    """A value of a struct.

    Attributes:
        kind: its type, a number of `Type`.
        value: a bool, int, float or bytes; None for a struct or container.
        items: of a struct [(number of the field, WireValue)]; of a list or set [WireValue]; of a
            map [(WireValue, WireValue)]; else None.
        count: bytes of a string, elements of a list or set, pairs of a map. 0 for a struct.
        is_cut: not all of the bytes or items are here.
        is_broken: the struct is bad after the last of the items.
    """
    cdef readonly int kind
    cdef readonly object value
    cdef readonly list items
    cdef readonly int64_t count
    cdef readonly bint is_cut
    cdef readonly bint is_broken


cdef class StructTree:
    """The tree of a struct. All arguments but `data` are keywords.

    data: the struct, as bytes.
    compact: it has the compact protocol, else the binary one.
    version: the version of the message.
    deepest: levels of structs and containers in the tree.
    most_items: fields, elements or pairs of each of them.
    most_bytes: bytes of each byte string.
    budget: the size of the tree. Each value costs 4, and each byte of a string 1.

    Attributes:
        root: the struct, a `WireValue`.
        fault: 0, or what is wrong with the struct. Then the tree has the values before it.
        position: of the fault in `data`.
    """
    cdef readonly WireValue root
    cdef readonly int fault
    cdef readonly int64_t position
    cdef Walk walk
    cdef Reader r
    cdef const uint8_t* mark    # where the value that is read begins
    cdef int32_t deepest
    cdef int64_t most_items
    cdef int64_t most_bytes
    cdef int64_t budget

    def __init__(self, const uint8_t[::1] data, *, bint compact, uint8_t version, int32_t deepest,
                 int64_t most_items, int64_t most_bytes, int64_t budget):
        cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
        self.r = Reader(start, start + data.shape[0])
        self.mark = start
        self.deepest = deepest
        self.most_items = most_items
        self.most_bytes = most_bytes
        self.budget = budget
        begin_walk(&self.walk, compact, version)
        self.root = make_container(STRUCT, 0)
        self.read_fields(self.root, 0)
        if not self.fault and self.r.at != self.r.end:
            self.mark = self.r.at
            self.fault = LEFTOVER
            self.root.is_broken = True
        self.position = self.mark - start

    cdef int read_fields(self, WireValue node, int32_t base) except -1:
        # Reads the fields of the struct at depth `base` + 1, and its end.
        cdef Level* level = &self.walk.level[base]
        cdef uint8_t type = STOP
        cdef int32_t id = 0
        cdef int64_t truth = -1
        cdef int16_t last_id
        while True:
            self.mark = self.r.at
            last_id = level.last_id
            self.fault = read_field(&self.walk, &self.r, &type, &id, &truth)
            if self.fault:
                node.is_broken = True
                return 0
            if type == STOP:
                self.walk.depth -= 1
                return 0
            if self.is_full(node):
                self.r.at = self.mark
                level.last_id = last_id
                return self.skip_rest(node, base)
            value = self.read_value(type, truth)
            if value is not None:
                node.items.append((id, value))
            if self.fault:
                node.is_broken = value is None
                return 0

    cdef int read_elements(self, WireValue node, int32_t base) except -1:
        # Reads the elements of the container at depth `base` + 1.
        cdef Level* level = &self.walk.level[base]
        cdef int64_t width = 2 if level.type == MAP else 1
        while level.remaining:
            if self.is_full(node):
                # `skip` steps over `count` elements of fixed size: those that are left.
                level.count = <uint32_t>(level.remaining // width)
                return self.skip_rest(node, base)
            level.remaining -= width
            self.mark = self.r.at
            key = self.read_value(level.key_type, -1) if level.type == MAP else None
            value = None
            if not self.fault:
                self.mark = self.r.at
                value = self.read_value(level.element_type, -1)
            if value is not None:
                node.items.append(value if level.type != MAP else (key, value))
            if self.fault:
                node.is_broken = value is None
                return 0
        self.walk.depth -= 1
        return 0

    cdef WireValue read_value(self, uint8_t type, int64_t truth):
        # Returns a value. After a fault it returns None, or the values before the fault.
        # truth: the value of a boolean field of the compact protocol; else -1.
        cdef WireValue node
        cdef int32_t base = self.walk.depth
        self.budget -= VALUE_COST
        if truth >= 0 or not STRUCT <= type <= LIST:
            node = WireValue()
            node.kind = type
            node.value = bool(truth) if truth >= 0 else self.read_scalar(node)
            return None if self.fault else node
        self.fault = open_value(&self.walk, &self.r, type)
        if self.fault:
            return None
        node = make_container(type, self.walk.level[base].count)
        if base >= self.deepest:
            self.skip_rest(node, base)
        elif type == STRUCT:
            self.read_fields(node, base)
        else:
            self.read_elements(node, base)
        return node

    cdef object read_scalar(self, WireValue node):
        # Returns a value that is neither struct nor container.
        cdef uint32_t size = FIXED_SIZE[self.walk.compact][node.kind]
        cdef const uint8_t* p
        cdef int32_t number = 0
        cdef int64_t long_number = 0
        if size:
            p = take(&self.r, size)
            if p is NULL:
                self.fault = TRUNCATED
                return None
            return self.convert_fixed(node.kind, p[:size])
        if node.kind == STRING:
            return self.read_bytes(node)
        if node.kind == I64:
            self.fault = zigzag64(&self.r, &long_number)
            return long_number
        self.fault = zigzag32(&self.r, &number)
        return number

    cdef object convert_fixed(self, int type, bytes data):
        if type == BOOL:
            return data[0] == 1 if self.walk.compact else data[0] != 0
        if type == DOUBLE:
            is_little = self.walk.compact and self.walk.version == COMPACT_VERSION
            return struct.unpack("<d" if is_little else ">d", data)[0]
        if type == FLOAT:
            return struct.unpack(">f", data)[0]
        return data if type == UUID else int.from_bytes(data, "big", signed=type != U64)

    cdef object read_bytes(self, WireValue node):
        # Returns the first bytes of a byte string.
        cdef uint32_t size = 0
        cdef const uint8_t* p
        self.fault = read_size(&self.walk, &self.r, &size)
        if self.fault:
            return None
        p = take(&self.r, size) if size <= 0x7fffffff else NULL
        if p is NULL:
            self.fault = TRUNCATED
            return None
        node.count = size
        node.is_cut = size > self.most_bytes
        size = <uint32_t>min(<int64_t>size, self.most_bytes)
        self.budget -= size
        return p[:size]

    cdef bint is_full(self, WireValue node):
        return self.budget <= 0 or len(node.items) >= self.most_items

    cdef int skip_rest(self, WireValue node, int32_t base) except -1:
        # Steps over the fields or elements that are left of the container at depth `base` + 1.
        cdef const uint8_t* first = self.r.at
        self.fault = skip(&self.walk, &self.r, base)
        # An empty struct is its end only.
        node.is_cut = self.fault or (node.count > 0 if node.kind != STRUCT
                                     else self.r.at - first > 1)
        node.is_broken = self.fault != 0
        self.mark = self.r.at
        return 0


cdef WireValue make_container(int kind, int64_t count):
    cdef WireValue node = WireValue()
    node.kind = kind
    node.count = count
    node.items = []
    return node
