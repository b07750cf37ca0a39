"""What a command tells a person instead of a traceback."""

from __future__ import annotations


class CliError(Exception):
    """One sentence that names the thing and the cure."""
