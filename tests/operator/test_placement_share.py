"""Soft affinity against the scheduler's own spreading: one Deployment with its Service.

How far this carries, and where it does not, is the figure `placement-share` (docs/injection.md).
"""

from __future__ import annotations

import pytest

from fakes.placement_trial import Trial, end_trial, make_ground, run_trial, share_on

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODES = 100
WARM = 20
SMALL = {"cpu": "100m", "memory": "200Mi"}


@pytest.mark.nodes(0)
async def test_of_200_pods_at_least_99_in_100_are_on_warm_nodes(stage):
    warm = await make_ground(stage, NODES, WARM)
    soft = Trial("soft", requests=SMALL)
    assert share_on(await run_trial(stage, soft), warm) >= 99.0
    await end_trial(stage, soft)
    # Without our label the same Deployment is spread over all of them: the test is no easy one.
    plain = Trial("plain", cache=None, requests=SMALL)
    assert share_on(await run_trial(stage, plain), warm) <= 2 * 100 * WARM / NODES
    await end_trial(stage, plain)
    strict = Trial("strict", required=True, requests={"cpu": "2"})
    assert share_on(await run_trial(stage, strict), warm) == 100.0
    await end_trial(stage, strict)
