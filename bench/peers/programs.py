"""The real programs that wirescan is compared with, started by the scripts under tests/peers.

A benchmark imports them from here. It imports nothing else of the tests.
"""

from tests.peers import broker
from tests.peers.broker import Broker
from tests.peers.cache import make_once, run_with_retry
from tests.peers.lumberjack import GO, TstLj, TstSend

__all__ = ["GO", "Broker", "TstLj", "TstSend", "broker", "make_once", "run_with_retry"]
