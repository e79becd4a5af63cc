# cython: boundscheck=False, wraparound=False
"""Lumberjack windows out of arrays, in two passes over the events and without the GIL.

First the windows are cut and their frames measured; then all are written, into memory of just that size. Compressed,
the frames of a window are written aside, and what zlib makes of them follows the header of the window. encode.py draws
the bytes.
"""
import numpy as np

from wirescan.core.chunks import flat
from wirescan.core.fault import Fault
from wirescan.lumberjack.scan import EVENT as _EVENT

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from wirescan.core.rows cimport Block, RowBlock, Rows, grow_rows
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport copied, store32
from wirescan.lumberjack.scan cimport (
    COMPRESSED, DATA, Event, JSON, LARGEST, LARGEST_FRAME, LONG_HEADER, SHORT_HEADER, WINDOW)


cdef struct Window:
    Py_ssize_t first
    Py_ssize_t end
    int64_t size                # bytes of its frames, before compression
    uint8_t version             # in ASCII, like all versions here

cdef struct Lying:              # a frame that is written again
    const uint8_t* at
    uint32_t size
    uint8_t version
    uint8_t kind

cdef struct Column:
    const uint8_t* key          # behind its length
    size_t key_size             # of both
    Strings values


cdef inline uint8_t* put_header(uint8_t* to, uint8_t version, uint8_t kind, uint32_t number) noexcept nogil:
    to[0], to[1] = version, kind
    store32(to + 2, number)
    return to + SHORT_HEADER


cdef class Events:
    """What `write_windows` writes: `Documents`, `Fields` or `Frames`."""
    cdef Py_ssize_t count
    cdef uint8_t version
    cdef object held

    def __len__(self):
        return self.count

    # Fill in size and version; `end` may be brought nearer. The event that cannot be written, or -1.
    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        return window.first

    cdef void write(self, const Window* window, uint32_t sequence, uint8_t* to) noexcept nogil:
        pass

    cdef object refusal(self, Py_ssize_t i):
        return ValueError(f"event {i} cannot be written")


cdef class Documents(Events):
    """Documents(texts, version): J frames of JSON texts, `ByteStrings`; null and empty ones are refused."""
    cdef Strings texts

    def __cinit__(self, ByteStrings texts not None, int version):
        self.held, self.count, self.texts, self.version = texts, len(texts), texts.strings, c"0" + version

    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        cdef Strings texts = self.texts
        cdef int64_t size
        cdef Py_ssize_t i
        window.version = self.version
        for i in range(window.first, window.end):
            size = texts.size[i * texts.step]
            if size <= 0:
                return i
            window.size += LONG_HEADER + size
        return -1

    cdef void write(self, const Window* window, uint32_t sequence, uint8_t* to) noexcept nogil:
        cdef Strings texts = self.texts     # a copy: what is written could be anywhere, as far as the compiler knows
        cdef uint8_t version = window.version
        cdef Py_ssize_t i, end = window.end
        cdef uint32_t size
        for i in range(window.first, end):
            size = <uint32_t>texts.size[i * texts.step]
            store32(put_header(to, version, JSON, sequence), size)
            copied(to + LONG_HEADER, <const uint8_t*><uintptr_t>texts.address[i * texts.step], size)
            to, sequence = to + LONG_HEADER + size, sequence + 1

    cdef object refusal(self, Py_ssize_t i):
        what = "null" if self.texts.size[i * self.texts.step] < 0 else "empty"
        return ValueError(f"document {i} must not be {what}")


