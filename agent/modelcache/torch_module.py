"""Tensors of a file become the parameters of a module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch


def assign(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], *, strict: bool) -> None:
    """Assign without a copy; tied parameters stay one parameter.

    Tensors that the module has no place for are left out: files carry buffers of older releases.

    Raises:
        RuntimeError: torch's, where shapes differ or, if strict, the module needs more.
    """
    ties = [names for names in _ties(module) if any(name in tensors for name in names)]
    wanted = module.state_dict().keys()
    known = {name: tensor for name, tensor in tensors.items() if name in wanted}
    for names in ties:
        source = next(known[name] for name in names if name in known)
        for name in names:
            known.setdefault(name, source)
    module.load_state_dict(known, strict=strict, assign=True)
    for names in ties:
        first = next(name for name in names if name in tensors)
        for name in names:
            _replace(module, name, module.get_parameter(first))


def _ties(module: torch.nn.Module) -> Iterable[list[str]]:
    """Names of parameters that are one and the same object."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _replace(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, parameter)
