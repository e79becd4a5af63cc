"""The recorded Kafka directories in tests/corpus/kafka, and what is expected of them."""

import json

from tests.support.paths import KAFKA_CORPUS

EXPECTED = json.loads((KAFKA_CORPUS / "expected.json").read_text())
CONTROL = 0x20  # the bit of a control batch in its attributes
DIRECTORIES = {name: about for name, about in EXPECTED.items() if "segments" in about}
