"""Whether mounts made here are seen by the kubelet, which lives in another mount namespace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_MOUNT_POINT: Final = 4
_FIRST_OPTIONAL: Final = 6


def is_shared(path: Path, mountinfo: str) -> bool:
    """True if what is mounted below the path propagates to the host. `mountinfo` as in proc(5)."""
    shared: dict[Path, bool] = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[_MOUNT_POINT]))
        optional = fields[_FIRST_OPTIONAL : fields.index("-")]
        # A later mount at the same point hides the earlier one.
        shared[point] = any(field.startswith("shared:") for field in optional)
    return next((shared[point] for point in (path, *path.parents) if point in shared), False)
