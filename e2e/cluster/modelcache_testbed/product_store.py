"""The tutorial's object store: put into from outside, and counted by its node."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_testbed.bucket import Bucket
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.ports import LOOPBACK
from modelcache_testbed.probes import answers_http
from modelcache_testbed.programs import kubectl
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelcache_testbed.product import Product

NAMESPACE = "storage"
ENDPOINT = "http://seaweed.storage:8333"


@dataclass(frozen=True)
class TutorialStore:
    """The store through a forwarded port, with the keys that the tutorial gives it."""

    endpoint: str
    access_key: str = "tutorial"
    secret_key: str = "only-for-this-tutorial"
    region: str = "us-east-1"


@contextlib.contextmanager
def reached_bucket(product: Product, name: str) -> Iterator[Bucket]:
    """A bucket of the store, for as long as the block lasts."""
    port = product.store_port
    store = TutorialStore(f"http://{LOOPBACK}:{port}")
    flags = (f"--kubeconfig={product.cluster.kubeconfig}", f"--namespace={NAMESPACE}")
    forward = subprocess.Popen(
        [str(kubectl()), *flags, "port-forward", "service/seaweed", f"{port}:8333"],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: answers_http(f"{store.endpoint}/healthz"), seconds=30, what="the forwarded port"
        )
        yield Bucket(store, name)
    finally:
        forward.terminate()
        forward.wait(30)


def sent_bytes(product: Product) -> int:
    """Bytes that the store's pod has sent since it started, with all that protocols add."""
    (pod,) = product.pods(NAMESPACE)
    fleet, node = product.cluster.fleet, pod["spec"]["nodeName"]
    address = pod["status"]["podIP"]
    mac = json.loads(fleet.run(node, "ip", "-json", "neighbour", "show", address))[0]["lladdr"]
    for port in json.loads(fleet.run(node, "bridge", "-json", "fdb", "show")):
        if port["mac"] == mac:
            link = ("ip", "-json", "-statistics", "link", "show", "dev", port["ifname"])
            # What the node receives at its end of the wire, the pod has sent.
            return int(json.loads(fleet.run(node, *link))[0]["stats64"]["rx"]["bytes"])
    raise TestbedError(f"no interface of {node} leads to {address}")
