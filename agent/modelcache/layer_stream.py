"""A model larger than the device, layer by layer: while one runs, the next is read.

One thread reads; besides the layer that runs, `ahead` layers are on the device or on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from modelcache.errors import LayoutError

if TYPE_CHECKING:
    from types import TracebackType

    from modelcache.weights import Weights


@dataclass(slots=True)
class _Loaded:
    """One layer on the device, by the names that it was asked for with."""

    tensors: dict[str, torch.Tensor]
    ready: Any = None
    """Of CUDA: an event behind the copies."""


class _LayerReader:
    """Brings layers to the device in a thread of its own. `layers` maps their names to the file's.

    What was read ahead and is not what is asked for next is dropped.
    """

    def __init__(
        self,
        weights: Weights,
        layers: Sequence[Mapping[str, str]],
        device: torch.device | str,
        ahead: int,
    ) -> None:
        if ahead < 1:
            raise ValueError(f"ahead={ahead}: at least one layer must be read ahead")
        self._weights = weights
        self._layers = layers
        self._device = torch.device(device)
        self._ahead = ahead
        is_cuda = self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if is_cuda else None
        self._thread = ThreadPoolExecutor(1, "modelcache-layers")
        self._coming: dict[int, Future[_Loaded]] = {}

    def take(self, number: int, *, is_cyclic: bool) -> dict[str, torch.Tensor]:
        """The layer, once it is there; from then on the following ones are read.

        Raises:
            BadFileError, UnsupportedDtypeError, torch's own errors: it cannot be brought there.
        """
        count = len(self._layers)
        steps = range(number + 1, number + 1 + min(self._ahead, count - 1))
        following = [step % count for step in steps if is_cyclic or step < count]
        self._drop(self._coming.keys() - {number, *following})
        found = self._coming.pop(number, None) or self._submit(number)
        loaded = found.result()
        for other in following:
            if other not in self._coming:
                self._coming[other] = self._submit(other)
        return self._receive(loaded)

    def bring(self, name: str) -> torch.Tensor:
        """One tensor, at once."""
        return self._weights.tensor(name).to(self._device, copy=True)

    def close(self) -> None:
        """Wait for the present copy, drop everything and end the thread."""
        self._drop(list(self._coming))
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _submit(self, number: int) -> Future[_Loaded]:
        return self._thread.submit(self._read, self._layers[number])

    def _read(self, names: Mapping[str, str]) -> _Loaded:
        if self._stream is None:
            return _Loaded({name: self.bring(source) for name, source in names.items()})
        # A stream of its own: the default one would put the copies behind what runs.
        with torch.cuda.stream(self._stream):
            tensors = {name: self.bring(source) for name, source in names.items()}
            return _Loaded(tensors, self._stream.record_event())

    def _receive(self, loaded: _Loaded) -> dict[str, torch.Tensor]:
        if loaded.ready is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(loaded.ready)
            for tensor in loaded.tensors.values():
                tensor.record_stream(current)  # its memory is not used again before that is done
        return loaded.tensors

    def _drop(self, numbers: Collection[int]) -> None:
        for future in [self._coming.pop(number) for number in numbers]:
            if not future.cancel():
                future.exception()  # wait, so that no more than was promised is ever there


def stream_names(
    weights: Weights, prefixes: Sequence[str], device: torch.device | str, ahead: int
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """The tensors below each prefix in turn, by their names without it.

    What was handed out is taken back when the next layer is asked for: copy what is to stay.

    Raises:
        LayoutError: no tensor is below a prefix. As `tensor`, where a layer cannot be read.
    """
    layers = []
    for prefix in prefixes:
        stem = prefix.removesuffix(".") + "."
        names = {name.removeprefix(stem): name for name in weights if name.startswith(stem)}
        if not names:
            raise LayoutError(f"no tensor's name begins with {stem!r}: list(weights) has them all")
        layers.append(names)
    reader = _LayerReader(weights, layers, device, ahead)
    return _stream(reader, prefixes)


def _stream(
    reader: _LayerReader, prefixes: Sequence[str]
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    try:
        for number, prefix in enumerate(prefixes):
            tensors = reader.take(number, is_cyclic=False)
            yield prefix, tensors
            tensors.clear()
    finally:
        reader.close()


class ModuleStream:
    """While it is entered, the module runs as if it were on the device as a whole.

    Its layers are the members of its outermost `ModuleList`s, in that order. All else is on the
    device from entering on and stays there; a layer is there while its `forward` runs. Parameters
    take the file's dtypes and need no gradient. For inference, by one thread at a time.
    """

    def __init__(
        self, weights: Weights, module: torch.nn.Module, device: torch.device | str, ahead: int
    ) -> None:
        self._module = module
        self._device = torch.device(device)
        self._layers = _find_layers(module)
        state = _named_tensors(module)
        sources = _find_sources(weights, module, state)
        in_layers = {
            name: number
            for number, prefix in enumerate(self._layers)
            for name in state
            if name.startswith(f"{prefix}.")
        }
        self._resident = {name: sources[name] for name in state if name not in in_layers}
        own: list[dict[str, str]] = [{} for _ in self._layers]
        for name, number in in_layers.items():
            own[number][name] = sources[name]
        self._empty = {
            name: torch.empty_like(state[name], device="meta", requires_grad=False)
            for name in in_layers
        }
        self._names = own
        self._reader = _LayerReader(weights, own, device, ahead)
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        """Bring what is no layer to the device; the memory of the layers is given up."""
        try:
            brought: dict[str, torch.nn.Parameter | torch.Tensor] = {}
            for name, source in self._resident.items():
                tensor = brought.get(source)
                if tensor is None:
                    tensor = brought[source] = self._reader.bring(source)
                brought[source] = _put(self._module, name, tensor)
            _move_other_buffers(self._module, self._resident.keys() | self._empty, self._device)
        except BaseException:
            self._reader.close()
            raise
        for number, layer in enumerate(self._layers.values()):
            self._give_up(number)
            self._hooks += [
                layer.register_forward_pre_hook(self._before(number)),
                layer.register_forward_hook(self._after(number), always_call=True),
            ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the reading. The layers are left without weights, on the device `meta`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._reader.close()

    def _before(self, number: int) -> Callable[..., None]:
        def bring(*_: object) -> None:
            for name, tensor in self._reader.take(number, is_cyclic=True).items():
                _put(self._module, name, tensor)

        return bring

    def _after(self, number: int) -> Callable[..., None]:
        return lambda *_: self._give_up(number)

    def _give_up(self, number: int) -> None:
        for name in self._names[number]:
            _put(self._module, name, self._empty[name])


def _find_layers(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The layers by name, in order."""
    lists: list[str] = []
    for name, found in module.named_modules():
        is_inner = any(name.startswith(f"{outer}.") for outer in lists)
        if isinstance(found, torch.nn.ModuleList) and len(found) and not is_inner:
            lists.append(name)
    layers = {
        f"{name}.{number}" if name else number: layer
        for name in lists
        for number, layer in module.get_submodule(name).named_children()
    }
    if not layers:
        raise LayoutError(
            f"{type(module).__name__} holds no ModuleList, so its layers are not known: give the "
            "names of the layers, and run them yourself"
        )
    return layers


