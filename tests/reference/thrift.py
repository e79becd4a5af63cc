"""Thrift frames of every kind, and their infos, decoded one field at a time.

    header          LENGTH(4) | 0x0FFF flags(2) seq(4) words(2) | header: 4 * words bytes | payload | mac
                    header: varint protocol | varint n | n transforms: varint id, of HMAC size(1) | infos | padding
                    infos: { varint 1 or 2 | varint pairs | { varint size, key, varint size, value } }
    big header      "BIGF" LENGTH(8) | 0x0FFF ...
    double header   LENGTH(4) | LENGTH - 4 (4) | 0x0FFF ...
    framed          LENGTH(4) | message                     unframed    message             HTTP    head | body

A row is a dict with every column of the format. A bad row has a place and a kind, and all else is 0; but where only a
transform is unknown it has everything.
"""
from reference.thrift_payload import COMPACT, HEAD, Cursor, Cut, extent, string
from reference.window import Bad

OK, TRUNCATED, BAD_COUNT, BAD_CODEC, BAD_FIELD, BAD_HEADER = 0, 1, 5, 7, 16, 17
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161
(HEADER, BIG_HEADER, DOUBLE_HEADER, FRAMED_BINARY, FRAMED_COMPACT, UNFRAMED_BINARY, UNFRAMED_COMPACT, HTTP,
 HTTP_CHUNKED, TTHEADER) = range(1, 11)

BAD = HEAD | dict(seq=0, info_count=0, infos_at=0, infos_size=0, payload_at=0, payload_size=0, transform_0=0,
                  transform_1=0, transform_2=0, transform_3=0, flags=0, header_words=0, protocol_id=0,
                  transform_count=0, padding=0, mac_size=0)
FRAME = BAD | dict(infos_size=-1, payload_size=-1)
INFO = HEAD | dict(key_at=0, key_size=0, value_at=0, value_size=0)

LARGEST_LENGTH, LONGEST = 0x3FFFFFFF, 100 << 20             # of a frame: the format's limit, the package's
LONGEST_HEAD, LONGEST_LINE = 65536, 4096                    # of HTTP; a trailer may be as long as a head
METHODS = b"POST", b"GET ", b"HEAD", b"PUT ", b"HTTP", b"CONN", b"DELE", b"OPTI", b"PATC", b"TRAC"
HMAC, UNDONE = 2, {0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13}              # transforms; those that can be undone


def big(data, at, size):
    return int.from_bytes(data[at:at + size], "big")


# ------------------------------------------------------------------------------------------- a buffer of frames

def frames(data, resync=True, versions=True):
    """(rows of thrift.frames, stop fault, stop offset). resync: after a fault go on at the next intact frame. versions:
    binary messages have to tell theirs."""
    rows, at = [], 0
    while at < len(data):
        try:
            row = frame(data, at, versions)
            end = at + row["size"]
            doubtful = row["fault"] not in (OK, BAD_CODEC) and looks(data, end) is False and not unsized(data, end)
            if doubtful and resync:
                row["size"] = (next_intact(data, at + 1) or end) - at
        except Bad as bad:
            end = next_intact(data, at + 1)
            if bad.fault == SHORT and end is None:
                return rows, SHORT, at
            fault = BAD_LENGTH if bad.fault == SHORT else bad.fault
            if not resync:
                return rows, fault, at
            row = BAD | dict(start=at, size=(end or len(data)) - at, fault=fault)
        rows.append(row)
        at += row["size"]
    return rows, OK, at


def frame(data, at, versions=True):
    """The row of the frame at `at`. Raises Bad: SHORT where the bytes end in it, or a fault that leaves its end open.
    """
    try:
        row = any_frame(data, at, versions)
    except Cut as cut:
        raise Bad(SHORT if max(len(data) - at, cut.args[0]) <= LONGEST else BAD_LENGTH) from None
    if row["size"] > LONGEST:
        raise Bad(BAD_LENGTH)
    return row | dict(start=at)


