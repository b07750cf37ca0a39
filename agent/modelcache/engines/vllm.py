"""`vllm serve /mnt/models/model --load-format modelcache`.

vLLM calls `register` in each of its processes. What the format changes is where tensors come from;
selection by experts or prefixes, tracking and post-processing stay vLLM's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from modelcache.engines.checkpoint import LOAD_FORMAT, each_tensor, find_version, open_weights

if TYPE_CHECKING:
    import torch


def register() -> None:
    """Make the load format known. May be called again."""
    from vllm.model_executor.model_loader import (  # noqa: PLC0415 - vLLM is there only if it calls
        _LOAD_FORMAT_TO_MODEL_LOADER,
        register_model_loader,
    )

    if LOAD_FORMAT not in _LOAD_FORMAT_TO_MODEL_LOADER:
        register_model_loader(LOAD_FORMAT)(_make_loader())


def _make_loader() -> type[Any]:
    from vllm.model_executor.model_loader.default_loader import (  # noqa: PLC0415
        DefaultModelLoader,
    )

    class ModelCacheLoader(DefaultModelLoader):  # type: ignore[misc]
        """Weights on the pages that all processes of the node share."""

        def download_model(self, model_config: Any) -> None:
            """Wait until the pod's volume is complete."""
            find_version(model_config.model)

        def _get_weights_iterator(self, source: Any) -> Iterator[tuple[str, torch.Tensor]]:
            weights = open_weights(
                source.model_or_path, source.subfolder, source.allow_patterns_overrides
            )
            return each_tensor(weights, source.prefix)

    return ModelCacheLoader
