"""What can go wrong, as the reader sees it. The tree is drawn in the package's docstring."""

from __future__ import annotations


class ModelCacheError(Exception):
    """Any error of this library."""


class NoVolumeError(ModelCacheError):
    """The folder is no volume of ModelCache: the pod's label or mount is missing."""


class NotReadyError(ModelCacheError):
    """The model is not complete on this node, at once or within the time that was given."""


class VolumeRefusedError(ModelCacheError):
    """The node's agent does not give this model to this pod; waiting does not help."""


class NoSuchVersionError(ModelCacheError):
    """The volume shows no version under this track."""


class DrainUnknownError(ModelCacheError):
    """The node's agent is of a release that knows no draining."""


class LayoutError(ModelCacheError):
    """No weights, or two complete sets of them: the caller has to name the files."""


class BadFileError(ModelCacheError):
    """A file contradicts its own header."""


class UnsupportedDtypeError(ModelCacheError):
    """The library that was asked for has no such type; `Weights.raw` gives the bytes."""


class SelectionError(ModelCacheError):
    """There is no such tensor, or no such part of it."""


class NoDeviceError(ModelCacheError):
    """Torch has no such device here, or it is none that tensors can be brought to."""


class DeviceMapError(ModelCacheError):
    """A device's memory cannot be mapped here; the volume has the same bytes."""


class ClosedError(ModelCacheError):
    """The object was closed. What it handed out before is as good as ever."""


class FallbackWarning(UserWarning):
    """The node's agent cannot be reached through the volume's socket; the path says the same."""


class DevelopmentWarning(UserWarning):
    """A plain folder stands in for the volume, as the environment says."""


class PageableWarning(UserWarning):
    """Memory could not be page-locked, or not in time, so copies to a device are slower."""


class CopiedWarning(UserWarning):
    """Bytes were copied into this process, which other processes do not share."""
