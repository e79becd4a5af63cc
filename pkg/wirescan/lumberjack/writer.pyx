# cython: boundscheck=False, wraparound=False
"""Writer of Lumberjack windows from arrays. `encode.py` uses it, and scan.pyx draws the bytes.

It takes two passes over the events, both without the GIL. The first pass cuts the events into
windows and measures their frames. The second pass writes all windows into memory of exactly that
size. For compressed windows, the frames of a window are written into a buffer of their own, and
their zlib stream follows the header of the window.
"""
import numpy as np

from wirescan.core.arrow_input import as_byte_array
from wirescan.core.fault import Fault
from wirescan.lumberjack.scan import EVENT as _EVENT

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from wirescan.core.rows cimport Block, RowBlock, Rows, grow_rows
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport copy_bytes, reserve_bytes, store32
from wirescan.lumberjack.rows cimport (
    COMPRESSED, DATA, Event, JSON, LARGEST, LARGEST_FRAME, LONG_HEADER, SHORT_HEADER, WINDOW)


cdef struct Window:
    Py_ssize_t first            # number of its first event
    Py_ssize_t end              # number after its last event
    int64_t size                # bytes of its frames, before compression
    uint8_t version             # as an ASCII digit, like all versions here

cdef struct SourceFrame:        # a frame that is copied
    const uint8_t* at
    uint32_t size
    uint8_t version
    uint8_t kind

cdef struct Column:
    const uint8_t* key          # the key, after its length
    size_t key_size             # bytes of the key and its length
    Strings values


cdef inline uint8_t* put_header(
        uint8_t* to, uint8_t version, uint8_t kind, uint32_t number) noexcept nogil:
    to[0] = version
    to[1] = kind
    store32(to + 2, number)
    return to + SHORT_HEADER


cdef class Events:
    """Base class of what `write_windows` writes: `Documents`, `Fields` or `Frames`."""
    cdef Py_ssize_t count
    cdef uint8_t version
    cdef object owners          # the objects that own the memory of the events

    def __len__(self):
        return self.count

    # Set `size` and `version` of a window; `end` may become smaller.
    # Return the number of the event that cannot be written, or -1.
    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        return window.first

    cdef void write(self, const Window* window, uint32_t sequence, uint8_t* to) noexcept nogil:
        pass

    # Return the error for an event that cannot be written.
    cdef object make_error(self, Py_ssize_t i):
        return ValueError(f"event {i} cannot be written")


cdef class Documents(Events):
    """Documents(texts, version): J frames of JSON texts.

    texts: `ByteStrings`; null and empty texts are refused. version: 1 or 2.
    """
    cdef Strings texts

    def __cinit__(self, ByteStrings texts not None, int version):
        self.owners = texts
        self.count = len(texts)
        self.texts = texts.strings
        self.version = c"0" + version

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
        # Local copies: the compiler must assume that a write through `to` changes `self`.
        cdef Strings texts = self.texts
        cdef uint8_t version = window.version
        cdef Py_ssize_t i
        cdef Py_ssize_t end = window.end
        cdef uint32_t size
        for i in range(window.first, end):
            size = <uint32_t>texts.size[i * texts.step]
            store32(put_header(to, version, JSON, sequence), size)
            copy_bytes(to + LONG_HEADER,
                       <const uint8_t*><uintptr_t>texts.address[i * texts.step], size)
            to += LONG_HEADER + size
            sequence += 1

    cdef object make_error(self, Py_ssize_t i):
        reason = "null" if self.texts.size[i * self.texts.step] < 0 else "empty"
        return ValueError(f"document {i} must not be {reason}")


