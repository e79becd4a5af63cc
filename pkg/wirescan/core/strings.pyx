# cython: boundscheck=False, wraparound=False
"""Arrays of byte strings, wherever they lie: their addresses and sizes, over memory that is held and never copied.

    a place of a table    start + <name>_at and <name>_size of each row
    offsets               string i lies at data[offset[i]:offset[i + 1]]
    fixed width           string i lies at data[i * width:(i + 1) * width]; numpy's `S` drops the zeros at its end
    view                  size i4 | up to 12 bytes in place, or their first four, the number of a buffer i4, the offset
                          in it i4

What comes from outside is checked before an address is formed of it. Source: Apache Arrow columnar format 1.4,
"Variable-size Binary Layout", "Variable-size Binary View Layout", "Validity bitmaps".
"""
import numpy as np

from wirescan.core.chunks import chunks_of, flat, is_arrow, numbers

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uintptr_t

cdef enum:
    INLINE = 12                 # bytes that a view holds itself
    LONGEST = 0x7fffffff        # bytes in a string

ctypedef fused Offset:
    int32_t
    int64_t


cdef inline bint is_null(const uint8_t* valid, Py_ssize_t i) noexcept nogil:
    return valid is not NULL and not (valid[i >> 3] >> (i & 7)) & 1


cdef Py_ssize_t lay_out(uint64_t* address, int32_t* size, const Offset[::1] offsets, uint64_t base, int64_t length,
                        const uint8_t* valid, Py_ssize_t skip) noexcept nogil:
    # The string that does not lie in the data, or -1.
    cdef int64_t start = offsets[0], end
    cdef Py_ssize_t i
    for i in range(offsets.shape[0] - 1):
        end = offsets[i + 1]
        if start < 0 or end < start or end > length or end - start > LONGEST:
            return i
        address[i] = base + <uint64_t>start
        size[i] = -1 if is_null(valid, skip + i) else <int32_t>(end - start)
        start = end
    return -1


