"""Kafka: record batches and log segments, streams of its protocol, and clients of clusters.

Start with `batch_formats.py`: `scan` reads batches, `records` reads their records, and `headers`
reads the headers of records. `record_batches/scan.pyx` shows the layouts.

Folders:

    record_batches/     kernels of batches, records and headers
    protocol/           requests, responses, pair, body; metadata_records; encode_request,
                        encode_response; ErrorCode, MetadataType
    log/                PartitionLog, open_log, within; aborted, committed
    encode/             encode_batch, encode_message_set; from columns: encode_batches,
                        encode_message_sets
    redpanda/           scan_redpanda, redpanda_records, redpanda_headers; open_redpanda_log,
                        read_redpanda_manifest; RedpandaManifest, RedpandaType
    backups/            files of other tools: OSO's kafka-backup, and itadventurer's
    client/             fetch, Client, AsyncClient

Modules:

    formats.py          all formats of Kafka
    batch_formats.py    the formats of record batches, and the functions that read them
    constants.py        Codec, TimestampType, ControlType; numbers of record batches
    meanings.py         what the columns mean
    files.py            names of segments, and where they can be cut
    evidence.py         how unlikely a good batch is in bytes of another kind
    batch_headers.py    what headers of batches say beyond their columns
    batch_work.py       how long the batches of a file take to read
    control_records.py  the column `control` of kafka.records
    topics_option.py    the option `topics`: which topics of a directory are read

This package imports everything below the protocol packages, and no other protocol package.
"""

from wirescan.frames.lazy import make_lazy_names
from wirescan.kafka.batch_formats import BATCHES, RECORDS, headers, records, scan
from wirescan.kafka.client.partitioner import partition_of
from wirescan.kafka.constants import Codec, ControlType, TimestampType
from wirescan.kafka.encode.record_columns import encode_batches, encode_message_sets
from wirescan.kafka.encode.records import Record, encode_batch, encode_message_set
from wirescan.kafka.formats import FORMATS
from wirescan.kafka.log.batch_range import within
from wirescan.kafka.log.directory import PartitionLog, open_log
from wirescan.kafka.log.transactions import aborted, committed
from wirescan.kafka.protocol.encode import encode_request, encode_response
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode
from wirescan.kafka.protocol.formats import PAIR, body, metadata_records, pair, requests, responses
from wirescan.kafka.protocol.message import REQUEST, RESPONSE
from wirescan.kafka.protocol.metadata_record import METADATA_RECORD
from wirescan.kafka.protocol.schema import ApiKey, MetadataType
from wirescan.kafka.record_batches.scan import BATCH, HEADER, RECORD
from wirescan.kafka.redpanda.batch_types import RedpandaType
from wirescan.kafka.redpanda.cloud_manifest import RedpandaManifest, read_redpanda_manifest
from wirescan.kafka.redpanda.redpanda_formats import (
    open_redpanda_log,
    redpanda_headers,
    redpanda_records,
    scan_redpanda,
)

__all__ = [
    "ApiKey",
    "AsyncClient",
    "BATCH",
    "BATCHES",
    "BrokerError",
    "Client",
    "Codec",
    "ControlType",
    "TimestampType",
    "ErrorCode",
    "FORMATS",
    "HEADER",
    "METADATA_RECORD",
    "MetadataType",
    "PAIR",
    "Part",
    "PartitionLog",
    "ProduceError",
    "RECORD",
    "RECORDS",
    "REQUEST",
    "RESPONSE",
    "Record",
    "RedpandaManifest",
    "RedpandaType",
    "Retries",
    "aborted",
    "body",
    "committed",
    "encode_batch",
    "encode_batches",
    "encode_message_set",
    "encode_message_sets",
    "encode_request",
    "encode_response",
    "fetch",
    "headers",
    "metadata_records",
    "open_log",
    "open_redpanda_log",
    "pair",
    "partition_of",
    "read_redpanda_manifest",
    "records",
    "redpanda_headers",
    "redpanda_records",
    "requests",
    "responses",
    "scan",
    "scan_redpanda",
    "within",
]

# Imported on first use, because they need sockets, threads or another package.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {
        "AsyncClient": "client",
        "Client": "client",
        "Part": "client",
        "ProduceError": "client",
        "Retries": "client",
        "fetch": "client",
    },
)
