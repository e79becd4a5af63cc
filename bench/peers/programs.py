"""The real programs that wirescan is compared with, started by the scripts under tests/peers.

A benchmark imports them from here. It imports nothing else of the tests.
"""

from tests.peers import broker
from tests.peers.broker import Broker
from tests.peers.cache import make_once, run_with_retry
from tests.peers.lumberjack import GO, TstLj, TstSend
from tests.peers.tiered_storage import TOPIC_SETTINGS as TIERED_TOPIC
from tests.peers.tiered_storage import await_tiered, make_tiered_broker

__all__ = [
    "GO",
    "TIERED_TOPIC",
    "Broker",
    "TstLj",
    "TstSend",
    "await_tiered",
    "broker",
    "make_once",
    "make_tiered_broker",
    "run_with_retry",
]
