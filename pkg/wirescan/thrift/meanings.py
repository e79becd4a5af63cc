"""What the columns of Thrift's formats mean."""

_TRANSFORMS = {
    f"transform_{number}": f"transform {number} of the payload, 0 for none" for number in range(4)
}
# Format -> column or place -> meaning.
MEANINGS = {
    "thrift.frames": {
        "kind": "the transport of the frame: see `Kind`",
        "seq": "sequence number of the header, 0 without a header",
        **_TRANSFORMS,
        "flags": "flags of the header, 0 without a header",
        "header_words": "size of the header in words of 4 bytes, 0 without a header",
        "protocol_id": "protocol of the payload as the header states it: 0 binary, 2 compact",
        "transform_count": "number of transforms",
        "padding": "bytes after the infos; 255 means 255 or more",
        "mac_size": "bytes of the mac after the payload, 0 without one",
        "payload": "the message, still transformed; for HTTP the body; null for none",
        "infos": "the key/value headers, null without a header",
        "info_count": "number of pairs in the infos",
    },
    "thrift.infos": {
        "kind": "whether the pair applies to its frame or to the connection: see `InfoKind`",
        "key": "the key; it need not be UTF-8",
        "value": "the value; it need not be UTF-8",
    },
    "thrift.plain": {
        "kind": "the transport of the frame: see `Kind`",
        "payload": "the message, its transforms undone",
    },
    "thrift.messages": {
        "kind": "call, reply, exception or one-way call: see `MessageType`",
        "seqid": "sequence number of the message; it may differ from the frame's `seq`",
        "protocol": "0 binary, 2 compact",
        "version": "compact: 1 Apache's, 2 fbthrift's; binary: 1, or 0 without a version word",
        "strict": "1 if a binary message has a version word, else 0",
        "method": "name of the method",
        "service": "name of the service in a multiplexed call, else null",
        "arguments": "the struct of the message: arguments, result or exception",
        "call": "the call as text, as `call_text` writes it",
    },
    "thrift.exchanges": {
        "seqid": "sequence number of the call and its reply",
        "call_type": "call or one-way call: see `MessageType`",
        "reply_type": "reply or exception: see `MessageType`; 0 without a reply",
        "method": "name of the method",
        "service": "name of the service in a multiplexed call, else null",
    },
    "thrift.fields": {
        "kind": "type of the value: see `Type`",
        "integer": "value of a BOOL, BYTE, I16, I32 or I64, and the bits of a U64; else 0",
        "real": "value of a DOUBLE or FLOAT; else 0",
        "count": "number of elements, or of pairs of a map",
        "id": "number of a field, or index of an element",
        "depth": "1 in the outermost struct, one more in each value inside",
        "role": "field, element, key or value: see `Role`",
        "key_type": "type of a map's keys: see `Type`",
        "element_type": "type of the elements, or of a map's values: see `Type`",
        "value": "bytes of the value on the wire; of a string without their length",
        "enclosing": "row of the enclosing struct or container in this table, -1 for none",
        "name": "name of the field in the IDL, empty if it is unknown",
    },
}
