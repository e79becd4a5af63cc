# cython: boundscheck=False, wraparound=False
"""Liftbridge: envelopes, the messages in them, and the records of replication and of the commit log.

    envelope    b9 0e 43 b4  version(1) = 0  header size(1)  flags(1)  type(1)  [ CRC-32C of the payload(4) ]  payload

    payload     of type 3: leader epoch(8) high watermark(8) records; of the others a Protocol Buffers message
    record      offset(8) timestamp(8) leader epoch(8) size(4) message
    message     CRC-32C of what follows(4) magic(1) = 1 attributes(1) key(4+) value(4+) count(2) { name(2+) value(4+) }*

All integers are big-endian; a size of -1 is null. An envelope has no length: it is the payload of a NATS message.

Source: Liftbridge documentation, "Envelope Protocol"; liftbridge-api, api.proto; of the server server/protocol
(envelope.go, internal.proto) and server/commitlog (message.go, message_set.go).
"""
import numpy as np

from libc.string cimport memcpy, memset
from wirescan.core cimport (
    Fault, Head, LIMIT, OK, Opening, Readable, Reader, Rows, TRUNCATED, Top, be64, int32_t, int64_t, open_all,
    open_frames, scan_frames, scan_spans, scan_top, uint8_t, uint32_t, uint64_t)
from wirescan.core.loop cimport block_for, lend, place
from wirescan.core.loop import ANY as _ANY, HEAD as _HEAD, addresses, flat, lie_inside
from wirescan.core.rows cimport RowBlock, grow_rows
from wirescan.liftbridge.envelope cimport (
    LIFT, PLAIN, intact_entry, read_entry, read_entry_checked, read_envelope, read_header)
from wirescan.liftbridge.proto cimport (
    FIELDS, FLAG, Field, HALF, INSIDE, LISTED, PLACE, QUARTER, WHOLE, WORD, find_field, read_fields,
    read_inside)

cdef Fault run_entries(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Entry), read_entry, intact_entry)

cdef Fault run_entries_checked(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Entry), read_entry_checked, intact_entry)

cdef Fault open_records(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Entry), read_entry, NULL)

cdef Fault open_records_checked(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Entry), read_entry_checked, NULL)

cdef Fault run_record_headers(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Header), read_header, NULL)


cdef Envelope _envelope
cdef Message _message
cdef Ack _ack
cdef Internal _internal
cdef Entry _entry
cdef Header _header
ENVELOPE = flat(np.asarray(<Envelope[:1]>&_envelope).dtype)
MESSAGE = flat(np.asarray(<Message[:1]>&_message).dtype)
ACK = flat(np.asarray(<Ack[:1]>&_ack).dtype)
INTERNAL = flat(np.asarray(<Internal[:1]>&_internal).dtype)
ENTRY = flat(np.asarray(<Entry[:1]>&_entry).dtype)
HEADER = flat(np.asarray(<Header[:1]>&_header).dtype)


# ---------------------------------------------------------------------------------- which field is which column

cdef enum:
    KINDS = 15
    REPLICATION_RESPONSE = 3        # the kind that is no Protocol Buffers message
    RESPONSE_HEADER = 16            # leader epoch(8) high watermark(8)
    PROPAGATED_REQUEST = 8
    PROPAGATED_RESPONSE = 9
    HEADERS = 9                     # the number of the field in a message

cdef Field NOTHING[FIELDS]
cdef Field MAP_ENTRY[FIELDS]
cdef Field OF_KIND[KINDS][FIELDS]
cdef Field OF_OPERATION[FIELDS][FIELDS]
cdef Field STREAM[FIELDS]
cdef Field ERROR[FIELDS]
cdef Field JOINED[FIELDS]


cdef void lay(Field* table, dtype, str columns):
    # Fields 1, 2, ... go to these columns, by the kind of each.
    cdef int number
    for number, name in enumerate(columns.split(), 1):
        how = PLACE if name + "_at" in dtype.names else {8: WORD, 4: HALF, 2: QUARTER, 1: FLAG}[dtype[name].itemsize]
        table[number] = Field(how, dtype.fields[name + "_at" if how == PLACE else name][1], NULL)

