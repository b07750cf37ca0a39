from __future__ import annotations

from datetime import timedelta

import pytest

from modelcache_operator.decide.authority_rotation import RotationState, Step, choose_step

OVERLAP = timedelta(hours=1)
JUST_NOW, ALMOST, LONG = timedelta(0), timedelta(minutes=59), timedelta(hours=1)


@pytest.mark.parametrize(
    ("following", "previous", "published_for", "wanted", "step"),
    [
        pytest.param(0, 0, LONG, 0, Step.STAY, id="nothing is due"),
        pytest.param(0, 0, JUST_NOW, 1, Step.ANNOUNCE, id="a new one is wanted and announced"),
        pytest.param(1, 0, ALMOST, 1, Step.STAY, id="the new one is not known everywhere yet"),
        pytest.param(1, 0, LONG, 0, Step.SWITCH, id="the new one is known and signs"),
        pytest.param(0, 1, ALMOST, 0, Step.STAY, id="a replica may still show the old one"),
        pytest.param(0, 1, LONG, 0, Step.RETIRE, id="nobody shows the old one any more"),
        pytest.param(0, 1, LONG, 1, Step.RETIRE, id="the next rotation waits for this one's end"),
        pytest.param(1, 1, LONG, 1, Step.SWITCH, id="both, which nobody writes, still ends"),
        pytest.param(1, 0, -LONG, 0, Step.STAY, id="a clock that is behind waits"),
    ],
)
def test_one_step_at_a_time(following, previous, published_for, wanted, step):
    state = RotationState(bool(following), bool(previous), published_for, bool(wanted))
    assert choose_step(state, OVERLAP) is step
