"""What an `hf://` URI names: pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from modelcache_api.names import Scheme

DEFAULT_REVISION: Final = "main"
# The library's rules for names, and of git's for references what can be told without asking.
_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._/+-]{0,253}[A-Za-z0-9_+-])?")
_OTHER_KINDS: Final = frozenset({"models", "datasets", "spaces", "kernels", "buckets"})
_AMBIGUOUS: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class HubLocation:
    """A model repository and what of it: a branch, a tag or a commit."""

    repository: str
    revision: str


def parse_hub_uri(uri: str) -> HubLocation:
    """Repository and revision; without one, the branch `main`.

    Raises:
        ValueError: it is not such a URI.
    """
    repository, at, revision = uri.removeprefix(Scheme.HUB.prefix).partition("@")
    if not uri.startswith(Scheme.HUB.prefix) or not is_repository(repository):
        raise ValueError(
            f"source.uri must be hf://organisation/name@revision, of a model: {uri[:200]!r}"
        )
    if at and not _is_revision(revision):
        raise ValueError(f"what follows @ in source.uri is no revision of git: {uri[:200]!r}")
    return HubLocation(repository, revision or DEFAULT_REVISION)


def is_repository(name: str) -> bool:
    """True if a model repository may have that name."""
    parts = name.split("/")
    is_other = len(parts) > 1 and parts[0] in _OTHER_KINDS
    return len(parts) in (1, 2) and all(map(_is_name, parts)) and not is_other


def _is_name(part: str) -> bool:
    is_plain = _NAME.fullmatch(part) is not None and not part.endswith(".git")
    return is_plain and "--" not in part and ".." not in part


def _is_revision(revision: str) -> bool:
    return _REVISION.fullmatch(revision) is not None and _AMBIGUOUS.isdisjoint(revision.split("/"))
