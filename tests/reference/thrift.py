"""Thrift frames of every kind, and their infos, decoded one field at a time.

    header            LENGTH(4) | 0x0FFF flags(2) seq(4) words(2) | header | payload | mac
    big header        "BIGF" LENGTH(8) | 0x0FFF ...
    double header     LENGTH(4) | LENGTH - 4 (4) | 0x0FFF ...
    framed            LENGTH(4) | message
    unframed          message
    HTTP              head | body

The header has 4 * words bytes:

    varint protocol | varint number of transforms | transforms | infos | padding
    transform         varint id; HMAC has the size of the mac (1) behind it
    infos             varint 1 or 2 | varint pairs | pairs: { varint size, key, varint size, value }

A row is a dict with every column of the format. In a bad row, all columns but the place and the
kind are 0. The exception is a row that is bad because of an unknown transform: it has every column.
"""

from tests.reference.thrift_payload import (
    COMPACT,
    HEAD,
    Cursor,
    ShortError,
    measure_message,
    skip_string,
)
from tests.reference.window import BadBytesError

OK, TRUNCATED, BAD_COUNT, BAD_CODEC, BAD_FIELD, BAD_HEADER = 0, 1, 5, 7, 16, 17
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161
(
    HEADER,
    BIG_HEADER,
    DOUBLE_HEADER,
    FRAMED_BINARY,
    FRAMED_COMPACT,
    UNFRAMED_BINARY,
    UNFRAMED_COMPACT,
    HTTP,
    HTTP_CHUNKED,
    TTHEADER,
) = range(1, 11)

BAD = HEAD | dict(
    seq=0,
    info_count=0,
    infos_at=0,
    infos_size=0,
    payload_at=0,
    payload_size=0,
    transform_0=0,
    transform_1=0,
    transform_2=0,
    transform_3=0,
    flags=0,
    header_words=0,
    protocol_id=0,
    transform_count=0,
    padding=0,
    mac_size=0,
)
FRAME = BAD | dict(infos_size=-1, payload_size=-1)
INFO = HEAD | dict(key_at=0, key_size=0, value_at=0, value_size=0)

LARGEST_LENGTH = 0x3FFFFFFF  # the format's limit
LARGEST_FRAME = 100 << 20  # bytes: the default of Limits.frame
LARGEST_SIZE = 0x7FFFFFFF  # of a payload, in bytes
LONGEST_NAME = 32767  # bytes of a name in an unframed message without a version
LONGEST_HEAD = 65536  # bytes of an HTTP head, or of a trailer
LONGEST_LINE = 4096  # bytes of the line before a chunk
# The first four bytes of an HTTP message.
METHODS = b"POST", b"GET ", b"HEAD", b"PUT ", b"HTTP", b"CONN", b"DELE", b"OPTI", b"PATC", b"TRAC"
MESSAGE_TYPES = (1, 2, 3, 4)
STRICT_BINARY, HEADER_MAGIC, TTHEADER_MAGIC = 0x8001, 0x0FFF, 0x1000  # the first two bytes
HMAC = 2  # a transform
KNOWN_TRANSFORMS = {0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13}


def read_big_endian(data, at, size):
    return int.from_bytes(data[at : at + size], "big")


# ---- a buffer of frames


def read_frames(data, resync=True, versions=True):
    """Return (rows of thrift.frames, stop fault, stop position).

    resync: after a fault, continue at the next intact frame.
    versions: binary messages must be strict, with their version.
    """
    rows, at = [], 0
    while at < len(data):
        try:
            row = read_frame(data, at, versions)
            end = at + row["size"]
            is_bad = row["fault"] not in (OK, BAD_CODEC)
            if resync and is_bad and not is_followed(data, end):
                row["size"] = (find_next_intact(data, at + 1) or end) - at
        except BadBytesError as bad:
            end = find_next_intact(data, at + 1)
            if bad.fault == SHORT and end is None:
                return rows, SHORT, at
            fault = BAD_LENGTH if bad.fault == SHORT else bad.fault
            if not resync:
                return rows, fault, at
            row = BAD | dict(start=at, size=(end or len(data)) - at, fault=fault)
        rows.append(row)
        at += row["size"]
    return rows, OK, at


