"""Values for tests of the agent's decisions."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.world import Flight, Held, Origin, World
from modelcache_api.labels import make_node_label_key
from modelcache_api.v1alpha1.cache_node import EntrySpec

GIB = 1 << 30
PLENTY = 1 << 50


def digest_of(name: str) -> str:
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def source_of(name: str) -> str:
    return digest_of(f"source of {name}")


def key_of(name: str) -> str:
    return make_node_label_key("models", name, digest_of(name))


def an_entry(name: str, size: int = 10, *, known: bool = True, evictable: bool = False):
    """An entry whose uid is `name`; its content is that of `name` too."""
    return EntrySpec(
        uid=name,
        source_digest=source_of(name),
        content_digest=digest_of(name) if known else None,
        label_key=key_of(name) if known else None,
        size_bytes=size,
        evictable=evictable,
    )


def a_held(
    name: str, size: int = 10, *, last_used: float = 0.0, adopted: bool = True, **changes
) -> Held:
    return replace(
        Held(
            digest=digest_of(name),
            blobs=frozenset({Blob(f"blob of {name}", size)}),
            last_used=last_used,
            origins=(Origin(name, source_of(name), adopted),),
        ),
        **changes,
    )


def a_flight(entry: EntrySpec, **changes) -> Flight:
    return replace(Flight(entry.uid, entry.source_digest, entry.size_bytes), **changes)


def a_world(*entries: EntrySpec, capacity: int = 100, held=(), **changes) -> World:
    """A node whose labels are settled: it carries the keys of what it holds."""
    ledger = Ledger(
        capacity_bytes=capacity,
        versions={content.digest: content.blobs for content in held},
        partials=changes.pop("partials", {}),
        reservations={f.uid: f.total_bytes for f in changes.get("flights", ())},
        pending_release_bytes=changes.pop("pending_release", 0),
    )
    present = {content.digest for content in held}
    labels = frozenset(e.label_key for e in entries if e.label_key and e.content_digest in present)
    world = World(
        entries=entries,
        held=tuple(held),
        ledger=ledger,
        free_bytes=PLENTY,
        now=1000.0,
        in_use=frozenset(),
        node_labels=labels,
        setbacks={},
    )
    return replace(world, **changes)
