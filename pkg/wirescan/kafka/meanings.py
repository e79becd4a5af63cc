"""What the columns of Kafka's formats mean; field_meanings.py has those of the messages."""

# Format -> column or place -> meaning.
MEANINGS = {
    "kafka.batches": {
        "kind": "the magic byte: the version of the batch, 0, 1 or 2",
        "base_offset": "log offset of the first record; for a wrapper that of its last message",
        "last_offset": "log offset of the last record",
        "base_timestamp": "timestamp of the first record, or the delete horizon (attribute bit 6)",
        "max_timestamp": "the latest timestamp; with LogAppendTime that of all records",
        "producer_id": "id of an idempotent producer, otherwise -1",
        "producer_epoch": "epoch of an idempotent producer, otherwise -1",
        "base_sequence": "number of the first record for an idempotent producer, otherwise -1",
        "leader_epoch": "number of the leader's term that wrote the batch, -1 if it is not known",
        "record_count": "number of records, -1 for a wrapper",
        "crc": "the checksum in the batch: CRC-32C for magic 2, otherwise CRC-32",
        "attributes": "bits: 0 to 2 codec, 3 timestamp type, 4 transactional, 5 control, "
        "6 delete horizon",
        "magic": "the version of the batch: 0, 1 or 2",
        "codec": "the compression of the records: see `Codec`",
        "is_transactional": "1 if the batch belongs to a transaction",
        "is_control": "1 if its records are control records, which no application wrote",
        "timestamp_type": "who set the timestamps: CreateTime the producer, LogAppendTime the "
        "broker; null for none",
    },
    "kafka.records": {
        "kind": "the magic byte of the batch: 0, 1 or 2",
        "offset": "log offset of the record",
        "timestamp": "timestamp of the record; with LogAppendTime the broker's time",
        "key": "the key, null for none",
        "value": "the value, null for a tombstone",
        "headers": "the headers: pairs of key and value",
        "headers_at": "position of the headers, in bytes from the start of the record",
        "header_count": "number of headers",
        "control": "what a control record says: see `ControlType`; null for other records",
    },
    "kafka.headers": {
        "key": "the key of the header",
        "value": "the value of the header, or null",
    },
    "kafka.requests": {
        "kind": "version of the request's header, 255 if the API is not known",
        "correlation_id": "number that the response repeats",
        "api_key": "the API: see `ApiKey`",
        "api_version": "version of the request",
        "client_id": "the name that the client gave itself, or null",
    },
    "kafka.responses": {
        "kind": "version of the response's header, 255 if its request is opaque",
        "correlation_id": "number of the request that is answered",
        "request": "row of the request in its table, -1 if it is not known",
        "tag_count": "number of tagged fields in the header",
        "api_key": "the API of the request, -1 if it is not known",
        "api_version": "version of the response, -1 if it is not known",
    },
    "kafka.metadata_records": {
        "frame_version": "version of the frame around the record: 1, or -1 if it was not read",
        "type": "what the record says: see `MetadataType`; -1 in a control record",
        "version": "version of the record, -1 in a control record",
        "message": "the fields of the record; null in a control record",
    },
    "kafka.kbak_segments": {
        "base_offset": "log offset of the first record",
        "last_offset": "log offset of the last record",
        "record_count": "number of records",
        "crc": "the CRC-32 in the footer",
        "version": "version of the segment's layout: 1",
        "codec": "the compression of the records: see `BackupCodec`",
    },
    "kafka.kbak_records": {
        "offset": "log offset of the record",
        "timestamp": "timestamp of the record, as the broker returned it",
        "key": "the key, null for none",
        "value": "the value, null for a tombstone",
        "headers": "the headers: pairs of key and value",
        "headers_at": "position of the headers, in bytes from the start of the record",
        "header_count": "number of headers",
    },
    "kafka.kbak_headers": {
        "key": "the key of the header",
        "value": "the value of the header, or null",
    },
}
