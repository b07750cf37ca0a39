"""Object keys are hostile input: which of them may become paths, and which are selected."""

from __future__ import annotations

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

    `*` and `?` stay inside one folder, `**` crosses folders, `[...]` is a set. A glob without a
    slash is matched against the file's name in any folder, as .gitignore does.
    """
    subject = path if "/" in glob else path.rsplit("/", 1)[-1]
    return _compile(glob).fullmatch(subject) is not None


@lru_cache(maxsize=1024)
def _compile(glob: str) -> re.Pattern[str]:
    pieces: list[str] = []
    index = 0
    while index < len(glob):
        if glob.startswith("**/", index):
            pieces.append("(?:[^/]+/)*")
            index += 3
        elif glob.startswith("**", index):
            pieces.append(".*")
            index += 2
        elif glob[index] == "*":
            pieces.append("[^/]*")
            index += 1
        elif glob[index] == "?":
            pieces.append("[^/]")
            index += 1
        elif glob[index] == "[" and "]" in glob[index + 2 :]:
            end = glob.index("]", index + 2)
            body = glob[index + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            negated = body[0] in "!^"
            pieces.append(f"[^/{body[1:]}]" if negated else f"[{body}]")
            index = end + 1
        else:
            pieces.append(re.escape(glob[index]))
            index += 1
    try:
        return re.compile("".join(pieces), re.DOTALL)
    except re.error:
        return re.compile(re.escape(glob))
