"""The archive as bytes, and its file."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from modelcache_cli.errors import CliError

# Names of files come from names of objects; nothing else is let into a path.
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/")


def pack(files: Mapping[str, str], folder: str, at: datetime) -> bytes:
    """A gzipped tar of the files below the folder, in the order of their names. Pure.

    Raises:
        ValueError: a name could lead out of the folder.
    """
    packed = io.BytesIO()
    seconds = int(at.timestamp())
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=seconds) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        for path in sorted(files):
            if ".." in path.split("/") or path.startswith("/") or set(path) - _ALLOWED:
                raise ValueError(f"{path!r} cannot be the name of a file in the archive")
            body = files[path].encode()
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mtime, member.mode = len(body), seconds, 0o600
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


def write_new(path: Path, body: bytes) -> None:
    """A new file that only its owner may read.

    Raises:
        CliError: it cannot be written, or is there already.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
    except FileExistsError as error:
        raise CliError(f"{path} is there already: give another name with --out") from error
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error
