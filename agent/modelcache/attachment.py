"""What a pod has attached to: the versions that its volume shows."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from modelcache.choice import STABLE, Track, choose_track, make_weights
from modelcache.cuts import Slice
from modelcache.errors import (
    DeviceMapError,
    FallbackWarning,
    NoSuchVersionError,
)
from modelcache.index import TensorIndex, read_files, read_shared
from modelcache.layout import choose_weight_files
from modelcache.live import LiveVolume
from modelcache.resident import list_shown
from modelcache.version_book import VersionBook
from modelcache.weights import Weights
from modelcache_api.names import (
    VOLUME_HUB_FOLDER,
    VOLUME_MODEL_FOLDER,
)
from modelcache_api.volume_progress import ShownVersion, VolumeProgress

if TYPE_CHECKING:
    import torch

    from modelcache.gpu import DeviceWeights


class Version:
    """One immutable content. Everything that is read from it stays valid for the pod's life.

    The volume's own version stays in its folder as long as the pod lives; a further one as long as
    it is in the ModelCache's spec or held, and then until it is closed here.
    """

    def __init__(self, path: Path, shown: ShownVersion, live: LiveVolume | None = None) -> None:
        self.path = path
        self.name = shown.name
        self.uid = shown.uid
        self.digest = shown.digest
        self.shown = shown
        """What the volume said of it when it was handed out."""
        self._live = live

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it: its folder may go once it has left the spec. May be called again."""
        if self._live is not None:
            self._live.release(self.uid)

    @property
    def track(self) -> str:
        """`stable` or `canary`, as the ModelCache has it now; empty once it has left the spec."""
        return self._now().track

    @property
    def is_leaving(self) -> bool:
        """Whether its folder goes as soon as nobody uses it: load nothing more, and close it."""
        return self._now().is_leaving

    def _now(self) -> ShownVersion:
        if self._live is None:
            return self.shown
        now = (one for one in list_shown(self._live.progress()) if one.uid == self.uid)
        return next(now, replace(self.shown, track="", is_leaving=True))

    def safetensors(
        self,
        folder: str = ".",
        *,
        files: Sequence[str] | None = None,
        read_only: bool = False,
    ) -> Weights:
        """Open the weights in a folder of the model, without reading them.

        `files` names them where the folder's layout does not (see `layout`). Pages are shared
        with all processes of the node until somebody writes; with `read_only` nobody can.

        Raises:
            LayoutError, BadFileError: see there.
        """
        root = self.path / folder
        chosen = choose_weight_files(root) if files is None else [root / name for name in files]
        return Weights(chosen, read_only=read_only)

    def index(self, folder: str = ".", *, files: Sequence[str] | None = None) -> TensorIndex:
        """Where each tensor lies, without opening the weights where the agent can be asked.

        Raises:
            LayoutError, BadFileError: see there.
        """
        root = self.path / folder
        chosen = choose_weight_files(root) if files is None else [root / name for name in files]
        is_own = self.shown.folder == VOLUME_MODEL_FOLDER
        shared = self._live.index() if self._live is not None and is_own else None
        return read_files(chosen) if shared is None else read_shared(shared, self.path, chosen)

    def tensors(
        self, folder: str = ".", *, device: torch.device | str | None = None
    ) -> dict[str, torch.Tensor]:
        """All tensors by name, for torch, on the shared pages.

        With a `device`, on that: shared there too where the node holds them in its memory (see
        `on_device`), else copied to it (see `to`).
        """
        if device is None:
            return self.safetensors(folder).tensors()
        import torch  # noqa: PLC0415 - torch only where it is used

        shared, wanted = self.on_device(folder), torch.device(device)
        if shared is not None:
            found = torch.device(shared.device)
            if wanted.type == found.type and wanted.index in {None, found.index}:
                return shared.tensors()
        return self.to(wanted, folder)

    def on_device(
        self, folder: str = ".", *, files: Sequence[str] | None = None
    ) -> DeviceWeights | None:
        """The weights in the GPU memory that all pods with the card share. Experimental.

        None where the agent gives none, which is told and counted as a fallback, where this process
        cannot map it, and for further versions of a volume: the volume has the same bytes.

        Raises:
            LayoutError, BadFileError: as `safetensors`.
        """
        root = self.path / folder
        chosen = choose_weight_files(root) if files is None else [root / name for name in files]
        names = [path.relative_to(self.path).as_posix() for path in chosen]
        is_own = self.shown.folder == VOLUME_MODEL_FOLDER
        given = self._live.device() if self._live is not None and is_own else None
        if given is None:
            return None
        layout, descriptors = given
        from modelcache.gpu import import_weights  # noqa: PLC0415 - only where it is used

        try:
            return import_weights(layout, descriptors, names)
        except DeviceMapError as error:
            message = f"GPU memory cannot be mapped: {error}; going on with the path alone"
            warnings.warn(message, FallbackWarning, stacklevel=2)
            return None

    def to(
        self,
        device: torch.device | str,
        folder: str = ".",
        *,
        names: Iterable[str] | None = None,
        slices: Mapping[str, Slice] | None = None,
    ) -> dict[str, torch.Tensor]:
        """Copies of tensors on a device, by name. See `Weights.to`."""
        with self.safetensors(folder) as weights:
            return weights.to(device, names, slices)

    def load_into(self, module: torch.nn.Module, folder: str = ".", *, strict: bool = True) -> None:
        """Make the shared pages the parameters of a module; nothing is copied.

        A module on the device `meta` needs no memory of its own. Dtypes become those of the
        file. Parameters that the module ties stay tied where the file names one of them.
        Tensors that the module has no place for are left out.

        Args:
            module: any torch module.
            folder: the folder of the model that its weights lie in, e.g. `unet`.
            strict: refuse if the module has parameters that the file lacks.

        Raises:
            RuntimeError: names are missing or shapes differ (torch's own message).
        """
        from modelcache.torch_module import assign  # noqa: PLC0415 - torch only where it is used

        assign(module, self.tensors(folder), strict=strict)


