from __future__ import annotations

import os

from modelcache_agent.fetch.partial import PartialFile

SIZE = 5000


def open_partial(path) -> PartialFile:
    partial = PartialFile(path, "m.bin", SIZE)
    partial.open()
    partial.close()
    return partial


def test_a_file_that_was_published_is_never_opened_for_writing(tmp_path):
    """A publication that failed after its end leaves one inode under two names."""
    part, blob = tmp_path / "m.part", tmp_path / "blob"
    part.write_bytes(b"x" * SIZE)
    part.chmod(0o444)
    os.link(part, blob)
    before = blob.stat()
    open_partial(part)
    after = blob.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert part.stat().st_ino != after.st_ino
    assert blob.read_bytes() == b"x" * SIZE


def test_a_file_made_read_only_and_never_published_is_resumed(tmp_path):
    part = tmp_path / "m.part"
    part.write_bytes(b"x" * SIZE)
    part.chmod(0o444)
    open_partial(part)
    assert part.read_bytes() == b"x" * SIZE
    assert part.stat().st_mode & 0o200
