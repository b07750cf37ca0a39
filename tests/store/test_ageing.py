"""Use is measured by a clock that no step of the wall clock moves."""

from __future__ import annotations

import time

import pytest

from fakes.store_world import find_held, opened, publish
from modelcache_agent.tiers import ageing


def test_C62_a_use_in_the_future_counts_as_now_with_a_warning_and_ages_from_then_on(
    tmp_path, caplog
):
    root = tmp_path / "store"
    with opened(root, clock=lambda: 5_000_000.0) as store:
        digest = publish(store)
    with opened(root, clock=lambda: 1_000_000.0) as store:
        assert find_held(store, digest).last_used == 1_000_000.0
        assert find_held(store, digest).is_verified
    assert "was used in the future" in caplog.text
    caplog.clear()
    with opened(root, clock=lambda: 2_000_000.0) as store:
        assert find_held(store, digest).last_used == 1_000_000.0
    assert "was used in the future" not in caplog.text


@pytest.mark.parametrize("step", [-2 * 86_400, 2 * 86_400], ids=["back", "forward"])
def test_C62_a_step_of_the_wall_clock_ages_nothing(monkeypatch, step):
    real = time.time
    now = ageing.make_ageing_clock()
    before = now()
    assert before == pytest.approx(real(), abs=60)
    monkeypatch.setattr(ageing.time, "time", lambda: real() + step)
    assert 0 <= now() - before < 60