class Attachment:
    """The model of one pod: what its volume shows.

    May be used as a context. Closing it hangs up on the node's agent and nothing else: what was
    opened through it stays valid, and so do the last weights that were heard.
    """

    def __init__(self, model: Path, live: LiveVolume | None) -> None:
        self._model = model
        self._live = live
        self._book = None if live is None else VersionBook(live, _make_version)
        self.cache = None if live is None else live.progress().cache
        self.hub_cache = None if live is None else live.volume.root / VOLUME_HUB_FOLDER

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; may be called again."""
        if self._live is not None:
            self._live.close()

    @property
    def tracks(self) -> tuple[str, ...]:
        """The tracks whose versions are here now."""
        if self._book is None:
            return (STABLE,)
        return tuple(dict.fromkeys(one.track for one in self._book.look() if one.track))

    @property
    def path(self) -> Path:
        """The folder of the version that the volume was mounted with."""
        return self._model

    @property
    def is_draining(self) -> bool:
        """Whether the pod is about to end: finish what you have, take no new work, and close."""
        return self._live is not None and self._live.progress().is_draining

    @property
    def misses(self) -> int:
        """Requests that `choose_version` sent to stable because the other version is not here."""
        return 0 if self._live is None else self._live.misses

    @property
    def is_connected(self) -> bool:
        """Whether the node's agent pushes what changes; else the path is read."""
        return self._live is not None and self._live.is_connected

    @property
    def fallbacks(self) -> int:
        """Times that the agent was lost or has refused, and the path was read instead."""
        return 0 if self._live is None else self._live.fallbacks

    def progress(self) -> VolumeProgress | None:
        """What the agent says of the volume now; None for a plain folder."""
        return None if self._live is None else self._live.progress()

    def weights(self) -> Mapping[str, int]:
        """Shares of the traffic in force now, in percent by track; `canary` if there is one."""
        return make_weights(self._canary_weight())

    def choose(self, key: str | bytes) -> Track:
        """Which track takes the request with this key, by the weights in force now.

        The same key stays where it is while the weight does, and a growing weight only moves keys
        from stable to the canary. Without a canary it is always `stable`. It says nothing about
        which versions this process can read: see `choose_version`.
        """
        return choose_track(key, self.cache or "", self._canary_weight())

    def choose_version(self, key: str | bytes, among: Collection[str] | None = None) -> Version:
        """The version that takes the request with this key, as `choose` has it. Never an error.

        Where that version is not here, or not `among` the names of those that the caller has
        loaded, the request goes to stable, else to any that it has; `misses` counts these.
        """
        if self._book is None or self._live is None:
            return self.version()
        # One look for both: a canary that leaves in between would be chosen and not be here.
        progress = self._live.progress()
        track = choose_track(key, self.cache or "", progress.canary_weight)
        return self._book.choose(track, among, progress)

    def version(self, which: str | None = None) -> Version:
        """The version of a track or a ModelVersion's name; None: the volume's own.

        It is held until it is closed, or the attachment is. `stable` is the volume's own while no
        other is: a pod keeps what it began with.

        Raises:
            NoSuchVersionError: the volume does not show it.
        """
        if self._book is None:
            if which in {None, STABLE}:
                return Version(self._model, ShownVersion("", "", "", VOLUME_MODEL_FOLDER, STABLE))
            raise NoSuchVersionError(f"there is no {which!r} in a plain folder, but {STABLE}")
        found = None if which is None else self._book.find(which)
        if found is not None:
            return found
        shown = self._book.look()
        if which in {None, STABLE}:
            return self._book.take(shown[0])
        here = ", ".join(one.track or one.name for one in shown)
        raise NoSuchVersionError(f"there is no {which!r} here, but {here}")

    def versions(self) -> Mapping[str, Version]:
        """All that the volume shows now, its own first, by their ModelVersions' names. Held, too.

        An older agent shows one, without a name.
        """
        if self._book is None:
            own = self.version()
            return {own.name: own}
        found: dict[str, Version] = {}
        for one in self._book.list():
            found.setdefault(one.name, one)
        return found

    def _canary_weight(self) -> int | None:
        return None if self._live is None else self._live.progress().canary_weight


def _make_version(shown: ShownVersion, live: LiveVolume) -> Version:
    return Version(live.volume.root / shown.folder, shown, live)
