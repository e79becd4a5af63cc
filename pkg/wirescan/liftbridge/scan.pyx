# cython: boundscheck=False, wraparound=False
"""Scans Liftbridge envelopes, the messages in them, and records of replication and the commit log.

`formats.py` calls these functions. The wire format:

    envelope    b9 0e 43 b4  version(1) = 0  header size(1)  flags(1)  type(1)
                [ CRC-32C of the payload(4) ]  payload

    payload     type 3: leader epoch(8) high watermark(8) records
                all other types: a Protocol Buffers message
    record      offset(8) timestamp(8) leader epoch(8) size(4) message
    message     CRC-32C of what follows(4) magic(1) = 1 attributes(1) key(4+) value(4+)
                count(2) { name(2+) value(4+) }*

All integers are big-endian. A size of -1 is null. An envelope has no length: it is the whole
payload of a NATS message.

Source: Liftbridge documentation, "Envelope Protocol"; liftbridge-api, api.proto; in the server,
server/protocol (envelope.go, internal.proto) and server/commitlog (message.go, message_set.go).
"""
import numpy as np

from libc.string cimport memcpy, memset
from wirescan.core cimport (
    BAD_LENGTH, Fault, Head, LIMIT, NestedScan, OK, Parents, Readable, Reader, Rows, ScanState,
    TRUNCATED, add_each, be64, begin_row, clear_row, int32_t, int64_t, open_frames, open_rows,
    place, scan_buffer, scan_children, scan_frames, scan_spans, uint8_t, uint32_t, uint64_t)
from wirescan.core.loop cimport allocate_rows, count_bytes, rows_to_array
from wirescan.core.loop import ANY as _ANY, HEAD as _HEAD, addresses, flatten, lie_inside
from wirescan.core.rows cimport RowBlock
from wirescan.liftbridge.envelope cimport (
    LIFT, PLAIN, probe_entry, read_entry, read_entry_checked, read_envelope, read_header)
from wirescan.liftbridge.proto cimport (
    BOOL, Field, INT16, INT32, INT64, MAP_ENTRIES, PLACE, SUBMESSAGE, SUBMESSAGE_PLACE, TABLE_SIZE,
    find_field, read_fields, read_inside)
from wirescan.liftbridge.rows cimport Ack, Entry, Envelope, Header, Internal, Message

cdef Fault run_entries(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Entry), read_entry, probe_entry)

cdef Fault run_entries_checked(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Entry), read_entry_checked, probe_entry)

cdef Fault open_records(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Entry), read_entry, NULL)

cdef Fault open_records_checked(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Entry), read_entry_checked, NULL)

cdef Fault run_record_headers(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Header), read_header, NULL)


cdef Envelope _envelope
cdef Message _message
cdef Ack _ack
cdef Internal _internal
cdef Entry _entry
cdef Header _header
ENVELOPE = flatten(np.asarray(<Envelope[:1]>&_envelope).dtype)
MESSAGE = flatten(np.asarray(<Message[:1]>&_message).dtype)
ACK = flatten(np.asarray(<Ack[:1]>&_ack).dtype)
INTERNAL = flatten(np.asarray(<Internal[:1]>&_internal).dtype)
ENTRY = flatten(np.asarray(<Entry[:1]>&_entry).dtype)
HEADER = flatten(np.asarray(<Header[:1]>&_header).dtype)


# ------------------------------------------------------------------ tables: fields to columns

cdef enum:
    KIND_COUNT = 15
    LARGEST_VALUE = 0x7fffffff      # bytes in the payload of a NATS message
    REPLICATION_RESPONSE = 3        # the only kind that is not a Protocol Buffers message
    RESPONSE_HEADER = 16            # leader epoch(8) high watermark(8)
    PROPAGATED_REQUEST = 8
    PROPAGATED_RESPONSE = 9
    HEADERS = 9                     # the field number of the headers in a Message

