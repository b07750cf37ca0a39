"""`python -m sglang.launch_server --model-path /mnt/models/model --load-format modelcache`.

SGLang calls `register` in each of its processes. Its load formats are an enumeration, but the class
of a loader is taken in place of one: a hook turns our word into the class where it is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from modelcache.engines.checkpoint import LOAD_FORMAT, each_tensor, find_version, open_weights

if TYPE_CHECKING:
    import torch

_CHECK: Final = "sglang.srt.configs.load_config.LoadConfig._verify_load_format"


def register() -> None:
    """Make the load format known. SGLang applies the hook."""
    from sglang.srt.plugins.hook_registry import (  # noqa: PLC0415 - there only if it calls
        HookRegistry,
        HookType,
    )
    from sglang.srt.server_args import add_load_format_choices  # noqa: PLC0415

    add_load_format_choices([LOAD_FORMAT])
    HookRegistry.register(_CHECK, _accept, HookType.AROUND)


def _accept(check: Callable[[Any], None], config: Any) -> None:
    if config.load_format == LOAD_FORMAT:
        config.load_format = _make_loader()
    else:
        check(config)


def _make_loader() -> type[Any]:
    from sglang.srt.model_loader.loader import DefaultModelLoader  # noqa: PLC0415

    class ModelCacheLoader(DefaultModelLoader):  # type: ignore[misc]
        """Weights on the pages that all processes of the node share."""

        def download_model(self, model_config: Any) -> None:
            """Wait until the pod's volume is complete."""
            find_version(model_config.model_path)

        def _get_weights_iterator(
            self, source: Any, **_: Any
        ) -> Iterator[tuple[str, torch.Tensor]]:
            weights = open_weights(source.model_or_path, None, source.allow_patterns_overrides)
            return each_tensor(weights, source.prefix)

    return ModelCacheLoader