def any_frame(data, at, versions):
    left = len(data) - at

    def need(size):
        if left < size:
            raise Cut(size)

    need(4)
    length = big(data, at, 4)
    if length >> 16 == 0x8001:
        return unframed(data, at, UNFRAMED_BINARY)
    if is_compact(length):
        return unframed(data, at, UNFRAMED_COMPACT)
    if data[at:at + 4] == b"BIGF":
        need(14)
        if big(data, at + 12, 2) != 0x0FFF:
            raise Bad(NOT_A_FRAME)
        return header_frame(data, at, BIG_HEADER, 12 + big(data, at + 4, 8), 12)
    if data[at:at + 4] in METHODS:
        return http(data, at)
    if length > LARGEST_LENGTH:
        raise Bad(NOT_A_FRAME)
    if length < 4 and versions:
        raise Bad(BAD_LENGTH)
    if length >= 4:
        need(8)
        word = big(data, at + 4, 4)
        if word >> 16 == 0x8001:
            return framed(data, at, FRAMED_BINARY)
        if is_compact(word):
            return framed(data, at, FRAMED_COMPACT)
        if word >> 16 == 0x0FFF:
            return header_frame(data, at, HEADER, 4 + length, 4)
        if word == length - 4:
            need(10)
            if big(data, at + 8, 2) == 0x0FFF:
                return header_frame(data, at, DOUBLE_HEADER, 4 + length, 8)
        if word >> 16 == 0x1000:
            return framed(data, at, TTHEADER)
    if not versions:
        return without_version(data, at, need)
    raise Bad(NOT_A_FRAME)


def whole(data, at, size):
    if size - 4 > 0x7FFFFFFF:
        raise Bad(BAD_LENGTH)
    if size > len(data) - at:
        raise Cut(size)
    return size


def framed(data, at, kind):
    size = whole(data, at, 4 + big(data, at, 4))
    row = FRAME | dict(size=size, body=4, kind=kind)
    if kind == TTHEADER:
        return row
    return row | dict(payload_at=4, payload_size=size - 4, protocol_id=COMPACT if kind == FRAMED_COMPACT else 0)


def unframed(data, at, kind):
    try:
        size = extent(data, at, kind == UNFRAMED_COMPACT)
    except Bad:
        raise Bad(BAD_LENGTH) from None
    return FRAME | dict(size=size, kind=kind, payload_size=size, protocol_id=COMPACT if kind == UNFRAMED_COMPACT else 0)


def without_version(data, at, need):
    """A binary message that does not tell its version, in a frame or not: behind its name there is a type."""
    need(8)
    length, size = big(data, at, 4), big(data, at + 4, 4)
    if size <= length - 10 and length <= LARGEST_LENGTH:
        if len(data) - at < 9 + size:
            raise Cut(4 + length)
        if data[at + 8 + size] in (1, 2, 3, 4):
            return framed(data, at, FRAMED_BINARY)
    if length <= 32767:
        need(5 + length)
        if data[at + 4 + length] in (1, 2, 3, 4):
            return unframed(data, at, UNFRAMED_BINARY)
    raise Bad(NOT_A_FRAME)


# ------------------------------------------------------------------------------------------- behind damage

def next_intact(data, at):
    return next((at for at in range(at, len(data)) if intact(data, at)), None)


def intact(data, at):
    """Does a whole good frame begin here, of a kind that tells its length, and then something that may be one?"""
    if looks(data, at) is not True:
        return False
    try:
        row = frame(data, at)
    except Bad:
        return False
    return row["fault"] in (OK, BAD_CODEC) and begins(data, at + row["size"])


def begins(data, at):
    """May a frame of any kind begin with these eight bytes, or with what there is of them?"""
    length, word = big(data, at, 4), big(data, at + 4, 4)
    return len(data) - at < 8 or data[at:at + 4] == b"BIGF" or unsized(data, at) or 4 <= length <= LARGEST_LENGTH and (
        word >> 16 in (0x0FFF, 0x8001) or word == length - 4 or is_compact(word))