cdef class Fields(Events):
    """Fields(keys, values, version): D frames of columns: a list of bytes, each a key behind its length as they are
    written, and a list of as many `ByteStrings` of equal length. A null leaves its pair out; a frame of 4 GiB is
    refused."""
    cdef Block columns
    cdef size_t width

    def __cinit__(self, list keys not None, list values not None, int version):
        cdef Column* column
        cdef const uint8_t[::1] key
        cdef ByteStrings strings
        self.held, self.width, self.version = (list(keys), list(values)), len(keys), c"0" + version
        if len(values) != len(keys) or len(set(map(len, values))) > 1:
            raise ValueError("columns of unequal length")
        self.columns, self.count = Block(self.width * sizeof(Column)), len(values[0]) if values else 0
        column = <Column*>self.columns.at
        for key, strings in zip(*self.held):
            column[0] = Column(&key[0], <size_t>key.shape[0], strings.strings)
            column += 1

    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        cdef const Column* column = <const Column*>self.columns.at
        cdef size_t c, width = self.width
        cdef int64_t size, value
        cdef Py_ssize_t i
        window.version = self.version
        for i in range(window.first, window.end):
            size = LONG_HEADER
            for c in range(width):
                value = column[c].values.size[i * column[c].values.step]
                if value >= 0:
                    size += <int64_t>column[c].key_size + 4 + value
            if size > LARGEST_FRAME:
                return i
            window.size += size
        return -1

    cdef void write(self, const Window* window, uint32_t sequence, uint8_t* to) noexcept nogil:
        cdef const Column* column = <const Column*>self.columns.at
        cdef size_t c, width = self.width
        cdef Py_ssize_t i, at
        cdef uint8_t* pairs_at
        cdef uint32_t pairs
        cdef int size
        for i in range(window.first, window.end):
            pairs_at, pairs = put_header(to, window.version, DATA, sequence), 0
            to = pairs_at + 4
            for c in range(width):
                at = i * column[c].values.step
                size = column[c].values.size[at]
                if size >= 0:
                    copied(to, column[c].key, column[c].key_size)
                    to += column[c].key_size
                    store32(to, <uint32_t>size)
                    copied(to + 4, <const uint8_t*><uintptr_t>column[c].values.address[at], <size_t>size)
                    to, pairs = to + 4 + size, pairs + 1
            store32(pairs_at, pairs)
            sequence += 1

    cdef object refusal(self, Py_ssize_t i):
        return ValueError(f"row {i} is too large: a D frame has less than 4 GiB")


cdef class Frames(Events):
    """Frames(events, buffers, version): D and J frames as they lie, but for the sequence: rows of dtype EVENT and what
    they point into. version: of all; 0: each keeps its own, and a window has frames of one.

    Raises TypeError for other rows; ValueError for one that is bad, of another kind, or outside its buffer.
    """
    cdef Block frames

    def __cinit__(self, events, buffers, int version):
        if events.dtype != _EVENT:
            raise TypeError("frames are copied from a table of lumberjack.events")
        cdef const uint8_t[::1] view = np.ascontiguousarray(events).view(np.uint8)
        self.held, self.count = [flat(buffer) for buffer in buffers], len(events)
        self.frames = Block(self.count * <Py_ssize_t>sizeof(Lying))
        cdef const uint64_t[::1] bases = np.array([one.ctypes.data for one in self.held], np.uint64)
        cdef const int64_t[::1] ends = np.array([len(one) for one in self.held], np.int64)
        cdef Lying* frame = <Lying*>self.frames.at
        cdef uint8_t given = <uint8_t>(c"0" + version) if version else 0
        cdef Py_ssize_t i, n = self.count
        cdef Py_ssize_t known = len(self.held)
        cdef Event event
        cdef uint8_t fault = 0
        with nogil:
            for i in range(n):
                event = (<const Event*>&view[i * <Py_ssize_t>sizeof(Event)])[0]
                fault = event.head.fault
                # Nothing is added to what may be forged: it could wrap.
                if (fault or event.head.kind not in (DATA, JSON) or event.version not in (1, 2)
                        or event.head.size < LONG_HEADER or event.head.buffer >= known or event.head.start < 0
                        or event.head.start > ends[event.head.buffer] - <int64_t>event.head.size):
                    break
                frame[i].at = <const uint8_t*><uintptr_t>(bases[event.head.buffer] + <uint64_t>event.head.start)
                frame[i].size, frame[i].kind = event.head.size, event.head.kind
                frame[i].version = given or <uint8_t>(c"0" + event.version)
            else:
                i = n
        if i < n and fault:
            names = {one.value: one.name for one in Fault}
            raise ValueError(f"row {i} is bad ({names.get(fault, fault)}): leave such rows out")
        if i < n:
            raise ValueError(f"row {i} is no D or J frame in its buffer")

    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        cdef const Lying* frame = <const Lying*>self.frames.at
        cdef Py_ssize_t i
        window.version = frame[window.first].version
        for i in range(window.first, window.end):
            if frame[i].version != window.version:
                window.end = i
                break
            window.size += frame[i].size
        return -1

    cdef void write(self, const Window* window, uint32_t sequence, uint8_t* to) noexcept nogil:
        cdef const Lying* frames = <const Lying*>self.frames.at
        cdef Py_ssize_t i, end = window.end
        cdef Lying frame
        for i in range(window.first, end):
            frame = frames[i]
            copied(put_header(to, frame.version, frame.kind, sequence), frame.at + SHORT_HEADER,
                   frame.size - SHORT_HEADER)
            to, sequence = to + frame.size, sequence + 1