cdef Field NO_FIELDS[TABLE_SIZE]
cdef Field MAP_ENTRY[TABLE_SIZE]
cdef Field FIELDS_OF_KIND[KIND_COUNT][TABLE_SIZE]
cdef Field FIELDS_OF_OPERATION[TABLE_SIZE][TABLE_SIZE]
cdef Field STREAM[TABLE_SIZE]
cdef Field ERROR[TABLE_SIZE]
cdef Field JOIN_RESPONSE[TABLE_SIZE]


cdef void map_fields(Field* table, dtype, str columns):
    # Store fields 1, 2, ... in these columns. The columns' types say how.
    cdef int number
    for number, name in enumerate(columns.split(), 1):
        if name + "_at" in dtype.names:
            how = PLACE
            column = name + "_at"
        else:
            how = {8: INT64, 4: INT32, 2: INT16, 1: BOOL}[dtype[name].itemsize]
            column = name
        table[number] = Field(how, dtype.fields[column][1], NULL)

cdef void map_submessage(Field* table, int number, Field* inside, int how=SUBMESSAGE, int column=0):
    table[number] = Field(how, column, inside)


# api.proto: Message and Ack.
map_fields(FIELDS_OF_KIND[0], MESSAGE,
           "offset key value timestamp stream partition subject reply_subject")
map_submessage(FIELDS_OF_KIND[0], HEADERS, NO_FIELDS, MAP_ENTRIES, MESSAGE.fields["headers_at"][1])
for _number, _name in (10, "ack_inbox"), (11, "correlation_id"):
    FIELDS_OF_KIND[0][_number] = Field(PLACE, MESSAGE.fields[_name + "_at"][1], NULL)
FIELDS_OF_KIND[0][12] = Field(INT32, MESSAGE.fields["ack_policy"][1], NULL)
map_fields(MAP_ENTRY, HEADER, "key value")
map_fields(FIELDS_OF_KIND[1], ACK,
           "stream partition_subject msg_subject offset ack_inbox correlation_id ack_policy "
           "reception_timestamp commit_timestamp ack_error")
# internal.proto: requests and responses, by envelope type.
for _number, _columns in {
        2: "id offset leader_epoch",
        4: "id host",
        5: "error",
        6: "leader_epoch",
        7: "end_offset",
        8: "op",
        9: "op",
        10: "id",
        11: "id host port",
        12: "stream partition",
        13: "exists is_leader",
        14: "stream partition"}.items():
    map_fields(FIELDS_OF_KIND[<int>_number], INTERNAL, _columns)
# internal.proto: operations, by field number in PropagatedRequest.
for _number, _columns in {
        2: "",
        3: "stream partition replica leader leader_epoch",
        4: "stream partition replica leader leader_epoch",
        5: "stream partition replica leader leader_epoch",
        6: "stream",
        7: "stream",
        8: "stream",
        9: "stream",
        10: "group consumer",
        11: "group consumer",
        12: "group consumer coordinator epoch"}.items():
    map_fields(FIELDS_OF_OPERATION[<int>_number], INTERNAL, _columns)
    map_submessage(FIELDS_OF_KIND[PROPAGATED_REQUEST], _number, FIELDS_OF_OPERATION[<int>_number],
                   SUBMESSAGE_PLACE, INTERNAL.fields["operation_at"][1])
map_fields(STREAM, INTERNAL, "stream")
map_submessage(FIELDS_OF_OPERATION[2], 1, STREAM)
map_fields(ERROR, INTERNAL, "error_code error")
map_submessage(FIELDS_OF_KIND[PROPAGATED_RESPONSE], 2, ERROR)
map_fields(JOIN_RESPONSE, INTERNAL, "coordinator epoch")
map_submessage(FIELDS_OF_KIND[PROPAGATED_RESPONSE], 11, JOIN_RESPONSE)


# ------------------------------------------------------------------ envelopes and their payloads

