"""Which cluster and namespace a command talks to, chosen as kubectl does."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio.config import ConfigException, list_kube_config_contexts

from modelcache_api.names import API_VERSION
from modelcache_cli.errors import CliError
from modelcache_kube import ConnectConfig, KubeClient, NotFound, connect


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """What the person gave; None means the default that kubectl has."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


@asynccontextmanager
async def open_cluster(choice: ClusterChoice) -> AsyncIterator[tuple[KubeClient, str]]:
    """A client and the namespace to use.

    Raises:
        CliError: there is no usable kubeconfig or context, or the cluster has no ModelCache.
    """
    path = _find_kubeconfig(choice)
    config = ConnectConfig(kubeconfig=path, context=choice.context, user_agent="kubectl-modelcache")
    async with AsyncExitStack() as stack:
        with _told(path):
            namespace = choice.namespace or _context_namespace(path, choice.context)
            kube = await stack.enter_async_context(connect(config))
        try:
            yield kube, namespace
        except NotFound as error:
            if error.names_an_object:
                raise
            raise CliError(
                f"this cluster does not serve {API_VERSION}: install the chart, or choose another "
                "cluster by --context or --kubeconfig"
            ) from error


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the official client raises of a file that is no kubeconfig."""
    try:
        yield
    except (ConfigException, OSError, yaml.YAMLError) as error:
        raise CliError(f"no usable kubeconfig at {path}: {error}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CliError(f"no usable kubeconfig at {path}: it is not as kubectl writes it") from error


def _find_kubeconfig(choice: ClusterChoice) -> Path:
    given = os.environ.get("KUBECONFIG")
    path = choice.kubeconfig or Path(given or Path.home() / ".kube" / "config")
    if not any(Path(part).exists() for part in str(path).split(os.pathsep)):
        raise CliError(f"there is no kubeconfig at {path}: set KUBECONFIG or give --kubeconfig")
    return path


def _context_namespace(path: Path, context: str | None) -> str:
    contexts, active = list_kube_config_contexts(  # type: ignore[no-untyped-call]
        config_file=str(path)
    )
    chosen = active
    if context is not None:
        chosen = next((item for item in contexts or () if item["name"] == context), None)
        if chosen is None:
            known = ", ".join(sorted(item["name"] for item in contexts or ())) or "none"
            raise CliError(f"context {context!r} is not in {path}; there is: {known}")
    return str(((chosen or {}).get("context") or {}).get("namespace") or "default")
