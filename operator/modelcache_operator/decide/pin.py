"""Whether the adopted bytes are those that a user pins by spec.digest."""

from __future__ import annotations

from modelcache_operator.decide.world import ModelVersionView


def describe_pin_conflict(pinned: str | None, adopted: str | None) -> str | None:
    """Why the adopted content is not what is wanted, and the cure; None if nothing speaks against.

    Neither side can change any more: the content is adopted once, the pin is set once.
    """
    if pinned is None or adopted is None or pinned == adopted:
        return None
    return (
        f"spec.digest is {pinned}, the adopted bytes are {adopted}, and neither can change: "
        "create a new ModelVersion with the digest that is wanted"
    )


def describe_conflict(version: ModelVersionView) -> str | None:
    """The same, of a version as observed. Such a version is held and granted nowhere."""
    return describe_pin_conflict(version.spec.digest, version.status.content_digest)