cdef class Fields(Events):
    """Fields(keys, values, version): D frames of columns, one frame for each row.

    keys: list of bytes, each a key after its length, as on the wire.
    values: list of as many `ByteStrings` of equal length. A null omits its pair.
    version: 1 or 2. A frame of 4 GiB or more is refused.
    Raises ValueError for columns of unequal length.
    """
    cdef Block columns
    cdef size_t width           # number of columns

    def __cinit__(self, list keys not None, list values not None, int version):
        cdef Column* column
        cdef const uint8_t[::1] key
        cdef ByteStrings strings
        self.owners = (list(keys), list(values))
        self.width = len(keys)
        self.version = c"0" + version
        if len(values) != len(keys) or len(set(map(len, values))) > 1:
            raise ValueError("columns of unequal length")
        self.columns = Block(self.width * sizeof(Column))
        self.count = len(values[0]) if values else 0
        column = <Column*>self.columns.at
        for key, strings in zip(*self.owners):
            column[0] = Column(&key[0], <size_t>key.shape[0], strings.strings)
            column += 1

    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        cdef const Column* column = <const Column*>self.columns.at
        cdef size_t c
        cdef size_t width = self.width
        cdef int64_t size
        cdef int64_t value
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
        cdef size_t c
        cdef size_t width = self.width
        cdef Py_ssize_t i
        cdef Py_ssize_t at
        cdef uint8_t* pairs_at
        cdef uint32_t pairs
        cdef int size
        for i in range(window.first, window.end):
            pairs_at = put_header(to, window.version, DATA, sequence)
            pairs = 0
            to = pairs_at + 4
            for c in range(width):
                at = i * column[c].values.step
                size = column[c].values.size[at]
                if size >= 0:
                    copy_bytes(to, column[c].key, column[c].key_size)
                    to += column[c].key_size
                    store32(to, <uint32_t>size)
                    copy_bytes(to + 4, <const uint8_t*><uintptr_t>column[c].values.address[at],
                               <size_t>size)
                    to += 4 + size
                    pairs += 1
            store32(pairs_at, pairs)
            sequence += 1

    cdef object make_error(self, Py_ssize_t i):
        return ValueError(f"row {i} is too large: a D frame has less than 4 GiB")


cdef class Frames(Events):
    """Frames(events, buffers, version): D and J frames, copied with new sequence numbers.

    events: array of dtype EVENT. buffers: what its rows point into.
    version: of all frames; 0: each frame keeps its own, and a window has frames of one version.
    Raises TypeError for rows of another dtype. Raises ValueError for a row that is bad, of another
    kind, or outside its buffer.
    """
    cdef Block frames

    def __cinit__(self, events, buffers, int version):
        if events.dtype != _EVENT:
            raise TypeError("frames are copied from a table of lumberjack.events")
        cdef const uint8_t[::1] view = np.ascontiguousarray(events).view(np.uint8)
        self.owners = [as_byte_array(buffer) for buffer in buffers]
        self.count = len(events)
        self.frames = Block(self.count * <Py_ssize_t>sizeof(SourceFrame))
        cdef const uint64_t[::1] bases = np.array(
            [buffer.ctypes.data for buffer in self.owners], np.uint64)
        cdef const int64_t[::1] ends = np.array([len(buffer) for buffer in self.owners], np.int64)
        cdef SourceFrame* frame = <SourceFrame*>self.frames.at
        cdef uint8_t forced_version = <uint8_t>(c"0" + version) if version else 0
        cdef Py_ssize_t i
        cdef Py_ssize_t n = self.count
        cdef Py_ssize_t buffer_count = len(self.owners)
        cdef Event event
        cdef uint8_t fault = 0
        with nogil:
            for i in range(n):
                event = (<const Event*>&view[i * <Py_ssize_t>sizeof(Event)])[0]
                fault = event.head.fault
                # Rows may come from a user: a sum with `start` could overflow, a difference cannot.
                if (fault or event.head.kind not in (DATA, JSON) or event.version not in (1, 2)
                        or event.head.size < LONG_HEADER or event.head.buffer >= buffer_count
                        or event.head.start < 0
                        or event.head.start > ends[event.head.buffer] - <int64_t>event.head.size):
                    break
                frame[i].at = <const uint8_t*><uintptr_t>(
                    bases[event.head.buffer] + <uint64_t>event.head.start)
                frame[i].size = event.head.size
                frame[i].kind = event.head.kind
                frame[i].version = forced_version or <uint8_t>(c"0" + event.version)
            else:
                i = n
        if i < n and fault:
            names = {member.value: member.name for member in Fault}
            raise ValueError(
                f"row {i} is bad ({names.get(fault, fault)}): select rows with `fault == 0`")
        if i < n:
            raise ValueError(f"row {i} is not a D or J frame inside its buffer")

    cdef Py_ssize_t measure(self, Window* window) noexcept nogil:
        cdef const SourceFrame* frame = <const SourceFrame*>self.frames.at
        cdef Py_ssize_t i
        window.version = frame[window.first].version
        for i in range(window.first, window.end):
            if frame[i].version != window.version:
                window.end = i
                break
            window.size += frame[i].size
        return -1

    cdef void write(self, const Window* window, uint32_t sequence, uint8_t* to) noexcept nogil:
        cdef const SourceFrame* frames = <const SourceFrame*>self.frames.at
        cdef Py_ssize_t i
        cdef Py_ssize_t end = window.end
        cdef SourceFrame frame
        for i in range(window.first, end):
            frame = frames[i]
            copy_bytes(put_header(to, frame.version, frame.kind, sequence),
                       frame.at + SHORT_HEADER, frame.size - SHORT_HEADER)
            to += frame.size
            sequence += 1


