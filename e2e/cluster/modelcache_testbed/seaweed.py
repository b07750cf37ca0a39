"""A real S3-compatible object store on this machine: SeaweedFS, one process, own folder."""

from __future__ import annotations

import json
import secrets
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelcache_testbed.certificates import write_private
from modelcache_testbed.components import Component
from modelcache_testbed.folders import stores_folder
from modelcache_testbed.instance import (
    Instance,
    InstanceRecord,
    current_owner,
    reap_abandoned,
)
from modelcache_testbed.metrics import read_metrics
from modelcache_testbed.ports import LOOPBACK
from modelcache_testbed.probes import answers_http
from modelcache_testbed.programs import weed

if TYPE_CHECKING:
    from collections.abc import Sequence

PROFILE = "store"
REGION = "us-east-1"
_NAME = "weed"
_PORTS = tuple(
    f"{part}.{port}"
    for part in ("master", "volume", "filer", "s3")
    for port in ("port", "port.grpc")
)
_METRICS_PORT = "metricsPort"
_SENT = "SeaweedFS_s3_bucket_traffic_sent_bytes_total"
# A store may be pulled like a plug: what was acknowledged is with the kernel, and its own way of
# ending takes 15 s.
_STOP_SECONDS = 1.0


class Seaweed:
    """One object store; same rules as for a cluster: any call may be repeated, after any kill."""

    region = REGION

    def __init__(self, folder: Path) -> None:
        """Refer to the store in ``folder``; nothing is created yet."""
        self._instance = Instance(folder)
        self.folder = self._instance.folder

    @classmethod
    def named(cls, name: str) -> Seaweed:
        """Refer to the store of that name of this user."""
        return cls(stores_folder() / name)

    @classmethod
    def ephemeral(cls) -> Seaweed:
        """Refer to a store of one's own; see ``up(ephemeral=True)``."""
        return cls.named(f"ephemeral-{secrets.token_hex(4)}")

    @property
    def endpoint(self) -> str:
        """Return the address of the S3 interface; it stays the same over stop and start."""
        return f"http://{LOOPBACK}:{self._instance.read().ports['s3.port']}"

    @property
    def access_key(self) -> str:
        """Return the administrator's key id."""
        return str(self._instance.read().settings["access_key"])

    @property
    def secret_key(self) -> str:
        """Return the administrator's secret."""
        return str(self._instance.read().settings["secret_key"])

    @property
    def exists(self) -> bool:
        """Say whether the store was brought up and not taken down."""
        return self._instance.exists

    @property
    def is_running(self) -> bool:
        """Say whether the store's process lives."""
        return self._instance.supervisor.is_running(_NAME)

    @property
    def log_file(self) -> Path:
        """Return where the store writes its log."""
        return self._instance.supervisor.log_file(_NAME)

    def environment(self) -> dict[str, str]:
        """Return what the usual S3 clients read from the environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
        }

    def up(self, *, ephemeral: bool = False, public_buckets: Sequence[str] = ("public",)) -> None:
        """Bring the store up. Anybody may read ``public_buckets``; creating them is up to you."""
        program = weed()
        with self._instance.exclusively():
            if not self._instance.exists:
                owner = current_owner() if ephemeral else None
                keys = {"access_key": f"AK{secrets.token_hex(9).upper()}"}
                keys["secret_key"] = secrets.token_urlsafe(30)
                self._instance.create(InstanceRecord(PROFILE, owner, settings=keys))
                write_private(self.folder / "s3.json", _identities(keys, public_buckets))
            for name in ("data", "tmp"):
                (self.folder / name).mkdir(exist_ok=True)
            self._instance.settle_ports((*_PORTS, _METRICS_PORT))
            self._instance.supervisor.start([self._component(program)])

    def start(self) -> None:
        """Start a stopped store again: same address, same data."""
        self.up()

    def stop(self) -> None:
        """Take the store away and keep its data."""
        with self._instance.exclusively():
            self._instance.supervisor.stop(_NAME, grace_seconds=_STOP_SECONDS)

    def down(self) -> None:
        """End the store and delete its folder; nothing being there is fine."""
        with self._instance.exclusively():
            _remove(self._instance)

    def sent_bytes(self) -> int:
        """Return the bytes of objects that S3 clients were sent since the store was started."""
        port = self._instance.read().ports[_METRICS_PORT]
        return int(read_metrics(port).get(_SENT, 0))

    @staticmethod
    def reap() -> list[str]:
        """Remove ephemeral stores whose owner died; return their names."""
        return reap_abandoned(stores_folder(), _remove)

    def _component(self, program: Path) -> Component:
        ports = self._instance.read().ports
        argv = [str(program), "server", "-s3", "-filer", f"-dir={self.folder / 'data'}"]
        argv += [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-s3.config={self.folder / 's3.json'}"]
        argv += [f"-{name}={port}" for name, port in ports.items()]
        argv += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-metricsIp={LOOPBACK}"]
        argv += ["-master.telemetry=false", "-master.electionTimeout=1s"]
        # Volumes grow as they are written, so many buckets fit on a small disk.
        argv += ["-master.volumeSizeLimitMB=1000", "-volume.max=1000", "-volume.preStopSeconds=0"]
        return Component(
            _NAME,
            tuple(argv),
            lambda: _is_ready(ports),
            environment={
                "TMPDIR": str(self.folder / "tmp"),
                "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",  # one volume per bucket, not seven
            },
        )


def _identities(keys: dict[str, str], public_buckets: Sequence[str]) -> bytes:
    credentials = {"accessKey": keys["access_key"], "secretKey": keys["secret_key"]}
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    identities: list[dict[str, Any]] = [
        {"name": "admin", "credentials": [credentials], "actions": everything}
    ]
    if public_buckets:
        actions = [f"{verb}:{bucket}" for bucket in public_buckets for verb in ("Read", "List")]
        identities.append({"name": "anonymous", "actions": actions})
    return json.dumps({"identities": identities}, indent=1).encode()


def _is_ready(ports: dict[str, int]) -> bool:
    # The S3 door opens before the volumes behind it are known; objects are readable after both.
    opened = answers_http(f"http://{LOOPBACK}:{ports['s3.port']}/healthz")
    return opened and _knows_volumes(ports["master.port"])


def _knows_volumes(master_port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{master_port}/dir/status", timeout=2) as response:
            return bool(json.load(response)["Topology"]["DataCenters"])
    except (OSError, ValueError, KeyError):
        return False


def _remove(instance: Instance) -> None:
    if not instance.exists:
        return
    instance.supervisor.stop(_NAME, grace_seconds=_STOP_SECONDS)
    # The place of its sockets is fixed in the program, and it leaves them behind.
    for port in instance.read().ports.values():
        for socket_file in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            socket_file.unlink(missing_ok=True)
    instance.remove()
