"""What a stand-in for the hub holds: repositories as git has them, with large files beside."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

# As the hub's usual .gitattributes says; everything else lies in git itself.
_LARGE = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".gguf", ".ckpt")


@dataclass(frozen=True)
class Blob:
    """One file of a commit."""

    body: bytes
    is_large: bool

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def pointer(self) -> bytes:
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\n"
        return f"{text}size {self.size}\n".encode()

    @property
    def oid(self) -> str:
        """The blob's name in git: of a large file, that of its pointer."""
        data = self.pointer if self.is_large else self.body
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def listed(self, path: str) -> dict:
        entry = {"type": "file", "oid": self.oid, "size": self.size, "path": path}
        if self.is_large:
            lfs = {"oid": self.sha256, "size": self.size, "pointerSize": len(self.pointer)}
            entry |= {"lfs": lfs, "xetHash": hashlib.sha256(b"xet" + self.body).hexdigest()}
        return entry


@dataclass
class Repository:
    """One model repository. `admitted`: tokens that see it if private, or read it if gated."""

    name: str
    is_private: bool = False
    is_gated: bool = False
    is_disabled: bool = False
    admitted: set[str] = field(default_factory=set)
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main", *, plain=()) -> str:
        """A commit that holds exactly these files; the branch is moved to it.

        `plain` names files that lie in git itself although they look large.
        """
        blobs = {
            path: Blob(body, path.endswith(_LARGE) and path not in plain)
            for path, body in files.items()
        }
        tree = {path: blob.oid for path, blob in blobs.items()}
        text = json.dumps([self.name, len(self.commits), sorted(tree.items())])
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit] = blobs
        self.references[branch] = commit
        return commit

    def find_commit(self, revision: str) -> str | None:
        commit = self.references.get(revision, revision)
        return commit if commit in self.commits else None

    def tree(self, commit: str) -> list[dict]:
        """Files and folders, as the hub lists them."""
        blobs = self.commits[commit]
        folders = {
            "/".join(path.split("/")[:depth])
            for path in blobs
            for depth in range(1, path.count("/") + 1)
        }
        oid = hashlib.sha1(b"tree").hexdigest()
        entries = [{"type": "directory", "oid": oid, "size": 0, "path": path} for path in folders]
        entries += [blob.listed(path) for path, blob in blobs.items()]
        return sorted(entries, key=lambda entry: entry["path"])
