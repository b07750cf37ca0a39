"""hub-to-disk: a model from the hub to this machine's disk, durable, in MiB/s.

Ours is what happens for an `hf://` source: the operator lists the repository and asks for signed
addresses, the agent's engine reads from those. The peer is the hub's own `snapshot_download`. The
hub is a stand-in that redirects to signed addresses of SeaweedFS, which serves the bodies to both.
The hub's second protocol (Xet) needs the hub's own reconstruction service, for which there is no
server to run here, so the peer reads by plain HTTP, as it does wherever Xet is not to be had.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

import clients
import s3_to_disk
from bucket_hub import hub_environment, make_bucket_hub
from figure import Figure, interleave, make_figure

MIB = 1 << 20
ROUNDS = 5
CLIENTS = {"ours": "ours from the hub", "huggingface_hub": "huggingface_hub"}


def measure() -> Figure:
    """Both clients, each a process of its own, and the ceilings of s3-to-disk."""
    with (
        s3_to_disk.filled_bench() as bench,
        make_bucket_hub(bench.bucket.client, bench.bucket.name, digests(bench)) as hub,
    ):
        environment = {"PATH": os.environ["PATH"], **hub_environment(hub, bench.folder / "home")}
        return _measure(bench, environment)


def _measure(bench: s3_to_disk.Bench, environment: Mapping[str, str]) -> Figure:
    size_mib = sum(file.size_bytes for file in bench.sources.values()) / MIB
    cpu: dict[str, list[float]] = {who: [] for who in CLIENTS}

    def transfer(who: str) -> float:
        target = Path(tempfile.mkdtemp(dir=bench.folder))
        os.sync()
        try:
            took = clients.run(CLIENTS[who], target, environment)
            _check(bench, target)
        finally:
            shutil.rmtree(target)
        cpu[who].append(took.cpu_seconds * 1024 / size_mib)
        return size_mib / took.seconds

    to_null = s3_to_disk.loopback_to_null(bench, 4)
    samples = interleave(
        {
            **{who: (lambda who=who: transfer(who)) for who in CLIENTS},
            "to null": lambda: bench.timed("to null", to_null),
            "disk write": lambda: bench.timed("disk write", s3_to_disk.disk_write),
        },
        ROUNDS,
    )
    spent = ", ".join(f"{who} {statistics.median(seconds):.2f}" for who, seconds in cpu.items())
    return make_figure(
        "hub-to-disk",
        "MiB/s",
        samples,
        ceilings=("to null", "disk write"),
        notes=f"ours verifies the hub's SHA-256, the peer sizes. CPU s/GiB: {spent}",
    )


def digests(bench: s3_to_disk.Bench) -> dict[str, tuple[int, str]]:
    """Size and sha256 of each object, as a hub states them of large files."""
    found = {}
    for key, source in bench.sources.items():
        digest = hashlib.sha256()
        body = bench.bucket.client.get_object(Bucket=bench.bucket.name, Key=key)["Body"]
        for chunk in body.iter_chunks(MIB):
            digest.update(chunk)
        found[key] = (source.size_bytes, digest.hexdigest())
    return found


def _check(bench: s3_to_disk.Bench, target: Path) -> None:
    for key, source in bench.sources.items():
        if (target / key).stat().st_size != source.size_bytes:
            raise SystemExit(f"{key} is not complete")
