"""What a namespace may hold, what it is charged, and what that leaves for one more copy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from pydantic import ValidationError

from modelcache_api.names import Priority, Reason, Retention, Tier
from modelcache_api.quantities import format_bytes, parse_bytes
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuotaSpec
from modelcache_operator.decide.placement import ALL_COPIES
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import NodeName, Uid

_CURE: Final = "lower copies, delete a ModelCache, or ask for a larger ModelCacheQuota"
_DEFAULT: Final = "the default quota"


class Item(StrEnum):
    """What bytes are counted under: the names of the fields of a quota's `hard`."""

    DISK = "disk"
    HOST = "host"
    GPU = "gpu"
    PINNED = "pinned"


_TIER_OF: Final = {Item.DISK: Tier.DISK, Item.HOST: Tier.HOST, Item.GPU: Tier.GPU}


@dataclass(frozen=True, slots=True)
class Limits:
    """What is granted. An item that is not in `hard` has no limit. `source` names whose it is."""

    hard: Mapping[Item, int] = field(default_factory=dict)
    max_priority: Priority = Priority.HIGH
    all_nodes: bool = True
    source: str = _DEFAULT

    def find_ungranted(self, spec: ModelCacheSpec) -> tuple[str, str] | None:
        """What only a quota grants and this one does not, and what to ask for instead; or None."""
        if spec.priority.rank > self.max_priority.rank:
            return f"priority {spec.priority}", f"lower it to {self.max_priority}"
        if spec.placement.copies == ALL_COPIES and not self.all_nodes:
            return "copies: All", "write a number"
        if spec.retention is Retention.PINNED and not self.hard.get(Item.PINNED, 1):
            return "retention Pinned", "make it Cached"
        return None

    def grants(self, spec: ModelCacheSpec) -> Shortage | None:
        """Why something that only a quota grants is not, or None."""
        ungranted = self.find_ungranted(spec)
        if ungranted is None:
            return None
        asked, cure = ungranted
        message = (
            f"{asked} is not granted by {self.source}: {cure}, or ask for a ModelCacheQuota that "
            "grants it. What is verified stays, and nothing new is placed"
        )
        return Shortage(Reason.QUOTA_EXCEEDED, message)


UNLIMITED: Final = Limits()


def read_limits(spec: ModelCacheQuotaSpec, source: str) -> Limits:
    """What a quota grants.

    Raises:
        ValueError: an amount is no quantity of bytes.
    """
    given = {item: getattr(spec.hard, item.value) for item in Item}
    hard = {item: parse_bytes(text) for item, text in given.items() if text is not None}
    hard.setdefault(Item.PINNED, 0)
    return Limits(hard, spec.max_priority, spec.all_nodes, source)


def join_limits(limits: Iterable[Limits]) -> Limits:
    """The strictest of each; at least one is given."""
    each = tuple(limits)
    hard = {
        item: min(amounts)
        for item in Item
        if (amounts := [one.hard[item] for one in each if item in one.hard])
    }
    lowest = min((one.max_priority for one in each), key=lambda priority: priority.rank)
    source = " and ".join(one.source for one in each)
    return Limits(hard, lowest, all(one.all_nodes for one in each), source)


def parse_default_quota(document: object) -> Limits:
    """The quota of namespaces that have none, of a parsed YAML file; an empty file limits nothing.

    Raises:
        ValueError: it is no quota, or has a field that no quota has.
    """
    if document is None:
        return UNLIMITED
    if not isinstance(document, dict):
        raise ValueError(  # noqa: TRY004 - to the reader of a file, all mistakes are one
            "it is no quota: write hard, maxPriority and allNodes"
        )
    amounts = document.get("hard") or {}
    if not isinstance(amounts, dict):
        known = ", ".join(item.value for item in Item)
        raise ValueError(f"hard: write {known} with their bytes")  # noqa: TRY004
    fields = {one.alias for one in ModelCacheQuotaSpec.model_fields.values()}
    if unknown := {*document} - fields | {*amounts} - {item.value for item in Item}:
        raise ValueError(f"a quota has no {min(map(str, unknown))}")
    told = {item: str(amount) for item, amount in amounts.items() if amount is not None}
    given = {item: amount for item, amount in told.items() if amount}
    try:
        return read_limits(
            ModelCacheQuotaSpec.model_validate({**document, "hard": given}), _DEFAULT
        )
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ValueError(f"{where}: {problem['msg']}") from error