cdef Py_ssize_t cut(Events events, Py_ssize_t most, Rows* windows) noexcept nogil:
    # As many windows as there have to be. The event that cannot be written, or -1.
    cdef Py_ssize_t first = 0, refused
    cdef Window* window
    while first < events.count:
        if windows.count == windows.room and not grow_rows(windows, 2 * windows.room):
            break
        window = <Window*>windows.at + windows.count
        window[0] = Window(first, events.count if events.count - first < most else first + most, 0, 0)
        refused = events.measure(window)
        if refused >= 0:
            return refused
        first = window.end
        windows.count += 1
    return -1


cdef inline uint32_t sequence_of(const Window* window, uint32_t first, bint restart) noexcept nogil:
    return first if restart else <uint32_t>(first + <uint64_t>window.first)


def write_windows(Events events not None, uint32_t most, uint32_t first, bint restart, compress=None):
    """Windows of at most `most` events: a read-only buffer.

    first: the sequence number of the first event, of each window or (not `restart`) of all; behind 2**32 - 1 comes 0.
    compress: what makes a zlib stream out of the frames of a window, or None.
    Raises ValueError for an event that cannot be written, and a window whose zlib stream is 2 GiB or more; MemoryError.
    """
    cdef RowBlock windows = RowBlock(sizeof(Window), events.count // most + 1, <size_t>-1 // (2 * sizeof(Window)))
    cdef Py_ssize_t refused
    with nogil:
        refused = cut(events, most, &windows.rows)
    if refused >= 0:
        raise events.refusal(refused)
    if windows.rows.out_of_memory:
        raise MemoryError(f"no memory for more than {len(windows)} windows")
    cdef Window* window = <Window*>windows.rows.at
    cdef size_t i, n = windows.rows.count, size
    cdef int64_t total = 0, largest = 0
    cdef uint8_t* to
    cdef RowBlock out
    cdef Rows* rows
    cdef Block aside
    cdef const uint8_t[::1] payload
    for i in range(n):
        total, largest = total + SHORT_HEADER + window[i].size, max(largest, window[i].size)
    if compress is None:
        aside = Block(total)
        to = <uint8_t*>aside.at
        with nogil:
            for i in range(n):
                to = put_header(to, window[i].version, WINDOW, <uint32_t>(window[i].end - window[i].first))
                events.write(&window[i], sequence_of(&window[i], first, restart), to)
                to += window[i].size
        return memoryview(aside).toreadonly()
    out, aside = RowBlock(1, total // 4, <size_t>-1 // 2), Block(largest)
    rows = &out.rows
    for i in range(n):
        with nogil:
            events.write(&window[i], sequence_of(&window[i], first, restart), <uint8_t*>aside.at)
        payload = compress(memoryview(aside)[:window[i].size])
        size = <size_t>payload.shape[0]
        if size > LARGEST:
            raise ValueError(f"the window of event {window[i].first} is too large: a zlib stream has less than 2 GiB")
        size += 2 * SHORT_HEADER
        if rows.room - rows.count < size:
            grow_rows(rows, max(2 * rows.room, rows.count + size))
        if rows.room - rows.count < size:
            raise MemoryError(f"no memory for {rows.count + size} bytes")
        to = put_header(<uint8_t*>rows.at + rows.count, window[i].version, WINDOW,
                        <uint32_t>(window[i].end - window[i].first))
        to = put_header(to, window[i].version, COMPRESSED, <uint32_t>payload.shape[0])
        memcpy(to, &payload[0], <size_t>payload.shape[0])
        rows.count += size
    return memoryview(out)
