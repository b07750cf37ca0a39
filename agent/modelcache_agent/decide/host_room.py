"""Who gives way in host memory to a newcomer, or why the newcomer stays on the disk. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelcache_agent.decide.host_draft import (
    ROOM_RECHECK_SECONDS,
    Told,
    condemn,
    describe_amount,
    sum_sizes,
)
from modelcache_agent.decide.measures import EvictionCause
from modelcache_agent.decide.victims import choose_victims
from modelcache_api.names import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_agent.decide.host_draft import Draft
    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.policies import EvictionPolicy, Ranked
    from modelcache_agent.decide.world import Held


def make_room(draft: Draft, held: Held) -> Told:
    """Whoever is worth less to the policy makes way.

    What was let go and is still mapped by readers counts as coming: while it does not come, nobody
    else goes in vain. Files that the newcomer shares with others free nothing for it.
    """
    shared = held.blobs & draft.host.list_blobs()
    needed = sum_sizes(held.blobs - shared)
    book = replace(draft.ledger, versions={**draft.ledger.versions, held.digest: shared})
    coming = book.freed_bytes(draft.leaving.keys() & draft.host.locked)
    short = needed - book.available_bytes - coming - book.pending_release_bytes
    if short > 0:
        chosen = choose_victims(
            _candidates(draft, held),
            short,
            ledger=book,
            leaving=frozenset(draft.leaving.keys() & draft.host.locked),
            condemned=draft.host.condemned,
            policy=draft.policy,
            standing={digest: each.standing for digest, each in draft.wanted.items()},
        )
        if chosen is None:
            draft.fell_short = True
            draft.rechecks.append(draft.world.now + ROOM_RECHECK_SECONDS)
            return Told(Reason.HOST_TIER_BYPASSED, _arithmetic(book, needed))
        if _is_refused(draft, held, chosen):
            draft.rechecks.append(draft.world.now + ROOM_RECHECK_SECONDS)
            return Told(Reason.HOST_TIER_BYPASSED, _describe_refusal(draft.policy))
        for ranked in chosen:
            cause = f"uid={draft.wanted[held.digest].uid} needs room in memory"
            condemn(draft, ranked, cause, EvictionCause.ROOM)
            message = "on the disk only: it made way for a version that is used more"
            draft.told[ranked.held.digest] = Told(Reason.HOST_TIER_BYPASSED, message)
    # Nobody behind it takes the room that is there for it already.
    kept = max(0, min(needed, draft.ledger.available_bytes))
    draft.ledger = draft.ledger.reserve(held.digest, kept)
    return Told(
        Reason.LOADING, f"waits until {describe_amount(needed)} of host memory are released"
    )


def _is_refused(draft: Draft, held: Held, victims: Sequence[Ranked]) -> bool:
    """Whether the policy finds the newcomer worth less than its victims of the same priority.

    Asked before they are condemned, and not again: labels would flap.
    """
    standing = draft.wanted[held.digest].standing
    chosen = [v.held for v in victims if draft.wanted[v.held.digest].standing >= standing]
    if draft.host.condemned.issuperset(each.digest for each in chosen):
        return False
    # The attach of a pod that waits for it is counted once the pod is shown it.
    waiting = 1.0 if draft.wanted[held.digest].is_waited_for else 0.0
    history = replace(held.history, attaches=held.history.attaches + waiting)
    newcomer = replace(held, last_used=draft.world.unix_now, history=history)
    return draft.policy.refuse(newcomer, chosen) is not None


def _describe_refusal(policy: EvictionPolicy) -> str:
    """Without numbers: they age, and the status would be written again for each."""
    return (
        f"on the disk only: by the policy {policy.name}, what would give way saves pods more "
        "loading than this version"
    )


def _candidates(draft: Draft, newcomer: Held) -> Sequence[Held]:
    """Locked contents that nobody uses and that the policy gives up before the newcomer.

    Demand displaces no placement. Who was not seen unused counts as in use.
    """
    in_use, is_placed = draft.world.in_use, draft.wanted[newcomer.digest].is_placed
    if in_use is None:
        return ()
    return [
        each.held
        for digest, each in draft.wanted.items()
        if digest in draft.host.locked
        and digest not in draft.leaving
        and digest not in in_use
        and not each.is_protected
        and (is_placed or not each.is_placed)
        and draft.order[digest] < draft.order[newcomer.digest]
    ]


def _arithmetic(book: Ledger, needed: int) -> str:
    return (
        f"on the disk only: it needs {describe_amount(needed)} of host memory, "
        f"{describe_amount(max(0, book.available_bytes))} are free: capacity "
        f"{describe_amount(book.capacity_bytes)}, used {describe_amount(book.used_bytes)}, "
        f"reserved {describe_amount(book.reserved_bytes)}, "
        f"lingering {describe_amount(book.pending_release_bytes)}"
    )
