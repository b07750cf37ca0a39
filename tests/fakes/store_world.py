"""Stores with versions in them, without a network."""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import contextmanager
from pathlib import Path

from fakes.fetch_world import content_of
from modelcache_agent.decide.world import Origin
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.recovery import open_store
from modelcache_api.manifest import ContentManifest, digest_hex, make_content_manifest

NODE_UID = "node-1"
BODIES = {
    "model.safetensors": random.Random(1).randbytes(100_000),
    "config.json": b"{}",
    "1_Pooling/config.json": b"{}",
    "tokenizer.json": random.Random(2).randbytes(5_000),
}


def make_manifest(bodies: dict[str, bytes]) -> ContentManifest:
    return make_content_manifest(content_of(path, body) for path, body in bodies.items())


def put_partials(root: Path, uid: str, bodies: dict[str, bytes]) -> dict[str, Path]:
    """Finished files as the fetch engine leaves them."""
    folder = root / "partial" / uid
    folder.mkdir(parents=True, exist_ok=True)
    finished = {}
    for path, body in bodies.items():
        part = folder / f"{hashlib.sha256(path.encode()).hexdigest()[:40]}.part"
        part.write_bytes(body)
        part.with_suffix(".journal").write_text("journal\n")
        finished[path] = part
    return finished


def origin(uid: str, *, adopted: bool = False) -> Origin:
    return Origin(uid, f"sha256:{hashlib.sha256(uid.encode()).hexdigest()}", adopted)


def publish(store: DiskStore, uid: str = "v1", bodies: dict[str, bytes] = BODIES) -> str:
    finished = put_partials(store.layout.root, uid, bodies)
    return store.publish(make_manifest(bodies), finished, origin(uid))


@contextmanager
def opened(root: Path, **options):
    root.mkdir(exist_ok=True)
    handle = open_store(root, **{"node_uid": NODE_UID, **options})
    try:
        yield handle.store
    finally:
        handle.close()


def tree_of(root: Path, digest: str) -> Path:
    return root / "versions" / digest_hex(digest)


def read_tree(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()
    }


def flip_bits(path: Path, *offsets: int) -> None:
    """One bit of each byte, with equal size and times, as a disk does it."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        for offset in offsets:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def find_held(store: DiskStore, digest: str):
    return next((held for held in store.survey().held if held.digest == digest), None)


def in_child(work) -> int:
    """Run the work in a forked child; its exit status as os.waitstatus_to_exitcode says."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a forked child must not return into pytest
            os._exit(70)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
