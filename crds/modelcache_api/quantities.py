"""Kubernetes quantities of bytes, to and from integers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FACTORS: Final = {suffix: Decimal(1024) ** power for power, suffix in enumerate(_BINARY)} | {
    suffix: Decimal(1000) ** power
    for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))
}
_PATTERN: Final = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$")


def parse_bytes(text: str) -> int:
    """Bytes of a quantity such as `10Gi`, `1.5T` or `4096`, rounded up.

    Raises:
        ValueError: the text is not a non-negative quantity of bytes.
    """
    match = _PATTERN.match(text.strip())
    if match is None:
        message = f"{text!r} is not a quantity of bytes: write for example 500Gi or 2Ti"
        raise ValueError(message)
    number, suffix = match.groups()
    size = Decimal(number) * _FACTORS[suffix or ""]
    return int(size.to_integral_value(rounding=ROUND_CEILING))


def format_bytes(size_bytes: int) -> str:
    """A short binary quantity for people: two digits below ten, e.g. `1.5Gi`, `91Mi`."""
    size = float(size_bytes)
    for suffix in _BINARY:
        if size < 1000 or suffix == _BINARY[-1]:  # noqa: PLR2004 - three digits at most
            break
        size /= 1024
    digits = 1 if suffix and size < 10 else 0  # noqa: PLR2004
    text = f"{size:.{digits}f}".removesuffix(".0")
    return f"{text}{suffix}"