def is_followed(data, at):
    """May a frame begin here? With too few bytes the answer is yes."""
    return is_plausible(data, at) is not False or is_unsized(data, at)


def read_frame(data, at, versions=True):
    """Return the row of the frame at `at`.

    Raises BadBytesError. Its fault is SHORT if the bytes end in the frame. Otherwise it hides
    the end of the frame.
    """
    try:
        row = read_any_frame(data, at, versions)
    except ShortError as short:
        size = max(len(data) - at, short.size)
        raise BadBytesError(SHORT if size <= LARGEST_FRAME else BAD_LENGTH) from None
    if row["size"] > LARGEST_FRAME:
        raise BadBytesError(BAD_LENGTH)
    return row | dict(start=at)


def read_any_frame(data, at, versions):
    """Return the row of the frame at `at`, by the kind that its first bytes show."""
    require_bytes(data, at, 4)
    length = read_big_endian(data, at, 4)
    if length >> 16 == STRICT_BINARY:
        return read_unframed(data, at, UNFRAMED_BINARY)
    if is_compact(length):
        return read_unframed(data, at, UNFRAMED_COMPACT)
    if data[at : at + 4] == b"BIGF":
        return read_big_frame(data, at)
    if data[at : at + 4] in METHODS:
        return read_http(data, at)
    if length > LARGEST_LENGTH:
        raise BadBytesError(NOT_A_FRAME)
    if length < 4 and versions:
        raise BadBytesError(BAD_LENGTH)
    row = read_frame_with_length(data, at, length) if length >= 4 else None
    if row is not None:
        return row
    if not versions:
        return read_frame_without_version(data, at)
    raise BadBytesError(NOT_A_FRAME)


def require_bytes(data, at, size):
    """Raise ShortError if fewer bytes are left."""
    if len(data) - at < size:
        raise ShortError(size)


def read_big_frame(data, at):
    require_bytes(data, at, 14)
    if read_big_endian(data, at + 12, 2) != HEADER_MAGIC:
        raise BadBytesError(NOT_A_FRAME)
    return read_header_frame(data, at, BIG_HEADER, 12 + read_big_endian(data, at + 4, 8), 12)


def read_frame_with_length(data, at, length):
    """Return the row of a frame that begins with its length, or None if its kind is unknown."""
    require_bytes(data, at, 8)
    word = read_big_endian(data, at + 4, 4)
    if word >> 16 == STRICT_BINARY:
        return read_framed(data, at, FRAMED_BINARY)
    if is_compact(word):
        return read_framed(data, at, FRAMED_COMPACT)
    if word >> 16 == HEADER_MAGIC:
        return read_header_frame(data, at, HEADER, 4 + length, 4)
    if word == length - 4:
        require_bytes(data, at, 10)
        if read_big_endian(data, at + 8, 2) == HEADER_MAGIC:
            return read_header_frame(data, at, DOUBLE_HEADER, 4 + length, 8)
    if word >> 16 == TTHEADER_MAGIC:
        return read_framed(data, at, TTHEADER)
    return None


def check_size(data, at, size):
    """Return the size of a frame. Raises where it is too large or the bytes end before it."""
    if size - 4 > LARGEST_SIZE:
        raise BadBytesError(BAD_LENGTH)
    require_bytes(data, at, size)
    return size


def read_framed(data, at, kind):
    size = check_size(data, at, 4 + read_big_endian(data, at, 4))
    row = FRAME | dict(size=size, body=4, kind=kind)
    if kind == TTHEADER:
        return row
    protocol = COMPACT if kind == FRAMED_COMPACT else 0
    return row | dict(payload_at=4, payload_size=size - 4, protocol_id=protocol)


