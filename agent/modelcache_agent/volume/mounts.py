"""Read-only bind mounts that are never writable, not even for an instant.

A bind mount is born with its source's flags, so mounting first and remounting read-only leaves a
moment in which a pod could write into shared files. Here the mount gets its flags while it is
attached nowhere. All calls need CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

# The same on all architectures but alpha, since these calls are younger than the common table.
_NR_OPEN_TREE: Final = 428
_NR_MOVE_MOUNT: Final = 429
_NR_MOUNT_SETATTR: Final = 442
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_EMPTY_PATH: Final = 0x1000
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
# The flags of mount_setattr have the values of mount(2). Code in a model's folder may be run by
# engines that load plug-ins from it, so noexec is left out.
_RDONLY_NOSUID_NODEV: Final = 1 | 2 | 4
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def mount_read_only(source: Path, target: Path, staging: Path) -> None:
    """Show the folder `source` at the folder `target`, read-only from the first instant.

    `staging` is a path that may be made, mounted on and removed; only kernels before 5.12 need it.

    Raises:
        OSError: nothing is mounted.
    """
    try:
        _mount_detached(source, target)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        mount_by_staging(source, target, staging)


def _mount_detached(source: Path, target: Path) -> None:
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_SYMLINK_NOFOLLOW
    tree = _call(_NR_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
    try:
        attributes = _MountAttributes(set=_RDONLY_NOSUID_NODEV)
        size = ctypes.sizeof(attributes)
        _call(_NR_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size)
        place = os.fsencode(target)
        _call(_NR_MOVE_MOUNT, tree, b"", _AT_FDCWD, place, _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def mount_by_staging(source: Path, target: Path, staging: Path) -> None:
    """The same for older kernels: a bind mount of a mount inherits that one's read-only flag."""
    unmount(staging)
    staging.mkdir(exist_ok=True)
    try:
        _mount(source, staging, _MS_BIND)
        _mount(staging, staging, _MS_BIND | _MS_REMOUNT | _RDONLY_NOSUID_NODEV)
        _mount(staging, target, _MS_BIND)
    finally:
        unmount(staging)
        staging.rmdir()


def shows_read_only(target: Path, source: Path) -> bool:
    """True if `source` is mounted at `target`, and read-only."""
    try:
        found, wanted = target.stat(), source.stat()
        flags = os.statvfs(target).f_flag
    except OSError:
        return False
    is_same = (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
    return is_same and bool(flags & os.ST_RDONLY)


def unmount(target: Path) -> None:
    """Take away all mounts at the target; none, or no target, is fine.

    A mount that is in use leaves the tree of names at once and ends with its last user.
    """
    while True:
        if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW) == 0:
            continue
        code = ctypes.get_errno()
        if code in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            return
        if code != errno.EBUSY:
            raise OSError(code, os.strerror(code), str(target))
        if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW | _MNT_DETACH) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(target))


def _mount(source: Path, target: Path, flags: int) -> None:
    flags_word = ctypes.c_ulong(flags)
    if _libc.mount(os.fsencode(source), os.fsencode(target), None, flags_word, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))


def _call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