def unsized(data, at):
    """Does a frame begin here that is good where it is expected, but too like other bytes to be searched for?"""
    word = big(data, at, 4)
    return word >> 16 == 0x8001 and word & 0xFF in (1, 2, 3, 4) or is_compact(word) or data[at:at + 4] in METHODS or (
        4 <= word <= LARGEST_LENGTH and big(data, at + 4, 2) == 0x1000)


def is_compact(word):
    return word >> 24 == 0x82 and word >> 16 & 31 in (1, 2) and word >> 21 & 7 in (1, 2, 3, 4)


def looks(data, at):
    """Whether the bytes here look like the beginning of a frame that tells its length; None: there are too few."""
    left, length, word, magic = len(data) - at, big(data, at, 4), big(data, at + 4, 4), 4
    if left < 8:
        return None
    if data[at:at + 4] == b"BIGF":
        if left < 22:
            return None
        length, magic = big(data, at + 4, 8), 12
        if length > (1 << 32) - 13:
            return False
    elif not 4 <= length <= LARGEST_LENGTH:
        return False
    elif word == length - 4:
        length, magic = word, 8
    elif word >> 16 == 0x8001:
        return None if left < 12 else word & 0xFF in (1, 2, 3, 4) and big(data, at + 8, 4) <= length - 12
    elif word >> 16 != 0x0FFF:
        return is_compact(word)
    if left < magic + 10:
        return None
    return big(data, at + magic, 2) == 0x0FFF and 0 < 4 * big(data, at + magic + 8, 2) <= length - 10


# ------------------------------------------------------------------------------------------- frames with a header

def header_frame(data, at, kind, size, magic):
    row = HEAD | dict(size=whole(data, at, size), kind=kind)
    found = FRAME | row
    try:
        found["fault"] = read_header(data, at, at + size, at + magic, found)
    except Bad as bad:
        return BAD | row | dict(fault=bad.fault)
    return found


def read_header(data, start, end, magic, row):
    """Fill a row from the header; return BAD_CODEC where a transform is unknown, or OK. Raises Bad."""
    if end - magic < 10:
        raise Bad(TRUNCATED)
    words = big(data, magic + 8, 2)
    row |= dict(flags=big(data, magic + 2, 2), seq=big(data, magic + 4, 4), header_words=words)
    payload = magic + 10 + 4 * words
    if payload > end:
        raise Bad(BAD_HEADER)
    header = Cursor(data, magic + 10, payload)
    row["protocol_id"] = header.varint()
    if row["protocol_id"] > 255:
        raise Bad(BAD_FIELD)
    transforms, mac = read_transforms(header)
    row |= dict(transform_count=len(transforms), mac_size=mac, infos_at=header.at - start)
    row |= {f"transform_{i}": id for i, id in enumerate(transforms[:4])}
    pairs, stop, padding = read_pairs(header)
    row |= dict(info_count=len(pairs), infos_size=stop - start - row["infos_at"], padding=min(padding, 255))
    if end - payload < mac:
        raise Bad(BAD_HEADER)
    row |= dict(payload_at=payload - start, body=payload - start, payload_size=end - payload - mac)
    return OK if UNDONE.issuperset(transforms) else BAD_CODEC


def read_transforms(header):
    """(ids, size of the mac)."""
    count = header.varint()
    if count > header.left or count > 255:
        raise Bad(BAD_COUNT)
    ids, mac = [], 0
    for _ in range(count):
        id = header.varint()
        if id > 0xFFFF:
            raise Bad(BAD_FIELD)
        if id == HMAC:
            mac = header.take(1)[0]
            if HMAC in ids:
                raise Bad(BAD_HEADER)
        ids.append(id)
    return ids, mac


