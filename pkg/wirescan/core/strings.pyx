# cython: boundscheck=False, wraparound=False
"""Arrays of byte strings in any memory layout: their addresses and sizes. The bytes are not copied.

    place of a table      start + <name>_at and <name>_size of each row
    offsets               string i is data[offset[i]:offset[i + 1]]
    fixed width           string i is data[i * width:(i + 1) * width]; numpy's `S` drops the zeros
                          at its end
    view                  size i4 | up to 12 bytes inline; or their first four bytes, the number of
                          a buffer i4, the offset in that buffer i4

Input is checked before an address is computed from it. Source: Apache Arrow columnar format 1.4,
"Variable-size Binary Layout", "Variable-size Binary View Layout", "Validity bitmaps".
"""
import numpy as np

from wirescan.core.arrow_input import as_byte_array, list_chunks, is_arrow, read_numbers

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uintptr_t

cdef enum:
    INLINE = 12                 # maximum bytes that a view holds inline
    LONGEST = 0x7fffffff        # maximum bytes in a string

ctypedef fused Offset:
    int32_t
    int64_t


cdef inline bint is_null(const uint8_t* valid, Py_ssize_t i) noexcept nogil:
    return valid is not NULL and not (valid[i >> 3] >> (i & 7)) & 1


cdef Py_ssize_t lay_out(uint64_t* address, int32_t* size, const Offset[::1] offsets, uint64_t base,
                        int64_t length, const uint8_t* valid, Py_ssize_t skip) noexcept nogil:
    # Fill addresses and sizes from offsets. Return the number of a string outside the data, or -1.
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
    """A sequence of byte strings and nulls (None): ByteStrings(source, count=None).

    source: one of
      (table, name)      a place of a FrameTable; null on the wire or in a bad row is null
      an Arrow array     or chunked array, of pyarrow or any object with the Arrow C data interface
                         (which needs pyarrow): binary, string, their large and view types,
                         fixed_size_binary, null, or a dictionary of these, which is decoded
      a numpy array      of dtype S, whose strings end before their trailing zeros, or of objects
      (offsets, data)    int32 or int64 array of n + 1 offsets into a bytes-like object, for n
                         strings
      a list             of bytes and None
      bytes or None      repeated `count` times
    count: the required number of strings; default is any number.

    Attributes: nulls, the number of nulls; total, the bytes in all strings; longest, the bytes in
    the longest.

    Raises TypeError for another kind of source. Raises ValueError for offsets, views, rows or
    buffers that do not fit each other, for a string of 2 GiB or more, and for another count. The
    bytes must not change while they are in use.
    """

    def __init__(self, source, count=None):
        self.owners = []
        if isinstance(source, ByteStrings):
            self.owners.append(source)
            self.addresses = (<ByteStrings>source).addresses
            self.sizes = (<ByteStrings>source).sizes
            self.strings = (<ByteStrings>source).strings
            self.count = (<ByteStrings>source).count
        elif source is None or isinstance(source, (bytes, bytearray, memoryview)):
            self.repeat(source, count)
        elif isinstance(source, list):
            self.fill_list(source)
        elif isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str):
            self.fill_place(source[0], source[1])
        elif isinstance(source, tuple) and len(source) == 2:
            offsets = np.asarray(source[0])
            if offsets.ndim != 1 or offsets.dtype not in (np.int32, np.int64):
                raise TypeError("a pair is (table, name) or (offsets, data), "
                                "with offsets of int32 or int64")
            if not len(offsets):
                raise ValueError("n strings have n + 1 offsets, and here is none")
            self.allocate(len(offsets) - 1, len(offsets) - 1)
            self.fill_offsets(0, self.count, offsets, source[1], None, 0)
        elif isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype == object:
            self.fill_list(source.tolist())
        elif isinstance(source, np.ndarray):
            if isinstance(source, np.ma.MaskedArray):
                raise TypeError("a masked array is not accepted; "
                                "give masked values as None in a list, or as nulls of Arrow")
            if source.ndim != 1 or source.dtype.kind != "S":
                raise TypeError("byte strings in a numpy array are of dtype S, in one dimension, "
                                f"not {source.dtype} in {source.ndim}")
            source = np.ascontiguousarray(source)
            self.allocate(len(source), len(source))
            self.fill_width(0, self.count, source.itemsize, source, None, 0, True)
        elif is_arrow(source):
            self.fill_arrow(list_chunks(source))
        else:
            raise TypeError("byte strings are a place of a table, an Arrow array, a numpy array of "
                            "dtype S, (offsets, data), a list of bytes, bytes or None, "
                            f"not {type(source).__name__}")
        if count is not None and count != self.count:
            raise ValueError(f"there are {self.count} byte strings, not {count}")

    cdef int allocate(self, Py_ssize_t count, Py_ssize_t slots) except -1:
        self.addresses = Block(8 * slots)
        self.sizes = Block(4 * slots)
        self.count = count
        self.strings = Strings(<const uint64_t*>self.addresses.at, <const int32_t*>self.sizes.at,
                               slots == count)
        return 0

    cdef tuple count_sizes(self):
        # A repeated string is counted once and multiplied.
        cdef const int32_t* size = self.strings.size
        cdef Py_ssize_t i, n = self.count if self.strings.step else min(self.count, 1)
        cdef int64_t nulls = 0, total = 0
        cdef int64_t times = 1 if self.strings.step else self.count
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
        """The number of nulls."""
        return self.count_sizes()[0]

    @property
    def total(self):
        """The number of bytes in all strings."""
        return self.count_sizes()[1]

    @property
    def longest(self):
        """The number of bytes in the longest string."""
        return self.count_sizes()[2]

    cdef int repeat(self, value, count) except -1:
        if count is None or count < 0:
            raise ValueError("one byte string for all rows needs count, how many rows there are, "
                             f"not {count}")
        self.allocate(count, 1)
        self.strings.step = 0
        value = None if value is None else bytes(value)
        self.owners.append(value)
        return self.put(0, value)

    cdef int put(self, Py_ssize_t i, value) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at
        cdef int32_t* size = <int32_t*>self.sizes.at
        if value is None:
            address[i] = 0
            size[i] = -1
        elif isinstance(value, bytes):
            if PyBytes_GET_SIZE(value) > LONGEST:
                raise ValueError(
                    f"string {i} has {len(value)} bytes, and at most {LONGEST} are possible")
            address[i] = <uint64_t><uintptr_t>PyBytes_AS_STRING(value)
            size[i] = <int32_t>PyBytes_GET_SIZE(value)
        else:
            raise TypeError(f"string {i} must be bytes or None, not {type(value).__name__}")
        return 0

    cdef int fill_list(self, list values) except -1:
        cdef Py_ssize_t i
        # A copy, since the caller may change the list.
        strings = tuple(values)
        self.owners.append(strings)
        self.allocate(len(strings), len(strings))
        for i in range(self.count):
            self.put(i, strings[i])
        return 0

    cdef int fill_place(self, table, name) except -1:
        if not hasattr(table, "places"):
            raise TypeError(f"the place {name!r} is one of a table, not of {type(table).__name__}")
        if name not in table.places:
            raise ValueError(
                f"{table.name} has no place {name!r}, only {', '.join(table.places) or 'none'}")
        rows = table.rows
        self.owners += [np.frombuffer(buffer, np.uint8) for buffer in table.buffers]
        self.allocate(len(rows), len(rows))
        cdef const uint64_t[::1] bases = np.array(
            [array.ctypes.data for array in self.owners], np.uint64)
        cdef const int64_t[::1] ends = np.array([len(array) for array in self.owners], np.int64)
        # A user may have added columns to the rows, so these may be at unaligned addresses.
        cdef const int64_t[:] start = np.require(rows["start"], requirements="A")
        cdef const uint32_t[:] at = np.require(rows[name + "_at"], requirements="A")
        cdef const int32_t[:] size = np.require(rows[name + "_size"], requirements="A")
        cdef const uint16_t[:] buffer_number = np.require(rows["buffer"], requirements="A")
        cdef const uint8_t[:] fault = rows["fault"]
        cdef uint64_t* addresses = <uint64_t*>self.addresses.at
        cdef int32_t* sizes = <int32_t*>self.sizes.at
        cdef Py_ssize_t i, n = self.count
        cdef int64_t first, buffers = len(self.owners)
        cdef int32_t length
        cdef uint32_t inside
        cdef uint16_t number
        cdef bint good = True
        with nogil:
            for i in range(n):
                length = size[i]
                if length < 0 or fault[i] != 0:
                    addresses[i] = 0
                    sizes[i] = -1
                    continue
                number = buffer_number[i]
                first = start[i]
                inside = at[i]
                # `first` may be forged, so nothing is added to it before the check: it could wrap.
                if number >= buffers or first < 0 or first > ends[number] - length - inside:
                    good = False
                    break
                addresses[i] = bases[number] + <uint64_t>first + inside
                sizes[i] = length
        if not good:
            raise ValueError(f"row {i} points outside its buffer")
        return 0

    cdef int fill_offsets(self, Py_ssize_t at, Py_ssize_t count, offsets, data, validity,
                          Py_ssize_t skip) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at + at
        cdef int32_t* size = <int32_t*>self.sizes.at + at
        cdef const uint8_t* valid = self.read_bitmap(validity, skip + count)
        cdef const int32_t[::1] narrow
        cdef const int64_t[::1] wide
        cdef Py_ssize_t wrong
        data = as_byte_array(data)
        self.owners.append(data)
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
                raise ValueError(f"string {at + wrong} has {end - start} bytes, "
                                 f"and at most {LONGEST} are possible")
            raise ValueError(f"string {at + wrong}: its offsets {start} and {end} "
                             f"are not in order in {length} bytes")
        return 0

    cdef int fill_width(self, Py_ssize_t at, Py_ssize_t count, Py_ssize_t width, data, validity,
                        Py_ssize_t skip, bint stripped) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at + at
        cdef int32_t* size = <int32_t*>self.sizes.at + at
        cdef const uint8_t* valid = self.read_bitmap(validity, skip + count)
        cdef const uint8_t* p
        cdef Py_ssize_t i, used
        data = as_byte_array(data)
        self.owners.append(data)
        cdef uint64_t base = data.ctypes.data
        if width < 0 or width > LONGEST or len(data) < width * count:
            raise ValueError(f"{count} strings of {width} bytes do not fit into {len(data)}")
        with nogil:
            for i in range(count):
                address[i] = base + <uint64_t>(i * width)
                used = width
                p = <const uint8_t*><uintptr_t>address[i]
                while stripped and used and p[used - 1] == 0:
                    used -= 1
                size[i] = -1 if is_null(valid, skip + i) else <int32_t>used
        return 0

    cdef int fill_views(self, Py_ssize_t at, Py_ssize_t count, views, data_buffers, validity,
                        Py_ssize_t skip) except -1:
        cdef uint64_t* address = <uint64_t*>self.addresses.at + at
        cdef int32_t* size = <int32_t*>self.sizes.at + at
        cdef const uint8_t* valid = self.read_bitmap(validity, skip + count)
        arrays = [as_byte_array(buffer) for buffer in data_buffers]
        self.owners += [views, *arrays]
        cdef const uint64_t[::1] bases = np.array(
            [array.ctypes.data for array in arrays], np.uint64)
        cdef const int64_t[::1] ends = np.array([len(array) for array in arrays], np.int64)
        cdef const int32_t[:, ::1] view = views
        cdef Py_ssize_t i
        cdef int32_t length, number, first
        cdef bint good = True
        with nogil:
            for i in range(count):
                if is_null(valid, skip + i):
                    address[i] = 0
                    size[i] = -1
                    continue
                length = view[i, 0]
                number = view[i, 2]
                first = view[i, 3]
                if 0 <= length <= INLINE:
                    address[i] = <uint64_t><uintptr_t>&view[i, 1]
                    size[i] = length
                elif (length < 0 or number < 0 or number >= bases.shape[0] or first < 0
                        or first > ends[number] - length):
                    good = False
                    break
                else:
                    address[i] = bases[number] + <uint64_t>first
                    size[i] = length
        if not good:
            raise ValueError(f"string {at + i}: its view points outside the buffers")
        return 0

    cdef const uint8_t* read_bitmap(self, validity, Py_ssize_t bits) except? NULL:
        if validity is None:
            return NULL
        validity = as_byte_array(validity)
        if 8 * len(validity) < bits:
            raise ValueError(f"a validity bitmap of {len(validity)} bytes is too short "
                             f"for {bits} strings")
        self.owners.append(validity)
        return <const uint8_t*><uintptr_t>validity.ctypes.data

    cdef int fill_arrow(self, chunks) except -1:
        cdef Py_ssize_t at = 0, count, skip
        count = sum(map(len, chunks))
        self.allocate(count, count)
        for chunk in chunks:
            kind = str(chunk.type)
            if kind.startswith("dictionary<"):
                # `dictionary_decode` does not check the indices.
                chunk.validate(full=True)
                chunk = chunk.dictionary_decode()
                kind = str(chunk.type)
            if not len(chunk):
                continue
            count = len(chunk)
            skip = chunk.offset
            validity, *buffers = chunk.buffers()
            if kind in ("binary", "string", "large_binary", "large_string"):
                dtype = np.int64 if kind.startswith("large") else np.int32
                offsets = read_numbers(buffers[0], dtype, skip, count + 1)
                self.fill_offsets(at, count, offsets, buffers[1], validity, skip)
            elif kind in ("binary_view", "string_view"):
                views = read_numbers(buffers[0], np.dtype((np.int32, 4)), skip, count)
                self.fill_views(at, count, views, buffers[1:], validity, skip)
            elif kind.startswith("fixed_size_binary"):
                width = chunk.type.byte_width
                data = as_byte_array(buffers[0])[skip * width:]
                self.fill_width(at, count, width, data, validity, skip, False)
            elif kind == "null":
                self.fill_width(at, count, 0, None, bytes((count + 7) // 8), 0, False)
            else:
                raise TypeError(f"byte strings in Arrow are binary or string, not {kind}")
            at += count
        return 0

    def lengths(self):
        """Return the bytes in each string as an int32 array, -1 for null."""
        cdef const int32_t* size = self.strings.size
        cdef Py_ssize_t i, step = self.strings.step
        array = np.empty(self.count, np.int32)
        cdef int32_t[::1] out = array
        with nogil:
            for i in range(out.shape[0]):
                out[i] = size[i * step]
        return array

    def take(self, rows):
        """Return the byte strings of these numbers, in their order.

        rows: int64 array. Raises ValueError for a number outside the array.
        """
        cdef ByteStrings chosen = ByteStrings.__new__(ByteStrings)
        cdef const int64_t[::1] row = np.ascontiguousarray(rows, np.int64)
        cdef Strings all = self.strings
        cdef Py_ssize_t i, n = self.count, number = 0
        chosen.owners = [self]
        chosen.allocate(len(row), len(row))
        cdef uint64_t* address = <uint64_t*>chosen.addresses.at
        cdef int32_t* size = <int32_t*>chosen.sizes.at
        cdef bint good = True
        with nogil:
            for i in range(row.shape[0]):
                number = row[i]
                if number < 0 or number >= n:
                    good = False
                    break
                address[i] = all.address[number * all.step]
                size[i] = all.size[number * all.step]
        if not good:
            raise ValueError(f"there are {n} byte strings, and none of number {number}")
        return chosen

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        i = range(self.count)[i] * self.strings.step
        if self.strings.size[i] < 0:
            return None
        return (<const char*><uintptr_t>self.strings.address[i])[:self.strings.size[i]]