cdef bint are_values(const Head* span, Py_ssize_t count,
                     const uint64_t[:, ::1] readable) noexcept nogil:
    # Return whether all spans are inside their buffers and have less than 2 GiB.
    cdef bint good = True
    cdef Py_ssize_t i
    cdef int64_t size
    for i in range(count):
        if span[i].buffer >= readable.shape[0]:
            return False
        size = <int64_t>(readable[span[i].buffer, 1] - readable[span[i].buffer, 0])
        good &= (0 <= span[i].start <= size - <int64_t>span[i].size
                 and span[i].size <= LARGEST_VALUE)
    return good


cdef inline void add_envelope(Rows* rows, const uint8_t* buffer, const Head* span, int kind,
                              bint verify) noexcept nogil:
    # Add the row of one value. There is memory for it.
    cdef Envelope* row = <Envelope*>rows.at + rows.count
    clear_row(row, sizeof(Envelope))
    row.head.kind = PLAIN
    if span.fault:
        row.head.fault = span.fault
    elif kind < 0:
        row.head.fault = <uint8_t>read_envelope(buffer + span.start, span.size, row, verify)
    else:
        row.head.kind = <uint8_t>kind
    row.head.start = span.start
    row.head.size = span.size
    row.head.parent = span.parent
    row.head.buffer = span.buffer
    rows.bad += row.head.fault != OK
    rows.count += 1


def scan_value(bytes value not None, *, check, bare, limits):
    """Return (rows of dtype ENVELOPE, bad) of one value: as `scan_values`, without spans.

    value: all bytes of the buffer, less than 2 GiB.
    """
    cdef const uint8_t* bytes_at = value
    cdef Head span = Head(0, <uint32_t>len(value), 0, -1, 0, 0, 0)
    cdef RowBlock block = allocate_rows(ENVELOPE, 1, limits, None, span.size)
    cdef bint verify = check
    cdef int kind = bare
    with nogil:
        add_envelope(&block.rows, bytes_at, &span, kind, verify)
    return rows_to_array(block, ENVELOPE, None, OK), block.rows.bad


def scan_values(buffers, spans, *, check, bare, limits):
    """Return (rows of dtype ENVELOPE, bad, fault): one row for each value.

    spans: array of dtype HEAD, one span for each value. A span with a fault becomes a bad row.
    check: verify CRC-32C. bare: the values have no envelope and are of this kind; -1: a value may
    have an envelope. fault: LIMIT if there are more than limits.rows values.

    Raises ValueError if a span is outside its buffer or has 2 GiB or more, and MemoryError.
    """
    cdef Py_ssize_t i, n = len(spans)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Head* span
    cdef bint verify = check
    cdef int kind = bare
    cdef Fault fault = OK
    if spans.dtype != _HEAD:
        raise ValueError("spans are an array of dtype HEAD")
    cdef RowBlock block = allocate_rows(ENVELOPE, n, limits, None, count_bytes(buffers))
    cdef Rows* rows = &block.rows
    if n:
        view = np.ascontiguousarray(spans).view(np.uint8)
        readable = addresses(buffers)
        if not are_values(<const Head*>&view[0], n, readable):
            raise ValueError("a value is outside its buffer, or has 2 GiB or more")
        with nogil:
            for i in range(n):
                if rows.count == rows.capacity:
                    fault = LIMIT
                    break
                span = <const Head*>&view[i * sizeof(Head)]
                add_envelope(rows, (<const Readable*>&readable[span.buffer, 0]).at, span, kind,
                             verify)
    return rows_to_array(block, ENVELOPE, None, fault), rows.bad, int(fault)


cdef inline bint is_selected(bint message, const Head* outer, int first, int last) noexcept nogil:
    # Messages may also have no envelope: the kinds LIFT and PLAIN. Bad bytes without an envelope
    # have no known kind, so they count for every kind.
    return (first <= outer.kind <= last or (message and outer.kind >= LIFT)
            or (outer.fault != OK and outer.kind == PLAIN))


