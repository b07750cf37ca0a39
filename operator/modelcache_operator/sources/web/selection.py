"""Which files of a web server a version takes: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.selection import Globs, check_files


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file, before the server was asked about it."""

    path: str
    sha256: str | None = None


def select_wanted(
    paths: Iterable[str], globs: Globs, checksums: Mapping[str, str] | None = None
) -> tuple[Wanted, ...]:
    """Those of the paths that the globs take, without repetition.

    Raises:
        SourceError: SourceNotFound if there is none; UnsafeKey or TooManyFiles.
    """
    every = tuple(dict.fromkeys(paths))
    known = checksums or {}
    taken = tuple(Wanted(path, known.get(path)) for path in every if globs.select(path))
    if not taken:
        raise SourceError(
            Reason.SOURCE_NOT_FOUND,
            f"none of the {len(every)} files of source.uri is taken by include and exclude",
        )
    check_files([SourceFile(wanted.path, 0) for wanted in taken])
    for wanted in taken:
        # `%2e%2e` is a step back to a server that reads escapes twice.
        if "%" in wanted.path:
            raise SourceError(
                Reason.UNSAFE_KEY,
                f"{quote(wanted.path)} holds a percent sign, which servers read in more than "
                "one way; rename it or leave it out with spec.exclude",
            )
    return taken
