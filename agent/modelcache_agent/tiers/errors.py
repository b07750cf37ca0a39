"""What can go wrong with a store.

StoreError
├── StoreRefusedError    it must not be used at all: another agent, another format, foreign files
└── BlobMissingError     a file that was to be reused is not there (any more): fetch it
"""

from __future__ import annotations


class StoreError(Exception):
    """One sentence for people, with the cure."""


class StoreRefusedError(StoreError):
    """The process must not start on this store."""


class BlobMissingError(StoreError):
    """A content cannot be published, because one of its blobs vanished."""