def read_unframed(data, at, kind):
    try:
        size = measure_message(data, at, kind == UNFRAMED_COMPACT)
    except BadBytesError:
        raise BadBytesError(BAD_LENGTH) from None
    protocol = COMPACT if kind == UNFRAMED_COMPACT else 0
    return FRAME | dict(size=size, kind=kind, payload_size=size, protocol_id=protocol)


def read_frame_without_version(data, at):
    """Return the row of a binary message without a version, framed or unframed.

    Such a message is recognized by the message type behind its name.
    """
    require_bytes(data, at, 8)
    length = read_big_endian(data, at, 4)
    name_size = read_big_endian(data, at + 4, 4)
    if name_size <= length - 10 and length <= LARGEST_LENGTH:
        if len(data) - at < 9 + name_size:
            raise ShortError(4 + length)
        if data[at + 8 + name_size] in MESSAGE_TYPES:
            return read_framed(data, at, FRAMED_BINARY)
    if length <= LONGEST_NAME:
        require_bytes(data, at, 5 + length)
        if data[at + 4 + length] in MESSAGE_TYPES:
            return read_unframed(data, at, UNFRAMED_BINARY)
    raise BadBytesError(NOT_A_FRAME)


# ---- the search after damage


def find_next_intact(data, at):
    """Return the position of the first intact frame at `at` or later, or None."""
    return next((start for start in range(at, len(data)) if is_intact(data, start)), None)


def is_intact(data, at):
    """Does a whole good frame begin here, of a kind that has a length?

    Bytes that may begin a frame must follow it.
    """
    if is_plausible(data, at) is not True:
        return False
    try:
        row = read_frame(data, at)
    except BadBytesError:
        return False
    return row["fault"] in (OK, BAD_CODEC) and may_begin_a_frame(data, at + row["size"])


def may_begin_a_frame(data, at):
    """May a frame of any kind begin with the next eight bytes? With fewer bytes it may."""
    if len(data) - at < 8 or data[at : at + 4] == b"BIGF" or is_unsized(data, at):
        return True
    length = read_big_endian(data, at, 4)
    word = read_big_endian(data, at + 4, 4)
    if not 4 <= length <= LARGEST_LENGTH:
        return False
    return word >> 16 in (HEADER_MAGIC, STRICT_BINARY) or word == length - 4 or is_compact(word)


def is_unsized(data, at):
    """Does a frame begin here that is accepted where a frame is expected, but not searched for?

    The first bytes of such a frame are too common to be searched for.
    """
    word = read_big_endian(data, at, 4)
    return (
        word >> 16 == STRICT_BINARY
        and word & 0xFF in MESSAGE_TYPES
        or is_compact(word)
        or data[at : at + 4] in METHODS
        or (4 <= word <= LARGEST_LENGTH and read_big_endian(data, at + 4, 2) == TTHEADER_MAGIC)
    )


def is_compact(word):
    """Does a message of the compact protocol begin with this word?"""
    is_known_version = word >> 16 & 31 in (1, 2)
    return word >> 24 == 0x82 and is_known_version and word >> 21 & 7 in MESSAGE_TYPES


def is_plausible(data, at):
    """Do these bytes look like the beginning of a frame that has a length?

    The answer is None if there are too few bytes.
    """
    left = len(data) - at
    length = read_big_endian(data, at, 4)
    word = read_big_endian(data, at + 4, 4)
    magic = 4  # position of the magic in the frame
    if left < 8:
        return None
    if data[at : at + 4] == b"BIGF":
        if left < 22:
            return None
        length = read_big_endian(data, at + 4, 8)
        magic = 12
        if length > (1 << 32) - 13:
            return False
    elif not 4 <= length <= LARGEST_LENGTH:
        return False
    elif word == length - 4:
        length = word
        magic = 8
    elif word >> 16 == STRICT_BINARY:
        if left < 12:
            return None
        return word & 0xFF in MESSAGE_TYPES and read_big_endian(data, at + 8, 4) <= length - 12
    elif word >> 16 != HEADER_MAGIC:
        return is_compact(word)
    if left < magic + 10:
        return None
    header_size = 4 * read_big_endian(data, at + magic + 8, 2)
    return read_big_endian(data, at + magic, 2) == HEADER_MAGIC and 0 < header_size <= length - 10


