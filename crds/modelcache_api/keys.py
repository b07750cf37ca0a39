"""Object keys are hostile input: which of them may become paths, and which are selected."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from modelcache_api.limits import MAX_PATH_BYTES, MAX_PATH_PART_BYTES


def describe_unsafe_path(path: str) -> str | None:
    """Why a path relative to the prefix must not be created below the store, or None."""
    return _describe_unsafe_text(path) or _describe_unsafe_part(path)


def _describe_unsafe_text(path: str) -> str | None:
    if not path:
        return "it is empty"
    size = len(path.encode("utf-8", "surrogatepass"))
    if size > MAX_PATH_BYTES:
        return f"it has {size} bytes, the limit is {MAX_PATH_BYTES}"
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in path):  # noqa: PLR2004 - ASCII controls
        return "it holds a control character"
    if any(0xD800 <= ord(char) <= 0xDFFF for char in path):  # noqa: PLR2004 - surrogates
        return "it is not valid UTF-8"
    return "it holds a backslash" if "\\" in path else None


def _describe_unsafe_part(path: str) -> str | None:
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"it holds the part {part!r}"
        if len(part.encode()) > MAX_PATH_PART_BYTES:
            return f"a part of it has more than {MAX_PATH_PART_BYTES} bytes"
    return None


def find_file_and_folder_clash(paths: Iterable[str]) -> str | None:
    """The first path that is both a file and a folder of another file, or None."""
    files = set(paths)
    for path in sorted(files):
        parts = path.split("/")
        for length in range(1, len(parts)):
            parent = "/".join(parts[:length])
            if parent in files:
                return parent
    return None


def is_selected(path: str, include: Sequence[str] | None, exclude: Sequence[str] | None) -> bool:
    """True if a glob of `include` (all, if None) and none of `exclude` matches the path."""
    if include is not None and not any(matches(path, glob) for glob in include):
        return False
    return not any(matches(path, glob) for glob in exclude or ())


def matches(path: str, glob: str) -> bool:
    """True if the glob matches the whole path.

    `*`, `?` and `[...]` stay inside one folder; `**` as a whole part crosses folders. As in
    .gitignore, a glob without a slash is matched against the file's name in any folder, a leading
    slash ties it to the prefix, and a trailing slash means everything below. The time is bounded
    by the product of the lengths: both sides may come from somebody hostile.
    """
    if "/" not in glob:
        return _matches_part(path.rsplit("/", 1)[-1], glob)
    if glob.endswith("/"):
        glob += "**"
    return _matches_parts(path.split("/"), glob.removeprefix("/").split("/"))


def matches_tensor(name: str, glob: str) -> bool:
    """True if the glob matches the tensor's whole name; here `*` crosses dots and slashes."""
    return _compile(glob).match(name) is not None


def _matches_parts(parts: Sequence[str], globs: Sequence[str]) -> bool:
    if globs[-1] == "**":
        # Everything below a folder, not a file of the folder's name.
        globs = [*globs, "*"]
    reached = {0}  # how many of the path's parts the globs so far can stand for
    for glob in globs:
        if glob == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            ahead = (count for count in reached if count < len(parts))
            reached = {count + 1 for count in ahead if _matches_part(parts[count], glob)}
        if not reached:
            return False
    return len(parts) in reached


def _matches_part(part: str, glob: str) -> bool:
    return _compile(glob).match(part) is not None


@lru_cache(maxsize=1024)
def _compile(glob: str) -> re.Pattern[str]:
    # The standard translation uses atomic groups, so it cannot backtrack for ever.
    return re.compile(fnmatch.translate(glob.replace("[^", "[!")))
