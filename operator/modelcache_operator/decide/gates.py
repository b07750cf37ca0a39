"""When a pod that would rather wait for its model is let through to the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelcache_api import names
from modelcache_api.names import EntryState, Reason
from modelcache_operator.decide.events import EventNote, Regarding
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.pod_fit import may_run_on
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView, PodView

_ACTION: Final = "Schedule"
_ON_ITS_WAY: Final = frozenset({EntryState.PENDING, EntryState.DOWNLOADING, EntryState.VERIFYING})


@dataclass(frozen=True, slots=True)
class GateFacts:
    """A gated pod, and the nodes that should hold its model."""

    pod: PodView
    cache: ModelCacheView | None
    version: ModelVersionView | None
    books: tuple[NodeBook, ...]
    waited_seconds: float
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """`require` is the label key of the nodes to keep to; None lets the pod go anywhere."""

    lift: bool
    reason: Reason
    message: str
    require: str | None = None


def judge_gate(facts: GateFacts) -> GateVerdict:
    """The first rule that applies. Nothing waits where there is nothing to wait for."""
    key = facts.version.status.node_label_key if facts.version else None
    eligible = [book for book in facts.books if _is_eligible(facts.pod, book)]
    holders = sum(key in book.node.labels for book in eligible) if key else 0
    if key is not None and holders:
        message = f"{holders} nodes that the pod may run on hold {facts.pod.cache.name}"
        return GateVerdict(lift=True, reason=Reason.CACHED, message=message, require=key)
    if not any(_is_coming(facts, book) for book in eligible):
        message = (
            f"no node that the pod may run on holds or fetches {facts.pod.cache.name}: "
            "the pod goes anywhere, and is brought its model there"
        )
        return GateVerdict(lift=True, reason=Reason.NO_ELIGIBLE_NODE, message=message)
    if facts.waited_seconds >= facts.timeout_seconds:
        message = (
            f"no node held {facts.pod.cache.name} within {facts.timeout_seconds:.0f} s: "
            f"the pod goes anywhere ({_progress(facts)})"
        )
        return GateVerdict(lift=True, reason=Reason.WAITING, message=message)
    message = f"waiting for a node that holds {facts.pod.cache.name}: {_progress(facts)}"
    return GateVerdict(lift=False, reason=Reason.WAITING, message=message)


def gate_event(pod: PodView, verdict: GateVerdict) -> EventNote:
    """What people should read beside the pod."""
    return EventNote(
        _regarding(pod),
        is_warning=False,
        reason=verdict.reason,
        note=verdict.message,
        action=_ACTION,
    )


def missing_cache_event(pod: PodView) -> EventNote:
    """As a pod with a missing ConfigMap it waits, and somebody should say so."""
    note = (
        f"there is no ModelCache {pod.cache.name} in namespace {pod.cache.namespace}: "
        "the pod waits for its model until it is created"
    )
    reason = Reason.MODEL_CACHE_NOT_FOUND
    return EventNote(_regarding(pod), is_warning=True, reason=reason, note=note, action=_ACTION)


def _regarding(pod: PodView) -> Regarding:
    return Regarding("Pod", pod.key.namespace, pod.key.name, pod.uid, api_version="v1")


def _is_eligible(pod: PodView, book: NodeBook) -> bool:
    return (
        book.has_live_agent
        and pod.constraints is not None
        and may_run_on(pod.constraints, book.node)
    )


def _is_coming(facts: GateFacts, book: NodeBook) -> bool:
    """On its way, or verified and about to be labelled."""
    if facts.version is None:
        return False
    entry = book.reported.get(facts.version.uid)
    if entry is None:
        return book.wants(facts.version.uid)
    return entry.state in _ON_ITS_WAY or entry.state is EntryState.CACHED


def _progress(facts: GateFacts) -> str:
    status = facts.cache.status if facts.cache else None
    if status is None or status.copies_summary is None:
        return f"{names.KIND_MODEL_CACHE} {facts.pod.cache} has no status yet"
    return f"{status.copies_summary} copies, {status.progress or '0%'} of the bytes"