cdef inline Fault read_payload(const uint8_t* p, uint32_t size, char* row, uint8_t kind,
                               bint message) noexcept nogil:
    # The caller has filled the row with the values of absent fields.
    cdef Reader r = Reader(p, p + size)
    cdef Internal* internal
    if message:
        if kind == PLAIN:
            (<Message*>row).value_at = 0
            (<Message*>row).value_size = <int32_t>size
            return OK
        return read_fields(p, &r, row, FIELDS_OF_KIND[0])
    if kind == REPLICATION_RESPONSE:
        if size < RESPONSE_HEADER:
            return TRUNCATED
        internal = <Internal*>row
        internal.leader_epoch = be64(p)
        internal.high_watermark = <int64_t>be64(p + 8)
        internal.head.body = internal.entries_at = RESPONSE_HEADER
        internal.entries_size = <int32_t>(size - RESPONSE_HEADER)
        return OK
    if kind == PROPAGATED_REQUEST or kind == PROPAGATED_RESPONSE:
        (<Internal*>row).op = 0
    return read_inside(p, &r, row, FIELDS_OF_KIND[kind])


cdef inline size_t read_payloads(const char* view, Py_ssize_t n, const uint64_t[:, ::1] readable,
                                 Rows* rows, size_t stride, const char* blank, bint message,
                                 int first, int last) noexcept nogil:
    # Fill one row for each envelope of the wanted kinds, until the row array is full.
    # Return the number of envelopes that were processed.
    cdef const Head* outer
    cdef Head* head
    cdef char* row
    cdef const uint8_t* p
    cdef uint32_t body
    cdef uint8_t fault
    cdef Py_ssize_t i
    for i in range(n):
        outer = <const Head*>(view + i * sizeof(Envelope))
        if not is_selected(message, outer, first, last):
            continue
        if rows.count == rows.capacity:
            return i
        row = rows.at + rows.count * stride
        head = <Head*>row
        body = min(outer.body, outer.size)
        p = (<const Readable*>&readable[outer.buffer, 0]).at + outer.start + body
        memcpy(row, blank, stride)
        fault = outer.fault
        if not fault:
            fault = <uint8_t>read_payload(p, outer.size - body, row, outer.kind, message)
        if fault:                           # a bad row holds nothing but Head
            memset(row, 0, stride)
            rows.bad += 1
        head.start = outer.start + body
        head.size = outer.size - body
        head.parent = <int32_t>i
        head.buffer = outer.buffer
        head.kind = outer.kind
        head.fault = fault
        rows.count += 1
    return n


def open_payloads(envelopes, buffers, dtype, first, last, limits):
    """Return (rows, bad, fault): the payloads of envelopes, as rows of one dtype.

    envelopes: rows of dtype ENVELOPE. dtype: MESSAGE, ACK or INTERNAL. first, last: the kinds that
    are read. With MESSAGE, values without an envelope are read too. fault: LIMIT if the limits
    allow fewer rows.

    Raises ValueError if a row points outside its buffer, and MemoryError.
    """
    cdef Py_ssize_t i, n = len(envelopes), count = 0
    cdef size_t done = n
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef int lowest = first, highest = last
    cdef bint message = dtype == MESSAGE
    if (envelopes.dtype != ENVELOPE or not lie_inside(envelopes, buffers)
            or (envelopes["size"] > LARGEST_VALUE).any()):
        raise ValueError("a row points outside its buffer")
    empty = np.zeros(1, dtype)
    for name in dtype.names:
        if name.endswith("_size"):
            empty[name] = -1
    if dtype == INTERNAL:
        empty["op"] = -1
    cdef const uint8_t[::1] blank = empty.view(np.uint8)
    cdef RowBlock block
    cdef Rows* rows
    if n:
        view = np.ascontiguousarray(envelopes).view(np.uint8)
        readable = addresses(buffers)
        with nogil:
            for i in range(n):
                count += is_selected(
                    message, <const Head*>&view[i * sizeof(Envelope)], lowest, highest)
    block = allocate_rows(dtype, count, limits, None, count_bytes(buffers))
    rows = &block.rows
    if n:
        with nogil:
            if message:
                done = read_payloads(<const char*>&view[0], n, readable, rows, sizeof(Message),
                                     <const char*>&blank[0], True, 0, 0)
            else:
                done = read_payloads(<const char*>&view[0], n, readable, rows, rows.stride,
                                     <const char*>&blank[0], False, lowest, highest)
    fault = OK if done == <size_t>n else LIMIT
    return rows_to_array(block, dtype, None, fault), rows.bad, int(fault)


