"""Wrong declarations of exchanges and of carried frames are errors that name them."""

from dataclasses import replace

import numpy as np
import pytest

import wirescan
from tests.support.captured_conversations import INFO, converse
from wirescan import nats, register
from wirescan.pcap.extraction.captured_exchanges import make_formats

MESSAGES = wirescan.formats()["nats.messages"]
CAPTURE = converse((1, INFO), (0, nats.encode_pub("a", b"", reply="in"))).to_pcap()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda pairs: replace(pairs, responses=pairs.responses[1:]), "responses has 0 rows"),
        (lambda pairs: replace(pairs, is_awaited=np.ones(9, bool)), "is_awaited has 9 rows"),
        (lambda pairs: replace(pairs, kept_sizes=np.ones(2, int)), "kept_sizes has 2 rows"),
        (
            lambda pairs: replace(pairs, responses=pairs.responses + 9),
            r"responses\[0\], outside the 2",
        ),
        (lambda pairs: replace(pairs, requests=pairs.requests - 1), r"row -1 in requests\[0\]"),
        (lambda pairs: replace(pairs, rows=np.zeros(1, "i8")), "the dtype of make_rows"),
    ],
)
def test_a_wrong_result_of_pair_is_an_error(change, message):
    exchange = MESSAGES.exchange

    def pair(*arguments, **options):
        return change(exchange.pair(*arguments, **options))

    (format,) = make_formats([replace(MESSAGES, exchange=replace(exchange, pair=pair))])
    with pytest.raises(ValueError, match=f"nats.exchanges: .*{message}"):
        format.open(CAPTURE)


def test_a_column_of_all_exchanges_is_refused():
    exchange = replace(MESSAGES.exchange, dtype=np.dtype([("latency", "i8")]))
    with pytest.raises(ValueError, match="all exchanges have a column 'latency' already"):
        make_formats([replace(MESSAGES, exchange=exchange)])


def test_two_formats_cannot_carry_the_same_frames():
    carried = replace(wirescan.formats()["kafka.responses"].carried, name="other.sets")
    other = replace(MESSAGES, name="other.messages", exchange=None, carried=carried)
    with pytest.raises(ValueError, match="kafka.batches are carried by kafka.responses already"):
        register(other)
    assert "other.messages" not in wirescan.formats()
