"""The laws that hold for every format of wirescan, for RESP."""

import os

from generators import PACKAGE, cuts, limit_cuts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws import laws
from wirescan import Limits
from wirescan.frames.errors import MODES

steady = settings(
    max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 100)),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


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