# ---- frames with a header


def read_header_frame(data, at, kind, size, magic):
    """Return the row of a frame with a header. magic: position of the magic in the frame."""
    known = dict(size=check_size(data, at, size), kind=kind)
    row = FRAME | known
    try:
        row["fault"] = read_header(data, at, at + size, at + magic, row)
    except BadBytesError as bad:
        return BAD | known | dict(fault=bad.fault)
    return row


def read_header(data, start, end, magic, row):
    """Read the header into a row. Return BAD_CODEC if a transform is unknown, else OK.

    magic: position of the magic in the data. Raises BadBytesError.
    """
    if end - magic < 10:
        raise BadBytesError(TRUNCATED)
    words = read_big_endian(data, magic + 8, 2)
    row |= dict(
        flags=read_big_endian(data, magic + 2, 2),
        seq=read_big_endian(data, magic + 4, 4),
        header_words=words,
    )
    payload = magic + 10 + 4 * words
    if payload > end:
        raise BadBytesError(BAD_HEADER)
    header = Cursor(data, magic + 10, payload)
    row["protocol_id"] = header.varint()
    if row["protocol_id"] > 255:
        raise BadBytesError(BAD_FIELD)
    transforms, mac = read_transforms(header)
    row |= dict(transform_count=len(transforms), mac_size=mac, infos_at=header.at - start)
    row |= {f"transform_{i}": transform for i, transform in enumerate(transforms[:4])}
    pairs, stop, padding = read_pairs(header)
    row["info_count"] = len(pairs)
    row["infos_size"] = stop - start - row["infos_at"]
    row["padding"] = min(padding, 255)
    if end - payload < mac:
        raise BadBytesError(BAD_HEADER)
    row |= dict(payload_at=payload - start, body=payload - start, payload_size=end - payload - mac)
    return OK if KNOWN_TRANSFORMS.issuperset(transforms) else BAD_CODEC


def read_transforms(header):
    """Return (ids, size of the mac)."""
    count = header.varint()
    if count > header.left or count > 255:
        raise BadBytesError(BAD_COUNT)
    ids, mac = [], 0
    for _ in range(count):
        transform = header.varint()
        if transform > 0xFFFF:
            raise BadBytesError(BAD_FIELD)
        if transform == HMAC:
            mac = header.take(1)[0]
            if HMAC in ids:
                raise BadBytesError(BAD_HEADER)
        ids.append(transform)
    return ids, mac


def read_pairs(header):
    """Return (pairs, end of the last known info, bytes of padding).

    A pair is (info id, start, end, key, value). A key or value is (position from start, size).
    """
    pairs = []
    while header.left:
        stop = header.at
        info_id = header.varint()
        if info_id not in (1, 2):
            return pairs, stop, 0 if info_id else header.end - stop
        count = header.varint()
        if 2 * count > header.left:
            raise BadBytesError(BAD_COUNT)
        for _ in range(count):
            at = header.at
            key = skip_string(header, header.varint(), at)
            value = skip_string(header, header.varint(), at)
            pairs.append((info_id, at, header.at, key, value))
    return pairs, header.at, 0


def read_infos(data, row, parent=0):
    """Return the rows of thrift.infos for one row of thrift.frames."""
    blank = INFO | dict(parent=parent)
    if row["fault"] not in (OK, BAD_CODEC):
        return [blank | dict(start=row["start"], size=row["size"], fault=row["fault"])]
    if row["kind"] > DOUBLE_HEADER:
        return []
    first = row["start"] + row["infos_at"]
    header = Cursor(data, first, first + row["infos_size"])
    pairs, _, _ = read_pairs(header)
    rows = []
    for info_id, at, end, (key_at, key_size), (value_at, value_size) in pairs:
        place = dict(start=at, size=end - at, body=value_at)
        key = dict(key_at=key_at, key_size=key_size)
        value = dict(value_at=value_at, value_size=value_size)
        rows.append(blank | dict(kind=info_id) | place | key | value)
    return rows


