"""What can go wrong in the test bed, as one small tree.

TestbedError
├── ProgramMissingError   a program is neither on this machine nor can it be built
├── BuildFailedError      the Go tool chain refused
├── ComponentFailedError  a started program ended or did not become ready in time
├── UnknownProfileError   no such profile
└── ApiError              the API server answered with an error
"""

from __future__ import annotations


class TestbedError(Exception):
    """Something a person can act on; the message names what and where."""

    __test__ = False  # the name starts with "Test", pytest would collect it


class ProgramMissingError(TestbedError):
    """A program is neither on this machine nor in the cache."""


class BuildFailedError(TestbedError):
    """A program could not be built."""


class ComponentFailedError(TestbedError):
    """A component ended early or did not become ready; carries its last log lines."""


class UnknownProfileError(TestbedError):
    """No profile of that name exists."""


class ApiError(TestbedError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the HTTP status beside the server's message."""
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