cdef void lay_inside(Field* table, int number, Field* inside, int how=INSIDE, int column=0):
    table[number] = Field(how, column, inside)


# api.proto: Message, Ack.
lay(OF_KIND[0], MESSAGE, "offset key value timestamp stream partition subject reply_subject")
lay_inside(OF_KIND[0], HEADERS, NOTHING, LISTED, MESSAGE.fields["headers_at"][1])
for _number, _name in (10, "ack_inbox"), (11, "correlation_id"):
    OF_KIND[0][_number] = Field(PLACE, MESSAGE.fields[_name + "_at"][1], NULL)
OF_KIND[0][12] = Field(HALF, MESSAGE.fields["ack_policy"][1], NULL)
lay(MAP_ENTRY, HEADER, "key value")
lay(OF_KIND[1], ACK, "stream partition_subject msg_subject offset ack_inbox correlation_id ack_policy "
                     "reception_timestamp commit_timestamp ack_error")
# internal.proto: the requests and responses, by their kind; the operations, by their field in PropagatedRequest.
for _number, _columns in {
        2: "id offset leader_epoch", 4: "id host", 5: "error", 6: "leader_epoch", 7: "end_offset", 8: "op", 9: "op",
        10: "id", 11: "id host port", 12: "stream partition", 13: "exists is_leader", 14: "stream partition"}.items():
    lay(OF_KIND[<int>_number], INTERNAL, _columns)
for _number, _columns in {
        2: "", 3: "stream partition replica leader leader_epoch", 4: "stream partition replica leader leader_epoch",
        5: "stream partition replica leader leader_epoch", 6: "stream", 7: "stream", 8: "stream", 9: "stream",
        10: "group consumer", 11: "group consumer", 12: "group consumer coordinator epoch"}.items():
    lay(OF_OPERATION[<int>_number], INTERNAL, _columns)
    lay_inside(OF_KIND[PROPAGATED_REQUEST], _number, OF_OPERATION[<int>_number], WHOLE,
               INTERNAL.fields["operation_at"][1])
lay(STREAM, INTERNAL, "stream")
lay_inside(OF_OPERATION[2], 1, STREAM)
lay(ERROR, INTERNAL, "error_code error")
lay_inside(OF_KIND[PROPAGATED_RESPONSE], 2, ERROR)
lay(JOINED, INTERNAL, "coordinator epoch")
lay_inside(OF_KIND[PROPAGATED_RESPONSE], 11, JOINED)


# ---------------------------------------------------------------------------------- envelopes, and what is in them

def scan_values(buffers, spans, check, bare, limits):
    """(rows of dtype ENVELOPE, bad, fault): one for each span, an array of dtype HEAD; where that has a fault, a bad
    one. bare: the values have no envelope, and are of this kind; -1: they may have one. LIMIT where there are more
    than limits.rows.

    Raises ValueError where a span lies outside its buffer, or has 2 GiB or more, MemoryError."""
    cdef Py_ssize_t i, n = len(spans)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Head* span
    cdef Envelope* row
    cdef const uint8_t* p
    cdef bint verify = check
    cdef int kind = bare
    cdef Fault fault = OK
    if spans.dtype != _HEAD or not lie_inside(spans, buffers) or (spans["size"] > 0x7fffffff).any():
        raise ValueError("a value lies outside its buffer, or has 2 GiB or more")
    cdef RowBlock block = block_for(ENVELOPE, n, limits, None)
    cdef Rows* rows = &block.rows
    if n:
        view, readable = np.ascontiguousarray(spans).view(np.uint8), addresses(buffers)
        with nogil:
            for i in range(n):
                if rows.count == rows.room:
                    fault = LIMIT
                    break
                span = <const Head*>&view[i * sizeof(Head)]
                row = <Envelope*>rows.at + i
                memset(row, 0, sizeof(Envelope))
                p = (<const Readable*>&readable[span.buffer, 0]).at + span.start
                row.head.kind = PLAIN
                if span.fault:
                    row.head.fault = span.fault
                elif kind < 0:
                    row.head.fault = <uint8_t>read_envelope(p, span.size, row, verify)
                else:
                    row.head.kind = <uint8_t>kind
                row.head.start, row.head.size = span.start, span.size
                row.head.parent, row.head.buffer = span.parent, span.buffer
                rows.bad += row.head.fault != OK
                rows.count += 1
    return lend(block, ENVELOPE, None, fault), rows.bad, int(fault)