# ---- HTTP


def read_http(data, at):
    """Return the row of an HTTP message."""
    lines, body = read_head(data, at)
    is_response = lines[0][:2] == b"HT"
    length, is_chunked = 0, False
    if not (is_response and is_bodiless(lines[0])):
        length, is_chunked = read_head_fields(lines[1:], is_response)
    kind = HTTP_CHUNKED if is_chunked else HTTP
    row = FRAME | dict(kind=kind, payload_at=body - at, body=body - at)
    if is_chunked:
        chunks, end = read_chunks(data, body, at)
        content = b"".join(chunks)
    else:
        if length is None:
            length = len(data) - body if is_response else 0
        if length > LARGEST_SIZE:
            raise BadBytesError(BAD_LENGTH)
        end = body + length
        require_bytes(data, at, end - at)
        content = data[body:end]
    protocol = {0x82: COMPACT, ord("["): 1}.get(content[0] if content else 0, 0)
    payload_size = end - body if end > body else -1
    return row | dict(size=end - at, payload_size=payload_size, protocol_id=protocol)


def read_head(data, at):
    """Return (lines of the head, position of the body)."""
    lines, body = [], at
    while True:
        end = data.find(b"\n", body) + 1
        if (end or len(data)) - at > LONGEST_HEAD:
            raise BadBytesError(BAD_LENGTH)
        if not end:
            raise ShortError(len(data) - at + 1)
        line = bytes(data[body:end])
        body = end
        if line in (b"\n", b"\r\n"):
            return lines, body
        lines.append(line)


def read_head_fields(lines, is_response):
    """Return (content length or None, whether the body has chunks)."""
    length, codings = None, []
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon and name.lower() == b"content-length":
            size = parse_digits(value, 10)
            if length not in (None, size):
                raise BadBytesError(BAD_LENGTH)
            length = size
        elif colon and name.lower() == b"transfer-encoding":
            codings += [coding.strip(bytes(range(33))).lower() for coding in value.split(b",")]
    codings = [coding for coding in codings if coding not in (b"", b"identity")]
    if codings and codings[-1] != b"chunked":
        if not is_response:
            raise BadBytesError(BAD_LENGTH)
        return None, False
    return length, bool(codings)


def parse_digits(value, base):
    """Return a number of 32 bits from its digits."""
    value = value.strip(b" \t\r\n")
    if not value or not set(value.lower()) <= set(b"0123456789abcdef"[:base]):
        raise BadBytesError(BAD_LENGTH)
    number = int(value, base)
    if number >= 1 << 32:
        raise BadBytesError(BAD_LENGTH)
    return number


def is_bodiless(line):
    """Is this the first line of a response that has no body?"""
    try:
        status = parse_digits(line[9:12], 10) if len(line) > 12 else 0
    except BadBytesError:
        return False
    return 100 <= status < 200 or status in (204, 304)


def read_chunks(data, at, start):
    """Return (contents of the chunks, end of the trailer). Raises BadBytesError, ShortError."""

    def line_end(at, first, longest):
        """Return the end of a line. At most `longest` bytes may be between `first` and the end."""
        end = data.find(b"\n", at) + 1
        if (end or len(data)) - first > longest:
            raise BadBytesError(BAD_LENGTH)
        if not end:
            raise ShortError(len(data) - start + 1)
        return end

    chunks = []
    while True:
        end = line_end(at, at, LONGEST_LINE)
        size = parse_digits(bytes(data[at:end]).partition(b";")[0], 16)
        at = end
        if not size:
            trailer = at
            end = line_end(at, trailer, LONGEST_HEAD)
            while data[at:end] not in (b"\n", b"\r\n"):
                at = end
                end = line_end(at, trailer, LONGEST_HEAD)
            return chunks, end
        require_bytes(data, start, at - start + size + 2)
        if data[at + size : at + size + 2] != b"\r\n":
            raise BadBytesError(BAD_LENGTH)
        chunks.append(data[at : at + size])
        at += size + 2