@dataclass(frozen=True, slots=True)
class Holding:
    """One version that is placed, or read by pods. `slower` nodes hold it on the disk alone."""

    version: Uid
    size_bytes: int
    nodes: frozenset[NodeName]
    tier: Tier = Tier.DISK
    slower: frozenset[NodeName] = frozenset()
    is_pinned: bool = False

    def nodes_under(self, item: Item) -> frozenset[NodeName]:
        """The nodes whose copy is counted there. What a tier holds, the slower ones hold too."""
        if item not in _TIER_OF:
            return self.nodes if self.is_pinned else frozenset()
        if _TIER_OF[item] is Tier.DISK:
            return self.nodes
        if self.tier.speed < _TIER_OF[item].speed:
            return frozenset()
        return self.nodes - self.slower if self.slower else self.nodes


def sum_charges(holdings: Iterable[Holding]) -> dict[Item, int]:
    """Bytes that one namespace is charged: in full, whoever else shares them.

    Each version once for each node: ModelCaches of the namespace that name the same one pay once.
    """
    by_version: dict[Uid, list[Holding]] = {}
    for one in holdings:
        by_version.setdefault(one.version, []).append(one)
    return {
        item: sum(
            max(one.size_bytes for one in shared) * len(_unite(shared, item))
            for shared in by_version.values()
        )
        for item in Item
    }


def _unite(holdings: Sequence[Holding], item: Item) -> frozenset[NodeName]:
    if len(holdings) == 1:
        return holdings[0].nodes_under(item)
    return frozenset[NodeName]().union(*(one.nodes_under(item) for one in holdings))


@dataclass(frozen=True, slots=True)
class Account:
    """What a namespace has left for the copies of one version of one ModelCache.

    `charged` is all that it is charged beside them, and `paid` are the nodes where the version is
    among that already, under each item that a copy is counted under and that has a limit.
    """

    limits: Limits
    size_bytes: int
    charged: Mapping[Item, int]
    paid: Mapping[Item, frozenset[NodeName]]
    refusal: Shortage | None = None

    def allows(self, nodes: frozenset[NodeName]) -> bool:
        """True if copies on all of these nodes keep within the quota."""
        return all(
            self.charged[item] + self.size_bytes * len(nodes - paid) <= self.limits.hard[item]
            for item, paid in self.paid.items()
            if nodes - paid
        )

    def affordable(self) -> int:
        """How many copies may be paid for."""
        room = [
            max(0, self.limits.hard[item] - self.charged[item]) // max(1, self.size_bytes)
            for item in self.paid
        ]
        return min(room, default=0)

    def refuse(self, nodes: frozenset[NodeName], wanted: int) -> Shortage:
        """The arithmetic of the item that lacks most."""
        if self.refusal is not None:
            return self.refusal
        item = min(
            self.paid,
            key=lambda one: (
                self.limits.hard[one]
                - self.charged[one]
                - self.size_bytes * len(nodes - self.paid[one])
            ),
        )
        message = (
            f"{wanted} copies need {format_bytes(self.size_bytes)} each, "
            f"{format_bytes(wanted * self.size_bytes)} in all; {self.limits.source} grants "
            f"{format_bytes(self.limits.hard[item])} of {item}, and "
            f"{format_bytes(self.charged[item])} are used beside them, canaries and held versions "
            f"included: {_CURE}"
        )
        return Shortage(Reason.QUOTA_EXCEEDED, message)


def make_account(
    limits: Limits, wish: Holding, others: Iterable[Holding], spec: ModelCacheSpec
) -> Account:
    """The account for copies such as `wish`, whose nodes do not matter, beside all `others`.

    `others` are looked at only where something that such a copy is counted under has a limit.
    """
    like = replace(wish, nodes=frozenset({NodeName("")}), slower=frozenset())
    items = [item for item in Item if like.nodes_under(item) and item in limits.hard]
    beside = tuple(others) if items else ()
    same = [one for one in beside if one.version == wish.version]
    return Account(
        limits=limits,
        size_bytes=wish.size_bytes,
        charged=sum_charges(beside),
        paid={item: _unite(same, item) for item in items},
        refusal=limits.grants(spec),
    )


def effective_priority(limits: Limits, spec: ModelCacheSpec) -> Priority:
    """What is granted of the priority."""
    return min(spec.priority, limits.max_priority, key=lambda priority: priority.rank)


def is_over(limits: Limits, charged: Mapping[Item, int]) -> bool:
    """True if more is charged than granted, as after a quota was lowered."""
    return any(charged[item] > hard for item, hard in limits.hard.items())