cdef inline bint holds(bint message, uint8_t kind, int first, int last) noexcept nogil:
    return first <= kind <= last or (message and kind >= LIFT)


cdef inline Fault read_payload(const uint8_t* p, uint32_t size, char* row, uint8_t kind,
                              bint message) noexcept nogil:
    # The row comes blank.
    cdef Reader r = Reader(p, p + size)
    cdef Internal* internal
    if message:
        if kind == PLAIN:
            (<Message*>row).value_at, (<Message*>row).value_size = 0, <int32_t>size
            return OK
        return read_fields(p, &r, row, OF_KIND[0])
    if kind == REPLICATION_RESPONSE:
        if size < RESPONSE_HEADER:
            return TRUNCATED
        internal = <Internal*>row
        internal.leader_epoch, internal.high_watermark = be64(p), <int64_t>be64(p + 8)
        internal.head.body = internal.entries_at = RESPONSE_HEADER
        internal.entries_size = <int32_t>(size - RESPONSE_HEADER)
        return OK
    if kind == PROPAGATED_REQUEST or kind == PROPAGATED_RESPONSE:
        (<Internal*>row).op = 0
    return read_inside(p, &r, row, OF_KIND[kind])


cdef inline size_t read_payloads(const char* view, Py_ssize_t n, const uint64_t[:, ::1] readable, Rows* rows,
                                 size_t stride, const char* blank, bint message, int first, int last) noexcept nogil:
    # A row for each envelope of those kinds, as long as there is room; how many envelopes were looked at.
    cdef const Head* outer
    cdef Head* head
    cdef char* row
    cdef const uint8_t* p
    cdef uint32_t body
    cdef uint8_t fault
    cdef Py_ssize_t i
    for i in range(n):
        outer = <const Head*>(view + i * sizeof(Envelope))
        if not holds(message, outer.kind, first, last):
            continue
        if rows.count == rows.room:
            return i
        row = rows.at + rows.count * stride
        head = <Head*>row
        body = min(outer.body, outer.size)
        p = (<const Readable*>&readable[outer.buffer, 0]).at + outer.start + body
        memcpy(row, blank, stride)
        fault = outer.fault
        if not fault:
            fault = <uint8_t>read_payload(p, outer.size - body, row, outer.kind, message)
        if fault:                           # a bad row tells nothing but its fault
            memset(row, 0, stride)
            rows.bad += 1
        head.start, head.size = outer.start + body, outer.size - body
        head.parent, head.buffer, head.kind, head.fault = <int32_t>i, outer.buffer, outer.kind, fault
        rows.count += 1
    return n


def open_payloads(envelopes, buffers, dtype, first, last, limits):
    """(rows, bad, fault): a row of dtype MESSAGE, ACK or INTERNAL for each row of dtype ENVELOPE whose kind is from
    `first` to `last`; MESSAGE has those without an envelope too. LIMIT where there are more than limits.rows.

    Raises ValueError where a row points outside its buffer, MemoryError."""
    cdef Py_ssize_t i, n = len(envelopes), count = 0
    cdef size_t seen = n
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef int lowest = first, highest = last
    cdef bint message = dtype == MESSAGE
    if envelopes.dtype != ENVELOPE or not lie_inside(envelopes, buffers) or (envelopes["size"] > 0x7fffffff).any():
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
        view, readable = np.ascontiguousarray(envelopes).view(np.uint8), addresses(buffers)
        with nogil:
            for i in range(n):
                count += holds(message, (<const Head*>&view[i * sizeof(Envelope)]).kind, lowest, highest)
    block = block_for(dtype, count, limits, None)
    rows = &block.rows
    if n:
        with nogil:
            if message:
                seen = read_payloads(<const char*>&view[0], n, readable, rows, sizeof(Message),
                                     <const char*>&blank[0], True, 0, 0)
            else:
                seen = read_payloads(<const char*>&view[0], n, readable, rows, rows.stride,
                                     <const char*>&blank[0], False, lowest, highest)
    fault = OK if seen == <size_t>n else LIMIT
    return lend(block, dtype, None, fault), rows.bad, int(fault)