def read_pairs(header):
    """([(info id, start, end, key, value)], end of the last info that is known, bytes of padding); a key and a value
    are (place from start, size)."""
    found = []
    while header.left:
        stop = header.at
        id = header.varint()
        if id not in (1, 2):
            return found, stop, 0 if id else header.end - stop
        count = header.varint()
        if 2 * count > header.left:
            raise Bad(BAD_COUNT)
        for _ in range(count):
            at = header.at
            key, value = (string(header, header.varint(), at) for _ in "kv")
            found.append((id, at, header.at, key, value))
    return found, header.at, 0


def infos(data, row, parent=0):
    """The rows of thrift.infos of one row of thrift.frames."""
    alike = INFO | dict(parent=parent)
    if row["fault"] not in (OK, BAD_CODEC):
        return [alike | dict(start=row["start"], size=row["size"], fault=row["fault"])]
    if row["kind"] > DOUBLE_HEADER:
        return []
    first = row["start"] + row["infos_at"]
    header = Cursor(data, first, first + row["infos_size"])
    return [alike | dict(kind=id, start=at, size=end - at, body=value[0], key_at=key[0], key_size=key[1],
                         value_at=value[0], value_size=value[1])
            for id, at, end, key, value in read_pairs(header)[0]]


# ------------------------------------------------------------------------------------------- HTTP

def http(data, at):
    lines, body = [], at
    while True:
        end = data.find(b"\n", body) + 1
        if (end or len(data)) - at > LONGEST_HEAD:
            raise Bad(BAD_LENGTH)
        if not end:
            raise Cut(len(data) - at + 1)
        line, body = bytes(data[body:end]), end
        if line in (b"\n", b"\r\n"):
            break
        lines.append(line)
    told, chunked = None, False
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon and name.lower() == b"content-length":
            size = digits(value, 10)
            if told not in (None, size):
                raise Bad(BAD_LENGTH)
            told = size
        elif colon and name.lower() == b"transfer-encoding":
            chunked = value.rstrip(bytes(range(33))).lower().endswith(b"chunked")
    row = FRAME | dict(kind=HTTP_CHUNKED if chunked else HTTP, payload_at=body - at, body=body - at)
    if chunked:
        chunks, end = read_chunks(data, body, at)
        content = b"".join(chunks)
    else:
        if told is None:
            told = len(data) - body if lines[0][:2] == b"HT" and not bodiless(lines[0]) else 0
        if told > 0x7FFFFFFF:
            raise Bad(BAD_LENGTH)
        end = body + told
        if end > len(data):
            raise Cut(end - at)
        content = data[body:end]
    protocol = {0x82: COMPACT, ord("["): 1}.get(content[0] if content else 0, 0)
    return row | dict(size=end - at, payload_size=end - body if end > body else -1, protocol_id=protocol)


def digits(value, base):
    value = value.strip(b" \t\r\n")
    if not value or not set(value.lower()) <= set(b"0123456789abcdef"[:base]) or int(value, base) >= 1 << 32:
        raise Bad(BAD_LENGTH)
    return int(value, base)


def bodiless(line):
    """Is this the first line of a response that has no body?"""
    try:
        status = digits(line[9:12], 10) if len(line) > 12 else 0
    except Bad:
        return False
    return 100 <= status < 200 or status in (204, 304)


def read_chunks(data, at, start):
    """(the chunks' contents, end of the trailer). Raises Bad, Cut."""
    def line(at, first, longest):
        end = data.find(b"\n", at) + 1
        if (end or len(data)) - first > longest:
            raise Bad(BAD_LENGTH)
        if not end:
            raise Cut(len(data) - start + 1)
        return end

    chunks = []
    while True:
        end = line(at, at, LONGEST_LINE)
        size, at = digits(bytes(data[at:end]).partition(b";")[0], 16), end
        if not size:
            first = at
            while data[at:(end := line(at, first, LONGEST_HEAD))] not in (b"\n", b"\r\n"):
                at = end
            return chunks, end
        if at + size + 2 > len(data):
            raise Cut(at - start + size + 2)
        if data[at + size:at + size + 2] != b"\r\n":
            raise Bad(BAD_LENGTH)
        chunks.append(data[at:at + size])
        at += size + 2
