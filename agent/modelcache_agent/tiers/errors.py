"""What can go wrong with a store.

StoreError
├── StoreRefusedError    it must not be used at all: another agent, another format, foreign files
│   └── StoreInUseError  another process uses it now
└── BlobMissingError     a file that was to be reused is not there (any more): fetch it
"""

from __future__ import annotations


class StoreError(Exception):
    """One sentence for people, with the cure."""


class StoreRefusedError(StoreError):
    """The process must not start on this store."""


class StoreInUseError(StoreRefusedError):
    """Another process uses the store; it may end."""


class BlobMissingError(StoreError):
    """A content cannot be published, because one of its blobs vanished."""


def describe_error(error: Exception) -> str:
    """The cause in a few words: for people, and without paths of this machine."""
    if isinstance(error, TimeoutError):
        return "the disk does not answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