cdef Py_ssize_t cut_windows(Events events, Py_ssize_t window_events, Rows* windows) noexcept nogil:
    # Add windows of at most `window_events` events until all events are in one.
    # Return the number of the event that cannot be written, or -1.
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t end
    cdef Py_ssize_t refused
    cdef Window* window
    while first < events.count:
        if windows.count == windows.capacity and not grow_rows(windows, 2 * windows.capacity):
            break
        window = <Window*>windows.at + windows.count
        end = events.count if events.count - first < window_events else first + window_events
        window[0] = Window(first, end, 0, 0)
        refused = events.measure(window)
        if refused >= 0:
            return refused
        first = window.end
        windows.count += 1
    return -1


cdef inline uint32_t choose_sequence(
        const Window* window, uint32_t first, bint restart) noexcept nogil:
    return first if restart else <uint32_t>(first + <uint64_t>window.first)


def write_windows(
        Events events not None, uint32_t window_events, uint32_t first, bint restart,
        compress=None):
    """Return a read-only memoryview: the events in windows of at most `window_events` events.

    first: sequence number of the first event; 0 follows 2**32 - 1.
    restart: numbers begin at `first` in each window; else they continue through all windows.
    compress: function that returns the zlib stream of a window's frames, or None.
    Raises ValueError for an event that cannot be written, and for a window whose zlib stream has
    2 GiB or more. Raises MemoryError.
    """
    cdef RowBlock windows = RowBlock(
        sizeof(Window), events.count // window_events + 1, <size_t>-1 // (2 * sizeof(Window)))
    cdef Py_ssize_t refused
    with nogil:
        refused = cut_windows(events, window_events, &windows.rows)
    if refused >= 0:
        raise events.make_error(refused)
    if windows.rows.out_of_memory:
        raise MemoryError(f"no memory for more than {len(windows)} windows")
    cdef Window* window = <Window*>windows.rows.at
    cdef size_t i
    cdef size_t n = windows.rows.count
    cdef size_t size
    cdef int64_t total = 0
    cdef int64_t largest = 0
    cdef uint32_t count
    cdef uint8_t* to
    cdef RowBlock out
    cdef Block frames           # uncompressed frames: of all windows, or of one before compression
    cdef const uint8_t[::1] payload
    for i in range(n):
        total += SHORT_HEADER + window[i].size
        largest = max(largest, window[i].size)
    if compress is None:
        frames = Block(total)
        to = <uint8_t*>frames.at
        with nogil:
            for i in range(n):
                count = <uint32_t>(window[i].end - window[i].first)
                to = put_header(to, window[i].version, WINDOW, count)
                events.write(&window[i], choose_sequence(&window[i], first, restart), to)
                to += window[i].size
        return memoryview(frames).toreadonly()
    out = RowBlock(1, total // 4, <size_t>-1 // 2)
    frames = Block(largest)
    for i in range(n):
        to = <uint8_t*>frames.at
        with nogil:
            events.write(&window[i], choose_sequence(&window[i], first, restart), to)
        payload = compress(memoryview(frames)[:window[i].size])
        size = <size_t>payload.shape[0]
        if size > LARGEST:
            raise ValueError(
                f"the window of event {window[i].first} is too large: "
                "a zlib stream has less than 2 GiB")
        size += 2 * SHORT_HEADER
        count = <uint32_t>(window[i].end - window[i].first)
        to = put_header(reserve_bytes(out, size), window[i].version, WINDOW, count)
        to = put_header(to, window[i].version, COMPRESSED, <uint32_t>payload.shape[0])
        memcpy(to, &payload[0], <size_t>payload.shape[0])
        out.rows.count += size
    return memoryview(out)