def _named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that a file holds, ties under each of their names."""
    return dict(module.state_dict(keep_vars=True))


def _find_sources(
    weights: Weights, module: torch.nn.Module, state: Mapping[str, torch.Tensor]
) -> dict[str, str]:
    """The file's name of each tensor: its own, or that of one that it is tied to."""
    tied: dict[int, list[str]] = {}
    for name, tensor in state.items():
        tied.setdefault(id(tensor), []).append(name)
    sources = {}
    for name, tensor in state.items():
        names = [name, *tied[id(tensor)]]
        source = next((one for one in names if one in weights), None)
        if source is None:
            raise LayoutError(
                f"{type(module).__name__} needs {name!r}, which is not in the files: a part that "
                "was loaded by spec.load, or a module of another model?"
            )
        found = weights.info(source).shape
        if found != tuple(tensor.shape):
            raise LayoutError(
                f"{name!r} has the shape {tuple(tensor.shape)} in {type(module).__name__}, and "
                f"{found} in the files"
            )
        sources[name] = source
    return sources


def _put(
    module: torch.nn.Module, name: str, tensor: torch.nn.Parameter | torch.Tensor
) -> torch.nn.Parameter | torch.Tensor:
    """The tensor takes the place of the parameter or buffer; returns what lies there now."""
    path, _, attribute = name.rpartition(".")
    owner = module.get_submodule(path)
    if attribute in owner._buffers:  # noqa: SLF001 - setattr would register a parameter beside it
        setattr(owner, attribute, tensor)
        return tensor
    if not isinstance(tensor, torch.nn.Parameter):
        tensor = torch.nn.Parameter(tensor, requires_grad=False)
    setattr(owner, attribute, tensor)
    return tensor


def _move_other_buffers(module: torch.nn.Module, known: set[str], device: torch.device) -> None:
    """Buffers that no file holds come from the module itself."""
    for name, buffer in list(module.named_buffers(remove_duplicate=False)):
        if name in known:
            continue
        if buffer.is_meta:
            raise LayoutError(
                f"buffer {name!r} is in no file and has no values on the device 'meta': build the "
                "module with buffers, e.g. accelerate's init_empty_weights()"
            )
        _put(module, name, buffer.to(device))
