"""The laws that hold for every format of wirescan, for RESP."""

import os

from generators import PACKAGE, cuts, limit_cuts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wirescan import Limits
from wirescan.frames.errors import MODES
from wirescan.testing import check_format, laws

EXAMPLES = (
    b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n",
    b"+OK\r\n-ERR no\r\n:-42\r\n$-1\r\n*-1\r\n$0\r\n\r\n*2\r\n*0\r\n:7\r\n",
)

steady = settings(
    max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 100)),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_examples_keep_every_law():
    check_format("resp.values", EXAMPLES, expected=PACKAGE.expected, children=PACKAGE.children)


@steady
@given(st.data(), cuts, st.sampled_from(MODES))
def test_good_frames_keep_the_laws(data, cuts, errors):
    raw = data.draw(PACKAGE.good) + data.draw(PACKAGE.tails)
    laws.streams_agree(PACKAGE, raw, limit_cuts(cuts, raw), errors)
    laws.streams_agree(PACKAGE, raw[:300], list(range(1, len(raw[:300]))), errors)
    laws.writes_read_back(PACKAGE, *data.draw(PACKAGE.written))


@steady
@given(st.data(), cuts, st.lists(st.booleans(), min_size=1), st.integers(0, 9))
def test_damaged_frames_keep_the_laws(data, cuts, mask, cut):
    raw = data.draw(PACKAGE.damaged)
    laws.keeps_every_law(PACKAGE, raw, limit_cuts(cuts, raw))
    laws.parts_keep_their_meaning(PACKAGE, raw, mask, cut)
    laws.spans_agree(PACKAGE, [raw, raw[cut:], b""])


@steady
@given(st.data(), cuts, st.integers(1, 100))
def test_chunks_change_nothing(data, cuts, longest):
    raw = data.draw(PACKAGE.damaged)
    many_cuts = [limit_cuts(cuts, raw), list(range(1, len(raw)))]
    laws.chunks_change_nothing(PACKAGE, raw, *many_cuts, limits=Limits(frame=longest))