def open_headers(messages, buffers, limits):
    """(rows of dtype HEADER, bad, fault): the headers in rows of dtype MESSAGE; one bad row for each that is bad. LIMIT
    where there are more than limits.rows.

    Raises ValueError where a row points outside its buffer, MemoryError."""
    cdef Py_ssize_t i, n = len(messages)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Message* message
    cdef const uint8_t* base
    cdef const uint8_t* field
    cdef Reader r, inside
    cdef Header* row
    cdef uint8_t fault
    cdef bint room = True
    if messages.dtype != MESSAGE or not lie_inside(messages, buffers) or (
            messages["headers_at"] > messages["size"]).any():
        raise ValueError("a row points outside its buffer")
    cdef RowBlock block = block_for(
        HEADER, int(np.minimum(messages["header_count"], messages["size"] // 2).sum(dtype=np.int64)) + n, limits, None)
    cdef Rows* rows = &block.rows
    if n:
        view, readable = np.ascontiguousarray(messages).view(np.uint8), addresses(buffers)
        with nogil:
            for i in range(n):
                message = <const Message*>&view[i * sizeof(Message)]
                fault = message.head.fault
                if not fault and message.header_count == 0:
                    continue
                base = (<const Readable*>&readable[message.head.buffer, 0]).at
                field = base + message.head.start
                r = Reader(field + message.headers_at, field + message.head.size)
                inside = r
                while fault or find_field(&r, HEADERS, &field, &inside):
                    if rows.count == rows.room and (rows.count >= rows.most
                                                    or not grow_rows(rows, rows.room + (rows.room >> 1) + 64)):
                        room = False
                        break
                    row = <Header*>rows.at + rows.count
                    memset(row, 0, sizeof(Header))
                    if not fault:
                        row.key_size = row.value_size = -1
                        row.head.body = <uint32_t>(inside.at - field)
                        fault = <uint8_t>read_fields(field, &inside, <char*>row, MAP_ENTRY)
                    else:
                        r.at = r.end
                    if fault:
                        memset(row, 0, sizeof(Header))
                    place(&row.head, base, field, r.at, <int32_t>i, message.head.buffer, fault)
                    rows.count += 1
                    rows.bad += fault != 0
                    fault = OK
                if not room:
                    break
    return lend(block, HEADER, None, OK if room else LIMIT), rows.bad, int(OK if room else LIMIT)


# ---------------------------------------------------------------------------------- records

def scan_entries(buffer, check, resync, limits, into=None, more=False):
    """(rows of dtype ENTRY, bad, fault, offset): see `core.loop.scan_frames`."""
    return scan_frames(buffer, ENTRY, run_entries_checked if check else run_entries, resync, more, limits, into)


def scan_entry_sets(buffers, spans, check, resync, limits):
    """(rows, bad, faults, offsets): the same for many spans of buffers: see `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, ENTRY, run_entries_checked if check else run_entries, resync, limits)


def open_entries(envelopes, buffers, spans, check, limits):
    """(rows of dtype ENTRY, bad, fault) of the spans of rows of dtype ENVELOPE: see `core.loop.open_frames`."""
    return open_frames(envelopes, buffers, spans, np.full(len(spans), _ANY, np.int32), ENTRY,
                       open_records_checked if check else open_records, NULL, NULL, limits)


def open_entry_headers(entries, buffers, spans, counts, limits):
    """(rows of dtype HEADER, bad, fault) of the spans of rows of dtype ENTRY: see `core.loop.open_frames`."""
    return open_frames(entries, buffers, spans, counts, HEADER, run_record_headers, NULL, NULL, limits)
