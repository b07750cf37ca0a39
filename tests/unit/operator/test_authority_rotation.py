"""Rotation as a whole: replicas that look now and then, agents that see bundles late."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from fakes.authority import MemoryAuthorityStore
from modelcache_kube.errors import KubeError
from modelcache_operator.serving_certificate import RotationPlan, ServingCertificate
from modelcache_operator.tls import make_authority

START = datetime(2026, 1, 1, tzinfo=UTC)
CHECK, MINUTE = timedelta(minutes=10), timedelta(minutes=1)
# The kubelet looks after ConfigMaps every minute or two.
LONGEST_LAG = 3


def trusts(bundle: bytes, leaf: x509.Certificate) -> bool:
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            continue
        return True
    return False


class Fleet:
    """Replicas of the operator, each with its own moment to look."""

    def __init__(self, seed: int, plan: RotationPlan) -> None:
        self.now = START
        self.store = MemoryAuthorityStore()
        self._random = random.Random(seed)
        self.replicas = [self._replica(plan) for _ in range(3)]
        self.due = [START + CHECK * self._random.random() for _ in self.replicas]
        self.history: list[bytes] = []

    def _replica(self, plan: RotationPlan) -> ServingCertificate:
        return ServingCertificate(self.store, ["localhost"], now=lambda: self.now, plan=plan)

    async def minute(self) -> None:
        self.now += MINUTE
        for index, replica in enumerate(self.replicas):
            if self.now >= self.due[index] or replica._leaf is None:
                await replica.ensure()
                self.due[index] = self.now + CHECK
        self.history.append(self.store.bundle)

    def untrusted(self) -> list[tuple[int, int]]:
        seen = self.history[-LONGEST_LAG - 1 :]
        leaves = [x509.load_pem_x509_certificate(r._leaf.certificate) for r in self.replicas]
        return [
            (lag, index)
            for lag, bundle in enumerate(reversed(seen))
            for index, leaf in enumerate(leaves)
            if not trusts(bundle, leaf)
        ]


@pytest.mark.parametrize("seed", range(8))
async def test_no_agent_distrusts_any_replica_at_any_minute_of_a_rotation(seed):
    fleet = Fleet(seed, RotationPlan(overlap=timedelta(minutes=30)))
    for _ in range(20):
        await fleet.minute()
    first = fleet.store.authority.current
    fleet.store.ask_for_rotation()
    for _ in range(150):
        await fleet.minute()
        assert fleet.untrusted() == [], fleet.now
    last = fleet.store.authority
    assert last.current != first
    assert (last.following, last.previous, last.is_rotation_asked) == (None, None, False)
    assert fleet.store.bundle == last.current.certificate
    assert all(replica._signer == last.current for replica in fleet.replicas)


async def test_age_rotates_once_and_rests():
    fleet = Fleet(0, RotationPlan(max_age=timedelta(hours=8), overlap=timedelta(minutes=30)))
    for _ in range(60):
        await fleet.minute()
    first = fleet.store.authority.current
    for _ in range(9 * 60):
        await fleet.minute()
    assert fleet.store.authority.current != first
    # One bundle for the beginning, two for the overlap, one for the end.
    assert len(fleet.store.bundles) == 4


async def test_a_rotation_is_due_at_its_age_then_after_the_overlap_and_past_while_it_fails():
    plan = RotationPlan(max_age=timedelta(hours=8), overlap=timedelta(minutes=30))
    fleet = Fleet(5, plan)
    replica = fleet.replicas[0]
    assert replica.rotation_due_at() is None
    await fleet.minute()
    by_age = replica.rotation_due_at()
    assert START + timedelta(hours=6) < by_age <= START + timedelta(hours=8)
    fleet.store.is_read_only = True
    fleet.now = by_age + timedelta(hours=2)
    with pytest.raises(KubeError):
        await replica.ensure()
    assert replica.rotation_due_at() == by_age < fleet.now
    fleet.store.is_read_only = False
    await replica.ensure()
    assert replica.rotation_due_at() == fleet.now + plan.overlap
    fleet.now += plan.overlap
    await replica.ensure()
    assert replica.rotation_due_at() > fleet.now + plan.overlap


async def test_an_operator_that_was_away_publishes_before_it_switches():
    fleet = Fleet(3, RotationPlan(overlap=timedelta(minutes=30)))
    await fleet.minute()
    fleet.store.ask_for_rotation()
    for _ in range(CHECK // MINUTE + 1):
        await fleet.minute()
    assert fleet.store.authority.following is not None
    # All died between keeping the new authority and publishing it, and were away for a day.
    fleet.store.bundle, fleet.store.since = fleet.store.authority.current.certificate, START
    fleet.now += timedelta(days=1)
    await fleet.minute()
    assert fleet.store.authority.following is not None, "not switched before it was published"
    assert fleet.untrusted() == []


async def test_two_replicas_at_once_make_one_new_authority():
    fleet = Fleet(1, RotationPlan())
    await fleet.minute()
    fleet.store.ask_for_rotation()
    import asyncio

    await asyncio.gather(*(replica.ensure() for replica in fleet.replicas))
    made = fleet.store.authority.following
    await asyncio.gather(*(replica.ensure() for replica in fleet.replicas))
    assert made is not None
    assert fleet.store.authority.following == made
    assert fleet.store.bundle == fleet.store.authority.bundle


def test_a_bundle_lists_the_signer_first_and_hides_keys():
    from modelcache_operator.ports.authority import Authority

    one, two = make_authority(START), make_authority(START)
    announced, switched = Authority(one, following=two), Authority(two, previous=one.certificate)
    assert announced.bundle == one.certificate + two.certificate
    assert switched.bundle == two.certificate + one.certificate
    assert "PRIVATE" not in repr(announced)
