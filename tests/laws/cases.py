"""Settings and lists that the laws' tests share."""

import re

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.laws.packages import PACKAGES
from tests.support.examples import read_example_count

steady = settings(
    max_examples=read_example_count(15),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
# These packages are similar. Each example draws one of them.
MESSAGES = [package for name, package in PACKAGES.items() if name.startswith("kafka.")]
CARRIED = [
    package for name, package in PACKAGES.items() if name.startswith("liftbridge")
]  # the last one: entries
# A request or a key selects these formats. Their bytes alone do not identify them.
# tests/kafka/test_reference_protocol.py compares them with the reference.
OPENED_BY_OTHERS = re.compile(r"kafka\.\w+_(response|key|value)(\.|$)")
cuts = st.lists(st.integers(0, 1000), max_size=6)


def limit_cuts(cuts, raw):
    return [cut % (len(raw) + 1) for cut in cuts]