cdef inline Fault add_headers(Rows* rows, const void* outer, const uint8_t* start,
                              int32_t parent, const void* context) noexcept nogil:
    # Adds a row for each header of a message, and one row for a bad message. This is an AddRows.
    cdef const Message* message = <const Message*>outer
    cdef const uint8_t* field = start
    cdef uint8_t fault = message.head.fault
    cdef Reader r, inside
    cdef Header* row
    if message.headers_at > message.head.size:
        return BAD_LENGTH
    if not fault and message.header_count == 0:
        return OK
    r = Reader(start + message.headers_at, start + message.head.size)
    inside = r
    while fault or find_field(&r, HEADERS, &field, &inside):
        row = <Header*>begin_row(rows, sizeof(Header))
        if row is NULL:
            return LIMIT
        if not fault:
            row.key_size = row.value_size = -1
            row.head.body = <uint32_t>(inside.at - field)
            fault = <uint8_t>read_fields(field, &inside, <char*>row, MAP_ENTRY)
        else:
            r.at = r.end
        if fault:
            clear_row(row, sizeof(Header))
        place(&row.head, start - message.head.start, field, r.at, parent, message.head.buffer,
              fault)
        rows.count += 1
        rows.bad += fault != 0
        fault = OK
    return OK


cdef Fault run_headers(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_headers)


def open_headers(messages, buffers, limits):
    """Return (rows of dtype HEADER, bad, fault): the headers in rows of dtype MESSAGE.

    A bad message becomes one bad row. fault: LIMIT if the limits allow fewer rows.

    Raises ValueError if a row points outside its buffer, and MemoryError.
    """
    if messages.dtype != MESSAGE:
        raise ValueError("open_headers takes rows of dtype MESSAGE")
    # A header has at least two bytes, so a forged count cannot claim more rows than that.
    counts = np.minimum(messages["header_count"], messages["size"] // 2)
    claimed = int(counts.sum(dtype=np.int64))
    return open_rows(messages, buffers, HEADER, claimed + len(messages), run_headers, NULL, limits,
                     counts)


# ------------------------------------------------------------------ records

def scan_entries(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype ENTRY, bad, fault, position) of one buffer.

    check: verify CRC-32C. See `core.loop.scan_frames` for the other arguments.
    """
    return scan_frames(buffer, ENTRY, run_entries_checked if check else run_entries, resync, more,
                       limits, into, resume)


def scan_entry_sets(buffers, spans, *, check, resync, limits):
    """Return (rows of dtype ENTRY, bad, faults, positions) of many spans of buffers.

    check: verify CRC-32C. See `core.loop.scan_spans` for the other arguments.
    """
    return scan_spans(buffers, spans, ENTRY, run_entries_checked if check else run_entries, resync,
                      limits)


def open_entries(envelopes, buffers, spans, check, limits):
    """Return (rows of dtype ENTRY, bad, fault) of spans in rows of dtype ENVELOPE.

    check: verify CRC-32C. See `core.loop.open_frames` for the other arguments.
    """
    return open_frames(envelopes, buffers, spans, np.full(len(spans), _ANY, np.int32), ENTRY,
                       open_records_checked if check else open_records, NULL, NULL, limits)


def open_entry_headers(entries, buffers, spans, counts, limits):
    """Return (rows of dtype HEADER, bad, fault) of spans in rows of dtype ENTRY.

    See `core.loop.open_frames`.
    """
    return open_frames(entries, buffers, spans, counts, HEADER, run_record_headers, NULL, NULL,
                       limits)
