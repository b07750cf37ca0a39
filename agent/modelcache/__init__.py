"""Models that a pod's node holds, for programs that read them.

    import modelcache
    attachment = modelcache.attach("minilm")
    attachment.version().load_into(module)

Importing this costs the standard library alone; torch and numpy are imported where their types are
asked for. Errors are a tree:

    ModelCacheError
    ├── NoVolumeError             nothing of ModelCache is mounted there
    ├── NotReadyError             the model is not there (yet)
    ├── VolumeRefusedError        the node will not hand it to this pod
    ├── NoSuchVersionError        the volume shows no such track or version
    ├── DrainUnknownError         the node's agent is too old to be told that the pod ends
    ├── LayoutError               which files make up the model cannot be told
    ├── BadFileError              a file is not what its header says
    ├── UnsupportedDtypeError     a library has no such type; the bytes are still there
    ├── SelectionError            no such tensor, or no such part of it
    ├── NoDeviceError             torch has no such device here
    ├── DeviceMapError            a device's memory cannot be mapped here; read the volume
    └── ClosedError               the object was closed
"""

from modelcache.attaching import attach, attach_async, attach_folder
from modelcache.attachment import Attachment, Version
from modelcache.errors import (
    BadFileError,
    ClosedError,
    CopiedWarning,
    DevelopmentWarning,
    DeviceMapError,
    DrainUnknownError,
    FallbackWarning,
    LayoutError,
    ModelCacheError,
    NoDeviceError,
    NoSuchVersionError,
    NotReadyError,
    NoVolumeError,
    PageableWarning,
    SelectionError,
    UnsupportedDtypeError,
    VolumeRefusedError,
)
from modelcache.header import TensorInfo
from modelcache.index import TensorIndex
from modelcache.weights import Weights

__all__ = [
    "Attachment",
    "BadFileError",
    "ClosedError",
    "CopiedWarning",
    "DevelopmentWarning",
    "DeviceMapError",
    "DrainUnknownError",
    "FallbackWarning",
    "LayoutError",
    "ModelCacheError",
    "NoDeviceError",
    "NoSuchVersionError",
    "NoVolumeError",
    "NotReadyError",
    "PageableWarning",
    "SelectionError",
    "TensorIndex",
    "TensorInfo",
    "UnsupportedDtypeError",
    "Version",
    "VolumeRefusedError",
    "Weights",
    "attach",
    "attach_async",
    "attach_folder",
]