cdef class ByteStrings:
    """ByteStrings(source, count=None): byte strings, of which null is none. A sequence of bytes and None.

    source: one of
      (table, name)      a place of a FrameTable; null on the wire or in a bad row is null
      an Arrow array     or chunked array, of pyarrow or anything with the Arrow C data interface (then pyarrow is
                         needed): binary, string, their large and view types, fixed_size_binary, null, or a
                         dictionary of these, which is unpacked
      a numpy array      of dtype S, whose strings end before their trailing zeros, or of objects
      (offsets, data)    int32 or int64 array of n + 1 offsets into a bytes-like object, for n strings
      a list             of bytes and None
      bytes or None      the same for all `count` of them
    count: how many there must be.
    nulls: how many there are. total: bytes in all others. longest: of one.

    Raises TypeError for another kind of source, ValueError for offsets, views, rows or buffers that do not fit each
    other, for a string of 2 GiB or more, and for another count. The bytes must not be changed while they are in use.
    """

    def __init__(self, source, count=None):
        self.held = []
        if isinstance(source, ByteStrings):
            self.held.append(source)
            self.addresses, self.sizes = (<ByteStrings>source).addresses, (<ByteStrings>source).sizes
            self.strings, self.count = (<ByteStrings>source).strings, (<ByteStrings>source).count
        elif source is None or isinstance(source, (bytes, bytearray, memoryview)):
            self.repeat(source, count)
        elif isinstance(source, list):
            self.of_list(source)
        elif isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str):
            self.of_place(source[0], source[1])
        elif isinstance(source, tuple) and len(source) == 2:
            offsets = np.asarray(source[0])
            if offsets.ndim != 1 or offsets.dtype not in (np.int32, np.int64):
                raise TypeError("a pair is (table, name) or (offsets, data), with offsets of int32 or int64")
            if not len(offsets):
                raise ValueError("n strings have n + 1 offsets, and here is none")
            self.room(len(offsets) - 1, len(offsets) - 1)
            self.of_offsets(0, self.count, offsets, source[1], None, 0)
        elif isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype == object:
            self.of_list(source.tolist())
        elif isinstance(source, np.ndarray):
            if isinstance(source, np.ma.MaskedArray):
                raise TypeError("a masked array: give what it hides as None in a list, or as nulls of Arrow")
            if source.ndim != 1 or source.dtype.kind != "S":
                raise TypeError("byte strings in a numpy array are of dtype S, in one dimension, "
                                f"not {source.dtype} in {source.ndim}")
            source = np.ascontiguousarray(source)
            self.room(len(source), len(source))
            self.of_width(0, self.count, source.itemsize, source, None, 0, True)
        elif is_arrow(source):
            self.of_arrow(chunks_of(source))
        else:
            raise TypeError("byte strings are a place of a table, an Arrow array, a numpy array of dtype S, "
                            f"(offsets, data), a list of bytes, bytes or None, not {type(source).__name__}")
        if count is not None and count != self.count:
            raise ValueError(f"there are {self.count} byte strings, not {count}")

    cdef int room(self, Py_ssize_t count, Py_ssize_t slots) except -1:
        self.addresses, self.sizes, self.count = Block(8 * slots), Block(4 * slots), count
        self.strings = Strings(<const uint64_t*>self.addresses.at, <const int32_t*>self.sizes.at, slots == count)
        return 0

    cdef tuple tally(self):
        cdef const int32_t* size = self.strings.size
        cdef Py_ssize_t i, n = self.count if self.strings.step else min(self.count, 1)
        cdef int64_t nulls = 0, total = 0, times = 1 if self.strings.step else self.count
        cdef int32_t longest = 0
        if self.counts is None:
            with nogil:
                for i in range(n):
                    nulls += size[i] < 0
                    total += max(size[i], 0)
                    longest = max(longest, size[i])
            self.counts = nulls * times, total * times, longest
        return self.counts

    @property
    def nulls(self):
        return self.tally()[0]

    @property
    def total(self):
        return self.tally()[1]

    @property
    def longest(self):
        return self.tally()[2]

    cdef int repeat(self, value, count) except -1:
        if count is None or count < 0:
            raise ValueError(f"one byte string for all needs to know how many there are, not {count}")
        self.room(count, 1)
        self.strings.step = 0
        value = None if value is None else bytes(value)
        self.held.append(value)
        return self.put(0, value)

    cdef int put(self, Py_ssize_t i, value) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at
        cdef int32_t* size = <int32_t*>self.sizes.at
        if value is None:
            address[i], size[i] = 0, -1
        elif isinstance(value, bytes):
            if PyBytes_GET_SIZE(value) > LONGEST:
                raise ValueError(f"string {i} has {len(value)} bytes, and at most {LONGEST} are possible")
            address[i] = <uint64_t><uintptr_t>PyBytes_AS_STRING(value)
            size[i] = <int32_t>PyBytes_GET_SIZE(value)
        else:
            raise TypeError(f"string {i} must be bytes or None, not {type(value).__name__}")
        return 0

    cdef int of_list(self, list values) except -1:
        cdef Py_ssize_t i
        held = tuple(values)                # the list may change
        self.held.append(held)
        self.room(len(held), len(held))
        for i in range(self.count):
            self.put(i, held[i])
        return 0

    cdef int of_place(self, table, name) except -1:
        if not hasattr(table, "places"):
            raise TypeError(f"the place {name!r} is one of a table, not of {type(table).__name__}")
        if name not in table.places:
            raise ValueError(f"{table.name} has no place {name!r}, only {', '.join(table.places) or 'none'}")
        rows = table.rows
        self.held += [np.frombuffer(b, np.uint8) for b in table.buffers]
        self.room(len(rows), len(rows))
        cdef const uint64_t[::1] bases = np.array([b.ctypes.data for b in self.held], np.uint64)
        cdef const int64_t[::1] ends = np.array([len(b) for b in self.held], np.int64)
        # Rows with more columns, of text perhaps, may lie at odd addresses.
        cdef const int64_t[:] start = np.require(rows["start"], requirements="A")
        cdef const uint32_t[:] at = np.require(rows[name + "_at"], requirements="A")
        cdef const int32_t[:] size = np.require(rows[name + "_size"], requirements="A")
        cdef const uint16_t[:] buffer = np.require(rows["buffer"], requirements="A")
        cdef const uint8_t[:] fault = rows["fault"]
        cdef uint64_t* addresses = <uint64_t*>self.addresses.at
        cdef int32_t* sizes = <int32_t*>self.sizes.at
        cdef Py_ssize_t i, n = self.count
        cdef int64_t first, buffers = len(self.held)
        cdef int32_t length
        cdef uint32_t inside
        cdef uint16_t number
        cdef bint good = True
        with nogil:
            for i in range(n):
                length = size[i]
                if length < 0 or fault[i] != 0:
                    addresses[i], sizes[i] = 0, -1
                    continue
                number, first, inside = buffer[i], start[i], at[i]
                # Nothing is added to what may be forged: it could wrap.
                if number >= buffers or first < 0 or first > ends[number] - length - inside:
                    good = False
                    break
                addresses[i], sizes[i] = bases[number] + <uint64_t>first + inside, length
        if not good:
            raise ValueError(f"row {i} points outside its buffer")
        return 0

    # Of `count` strings, the first of which is string `at` here, and bit `skip` of the validity bitmap.

    cdef int of_offsets(self, Py_ssize_t at, Py_ssize_t count, offsets, data, validity, Py_ssize_t skip) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at + at
        cdef int32_t* size = <int32_t*>self.sizes.at + at
        cdef const uint8_t* valid = self.bitmap(validity, skip + count)
        cdef const int32_t[::1] narrow
        cdef const int64_t[::1] wide
        cdef Py_ssize_t wrong
        data = flat(data)
        self.held.append(data)
        cdef uint64_t base = data.ctypes.data
        cdef int64_t length = len(data)
        offsets = np.require(offsets, requirements="CA")
        if offsets.dtype == np.int32:
            narrow = offsets
            with nogil:
                wrong = lay_out(address, size, narrow, base, length, valid, skip)
        else:
            wide = offsets
            with nogil:
                wrong = lay_out(address, size, wide, base, length, valid, skip)
        if wrong >= 0:
            start, end = offsets[wrong:wrong + 2].tolist()
            if 0 <= start and start + LONGEST < end <= length:
                raise ValueError(f"string {at + wrong} has {end - start} bytes, and at most {LONGEST} are possible")
            raise ValueError(f"string {at + wrong}: its offsets {start} and {end} are not in order in {length} bytes")
        return 0

    cdef int of_width(self, Py_ssize_t at, Py_ssize_t count, Py_ssize_t width, data, validity, Py_ssize_t skip,
                      bint stripped) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at + at
        cdef int32_t* size = <int32_t*>self.sizes.at + at
        cdef const uint8_t* valid = self.bitmap(validity, skip + count)
        cdef const uint8_t* p
        cdef Py_ssize_t i, used
        data = flat(data)
        self.held.append(data)
        cdef uint64_t base = data.ctypes.data
        if width < 0 or width > LONGEST or len(data) < width * count:
            raise ValueError(f"{count} strings of {width} bytes do not fit into {len(data)}")
        with nogil:
            for i in range(count):
                address[i], used = base + <uint64_t>(i * width), width
                p = <const uint8_t*><uintptr_t>address[i]
                while stripped and used and p[used - 1] == 0:
                    used -= 1
                size[i] = -1 if is_null(valid, skip + i) else <int32_t>used
        return 0

    cdef int of_views(self, Py_ssize_t at, Py_ssize_t count, views, parts, validity, Py_ssize_t skip) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at + at
        cdef int32_t* size = <int32_t*>self.sizes.at + at
        cdef const uint8_t* valid = self.bitmap(validity, skip + count)
        parts = [flat(part) for part in parts]
        self.held += [views, *parts]
        cdef const uint64_t[::1] bases = np.array([part.ctypes.data for part in parts], np.uint64)
        cdef const int64_t[::1] ends = np.array([len(part) for part in parts], np.int64)
        cdef const int32_t[:, ::1] view = views
        cdef Py_ssize_t i
        cdef int32_t length, number, first
        cdef bint good = True
        with nogil:
            for i in range(count):
                if is_null(valid, skip + i):
                    address[i], size[i] = 0, -1
                    continue
                length, number, first = view[i, 0], view[i, 2], view[i, 3]
                if 0 <= length <= INLINE:
                    address[i], size[i] = <uint64_t><uintptr_t>&view[i, 1], length
                elif (length < 0 or number < 0 or number >= bases.shape[0] or first < 0
                        or first > ends[number] - length):
                    good = False
                    break
                else:
                    address[i], size[i] = bases[number] + <uint64_t>first, length
        if not good:
            raise ValueError(f"string {at + i}: its view points outside the buffers")
        return 0

    cdef const uint8_t* bitmap(self, validity, Py_ssize_t bits) except? NULL:
        if validity is None:
            return NULL
        validity = flat(validity)
        if 8 * len(validity) < bits:
            raise ValueError(f"a validity bitmap of {len(validity)} bytes for {bits} strings")
        self.held.append(validity)
        return <const uint8_t*><uintptr_t>validity.ctypes.data

    cdef int of_arrow(self, chunks) except -1:
        cdef Py_ssize_t at = 0, count, skip
        count = sum(map(len, chunks))
        self.room(count, count)
        for chunk in chunks:
            kind = str(chunk.type)
            if kind.startswith("dictionary<"):
                chunk.validate(full=True)           # its indices are not looked at where it is unpacked
                chunk = chunk.dictionary_decode()
                kind = str(chunk.type)
            if not len(chunk):
                continue
            count, skip, (validity, *buffers) = len(chunk), chunk.offset, chunk.buffers()
            if kind in ("binary", "string", "large_binary", "large_string"):
                offsets = numbers(buffers[0], np.int64 if kind.startswith("large") else np.int32, skip, count + 1)
                self.of_offsets(at, count, offsets, buffers[1], validity, skip)
            elif kind in ("binary_view", "string_view"):
                views = numbers(buffers[0], np.dtype((np.int32, 4)), skip, count)
                self.of_views(at, count, views, buffers[1:], validity, skip)
            elif kind.startswith("fixed_size_binary"):
                width = chunk.type.byte_width
                self.of_width(at, count, width, flat(buffers[0])[skip * width:], validity, skip, False)
            elif kind == "null":
                self.of_width(at, count, 0, None, bytes((count + 7) // 8), 0, False)
            else:
                raise TypeError(f"byte strings in Arrow are binary or string, not {kind}")
            at += count
        return 0

    def lengths(self):
        """Int32 array: the bytes of each, -1 for null."""
        cdef const int32_t* size = self.strings.size
        cdef Py_ssize_t i, step = self.strings.step
        found = np.empty(self.count, np.int32)
        cdef int32_t[::1] out = found
        with nogil:
            for i in range(out.shape[0]):
                out[i] = size[i * step]
        return found

    def take(self, rows):
        """The byte strings of these numbers, in their order: an int64 array. ValueError for one that there is not."""
        cdef ByteStrings taken = ByteStrings.__new__(ByteStrings)
        cdef const int64_t[::1] row = np.ascontiguousarray(rows, np.int64)
        cdef Strings all = self.strings
        cdef Py_ssize_t i, n = self.count, number = 0
        taken.held = [self]
        taken.room(len(row), len(row))
        cdef uint64_t* address = <uint64_t*>taken.addresses.at
        cdef int32_t* size = <int32_t*>taken.sizes.at
        cdef bint good = True
        with nogil:
            for i in range(row.shape[0]):
                number = row[i]
                if number < 0 or number >= n:
                    good = False
                    break
                address[i], size[i] = all.address[number * all.step], all.size[number * all.step]
        if not good:
            raise ValueError(f"there are {n} byte strings, and none of number {number}")
        return taken

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        i = range(self.count)[i] * self.strings.step
        if self.strings.size[i] < 0:
            return None
        return (<const char*><uintptr_t>self.strings.address[i])[:self.strings.size[i]]
