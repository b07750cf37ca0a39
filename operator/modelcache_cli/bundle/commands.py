"""The command line of `bundle`."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from modelcache_cli.bundle.archive import pack, write_new
from modelcache_cli.bundle.collecting import BundleRequest, collect
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.options import (
    SYSTEM_NAMESPACE,
    ContextOption,
    KubeconfigOption,
    SystemOption,
    ViewOption,
    run,
)
from modelcache_cli.output import View, render
from modelcache_kube.timestamps import utc_now

bundle_app = typer.Typer()


@bundle_app.command()
def bundle(  # noqa: PLR0913, PLR0917 - one parameter for each option
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: named by the time, here.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Objects of this one alone. Default: of all."),
    ] = None,
    log_lines: Annotated[
        int, typer.Option(min=0, max=100_000, help="Last lines of each container's log.")
    ] = 2000,
    max_nodes: Annotated[
        int, typer.Option(min=0, max=1000, help="Nodes whose agents' logs and decisions are read.")
    ] = 10,
    system_namespace: SystemOption = SYSTEM_NAMESPACE,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Write an archive for whoever helps: objects, events, logs, decisions; no secrets.

    Secrets are not read, and what looks like one elsewhere is taken out. Changes nothing.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)
    request = BundleRequest(system_namespace, namespace, log_lines, max_nodes)

    async def work() -> dict[str, Any]:
        now = utc_now()
        folder = f"modelcache-bundle-{now:%Y%m%dT%H%M%SZ}"
        async with open_cluster(choice) as (kube, _):
            got = await collect(kube, request)
        path = out or Path(f"{folder}.tar.gz")
        about = {
            "time": now.isoformat(timespec="seconds"),
            "client": installed_version("modelcache"),
            "namespace": namespace or "all",
            "files": sorted(got.files),
            "missing": got.missing,
        }
        files = got.files | {"about.yaml": yaml.safe_dump(about, sort_keys=False)}
        body = pack(files, folder, now)
        write_new(path, body)
        return {"file": str(path), "sizeBytes": len(body), **about}

    document = run(work())
    if (chosen := output.document_format) is not None:
        print(render(document, chosen), end="")
        return
    print(f"{document['file']}: {len(document['files'])} files. Look at it before you send it.")
    for line in document["missing"]:
        print(f"not in it: {line}")
