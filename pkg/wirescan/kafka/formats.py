"""All formats of Kafka, which frames/registry.py reads.

The formats and the functions that read them are in the files that are imported here.
"""

from wirescan.kafka.backups.connect_formats import CONNECT_FORMATS
from wirescan.kafka.backups.kbak_formats import KBAK_FORMATS
from wirescan.kafka.batch_formats import BATCH_FORMATS
from wirescan.kafka.protocol.formats import FORMATS as PROTOCOL_FORMATS
from wirescan.kafka.redpanda.redpanda_formats import REDPANDA_FORMATS

FORMATS = (
    *BATCH_FORMATS,
    *REDPANDA_FORMATS,
    *PROTOCOL_FORMATS,
    *KBAK_FORMATS,
    *CONNECT_FORMATS,
)
