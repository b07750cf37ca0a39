"""Where the Hugging Face libraries look for a model in their cache. Pure.

models--<organisation>--<name>/refs/main holds the name of a folder below snapshots/, in which the
files lie. With HF_HUB_CACHE and HF_HUB_OFFLINE set, engines find the model by its id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_api.manifest import digest_hex

if TYPE_CHECKING:
    from modelcache_api.manifest import ContentDigest

_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_MOST_PARTS: Final = 2
# A commit of git has as many.
_REVISION_CHARACTERS: Final = 40
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubLayout:
    """Names within the hub's cache."""

    folder: str
    revision: str


def make_hub_layout(
    model: str | None, digest: ContentDigest, commit: str | None = None
) -> HubLayout | None:
    """The layout for a model's id; None if the libraries would not accept the id.

    Without a commit the revision is the beginning of the content's digest: the same bytes have the
    same revision on every node.
    """
    if model is None:
        return None
    parts = model.split("/")
    if len(parts) > _MOST_PARTS or not all(_is_part(part) for part in parts):
        return None
    revision = commit if commit is not None and _COMMIT.fullmatch(commit) else None
    if revision is None:
        revision = digest_hex(digest)[:_REVISION_CHARACTERS]
    return HubLayout("--".join(("models", *parts)), revision)


def _is_part(part: str) -> bool:
    """The libraries' own rules: at most 96 characters; `--` would make two ids one folder."""
    return (
        _PART.fullmatch(part) is not None
        and "--" not in part
        and ".." not in part
        and not part.endswith((".git", ".", "-"))
    )
