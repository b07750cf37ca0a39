"""Contents on a disk, pods and a clock, for tests of the GPU tier."""

from __future__ import annotations

import hashlib
import json
import random

from blake3 import blake3

from modelcache_agent.decide.gpu.handover import Pod
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.tiers.gpu.contents import Content, Source
from modelcache_api.manifest import PIECE_BYTES, ContentFile

MIB = 1 << 20
POD = Pod("models", "reader-0", "pod-uid")


class HandClock:
    """Implements `ports.clock.Clock`; a test moves it."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def jitter(self):
        return 1.0


def write_weights(path, size_bytes: int):
    """A file of about so many bytes with one tensor, named as the file; each has other bytes."""
    chance, body = random.Random(str(path)), bytearray()
    while len(body) < max(8, size_bytes) // 8 * 8:
        body += chance.randbytes(min(MIB, max(8, size_bytes) // 8 * 8 - len(body)))
    entry = {"dtype": "F32", "shape": [len(body) // 4], "data_offsets": [0, len(body)]}
    header = json.dumps({path.stem: entry}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + body)
    return path


def a_source(path, *, knows_pieces: bool = True) -> Source:
    data = path.read_bytes()
    pieces = tuple(
        blake3(data[at : at + PIECE_BYTES]).hexdigest() for at in range(0, len(data), PIECE_BYTES)
    )
    found = ContentFile(
        path.name, len(data), hashlib.sha256(data).hexdigest(), pieces if knows_pieces else ()
    )
    return Source(found, path)


def a_content(
    folder, name: str, *sizes: int, namespace: str = "models", knows_pieces: bool = True
) -> Content:
    """A version with one file of weights for each size, and a config."""
    folder = folder / namespace / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    paths = [write_weights(folder / f"w{i}.safetensors", size) for i, size in enumerate(sizes)]
    sources = [a_source(path, knows_pieces=knows_pieces) for path in paths]
    digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
    files = (a_source(folder / "config.json"), *sources)
    return Content(Key(namespace, name), digest, files)


def digests_of_weights(folder, name: str = "v1", namespace: str = "models") -> list[str]:
    """SHA-256 of each tensor that `a_content` wrote, by name."""
    paths = sorted((folder / namespace / name).glob("*.safetensors"))
    begins = [8 + int.from_bytes(path.read_bytes()[:8], "little") for path in paths]
    return [
        hashlib.sha256(path.read_bytes()[begin:]).hexdigest()
        for path, begin in zip(paths, begins, strict=True)
    ]
