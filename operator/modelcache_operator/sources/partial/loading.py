"""Reads the headers of a version's files and cuts them, on workers of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from modelcache_api.cut import Cut
from modelcache_api.manifest import SourceFile, SourceManifest, make_source_manifest
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.safetensors_format import LENGTH_BYTES, header_length
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.sources import SourceError, Sources
from modelcache_operator.sources.partial.choice import (
    check_globs,
    check_sizes,
    choose_weights,
    is_index,
    rewrite_index,
)
from modelcache_operator.sources.partial.cutting import TakenTensors, cut_file, take_tensors
from modelcache_operator.sources.partial.windows import MAX_READ_BYTES, SourceWindow
from modelcache_operator.sources.resolution import listing_too_long
from modelcache_operator.sources.turns import NamespaceTurns
from modelcache_operator.sources.web.indexes import MAX_INDEX_BYTES, parse_weight_map

_T = TypeVar("_T")
# Headers that are read at the same time: of all versions, of one namespace.
_THREADS: Final = 6
_AT_ONCE: Final = 3
# Of headers above this, which may take a hundred megabytes to judge, one at a time is read.
_LARGE_BYTES: Final = 4 * 1024 * 1024
_LARGE_TURN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Reading:
    """One version's files, read from threads through the event loop."""

    sources: Sources
    version: ModelVersionView
    revision: str | None
    loop: asyncio.AbstractEventLoop
    stopped: threading.Event = field(default_factory=threading.Event)

    def window(self, file: SourceFile) -> SourceWindow:
        def fetch(start: int, end: int) -> bytes:
            if self.stopped.is_set():
                raise listing_too_long()
            part = self.sources.read_part(self.version, file, start, end, self.revision)
            return asyncio.run_coroutine_threadsafe(part, self.loop).result()

        return SourceWindow(file.size_bytes, fetch)


class PartLoader:
    """Makes of a source's files those of a version with spec.load."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._turns = NamespaceTurns(_THREADS, _AT_ONCE, "part-headers")
        self._large_turn = threading.Lock()

    async def cut(self, version: ModelVersionView, manifest: SourceManifest) -> SourceManifest:
        """The manifest of what spec.load takes; the same if it takes everything.

        Raises:
            SourceError: the files cannot be cut so, or not now.
        """
        load = version.spec.load
        if load is None:
            return manifest
        weights = choose_weights(manifest.files)
        indexes = tuple(file for file in manifest.files if is_index(file.path))
        loop = asyncio.get_running_loop()
        reading = _Reading(self._sources, version, manifest.revision, loop)
        try:
            found = await self._each(
                reading,
                weights,
                lambda file: self._take(file, reading.window(file), load.include),
            )
            check_globs(load.include, {glob for taken in found.values() for glob in taken.matched})
            sizes = {path: _sizes(taken) for path, taken in found.items()}
            literals = await self._each(
                reading, indexes, lambda file: _read_index(file, reading.window(file), sizes)
            )
        finally:
            reading.stopped.set()
        cuts = {f.path: cut_file(f, found[f.path]) for f in weights if found[f.path].tensors}
        for index in indexes:
            if (text := literals[index.path]) is not None:
                cuts[index.path] = Cut(index.size_bytes, text, whole_sha256=index.sha256)
        check_sizes(cuts.values())
        touched = {file.path for file in (*weights, *indexes)}
        kept = (_with_cut(file, cuts.get(file.path)) for file in manifest.files)
        return make_source_manifest(
            (file for file in kept if file.cut is not None or file.path not in touched),
            manifest.revision,
            (file for file in manifest.files if file.path in touched - cuts.keys()),
        )

    def _take(self, file: SourceFile, window: SourceWindow, include: Sequence[str]) -> TakenTensors:
        first = window.read(0, min(LENGTH_BYTES, file.size_bytes))
        if header_length(first) <= _LARGE_BYTES:
            return take_tensors(file, window.read, include)
        if not self._large_turn.acquire(timeout=_LARGE_TURN_SECONDS):
            raise listing_too_long()
        try:
            return take_tensors(file, window.read, include)
        finally:
            self._large_turn.release()

    async def _each(
        self, reading: _Reading, files: Sequence[SourceFile], work: Callable[[SourceFile], _T]
    ) -> dict[str, _T]:
        namespace = reading.version.key.namespace
        jobs = [
            asyncio.ensure_future(self._turns.run(namespace, partial(work, file))) for file in files
        ]
        try:
            results = await asyncio.gather(*jobs)
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
        return {file.path: result for file, result in zip(files, results, strict=True)}


def _sizes(taken: TakenTensors) -> dict[str, int]:
    return {name: tensor.end - tensor.start for name, tensor in taken.tensors.items()}


def _read_index(
    file: SourceFile, window: SourceWindow, sizes: dict[str, dict[str, int]]
) -> bytes | None:
    if file.size_bytes > MAX_INDEX_BYTES:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"{quote(file.path)} is longer than {MAX_INDEX_BYTES} bytes: leave it out by "
            "spec.exclude of a new ModelVersion",
        )
    body = bytearray()
    while len(body) < file.size_bytes:
        body += window.read(len(body), min(MAX_READ_BYTES, file.size_bytes - len(body)))
    return rewrite_index(parse_weight_map(bytes(body), file.path), file.path, sizes)


def _with_cut(file: SourceFile, cut: Cut | None) -> SourceFile:
    if cut is None:
        return file
    return replace(file, size_bytes=cut.size_bytes, sha256=None, checksum=None, cut=cut)
