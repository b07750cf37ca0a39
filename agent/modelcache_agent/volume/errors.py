"""What can go wrong with a pod's volume.

VolumeError
├── VolumeRequestError     the kubelet or the pod's spec asks for what can never be given
├── VolumeConflictError    the volume exists with another content of its request
└── VolumeNotNowError      the node is not ready for it: the kubelet tries again
"""

from __future__ import annotations


class VolumeError(Exception):
    """One sentence for people, with the cure. The kubelet shows it as an event of the pod."""


class VolumeRequestError(VolumeError):
    """Asking again does not help."""


class VolumeConflictError(VolumeError):
    """Two requests with one volume id differ."""


class VolumeNotNowError(VolumeError):
    """Asking again may help."""
