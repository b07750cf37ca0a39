"""The kubelet's pod-resources API, answered by hand with the numbers of the specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from fakes.played_kubelet import encode


def a_device(name: str, *ids: str) -> bytes:
    # Field 3, the topology, is left unread.
    return (
        encode({1: name}) + b"".join(encode({2: one}) for one in ids) + encode({3: {1: {1: True}}})
    )


def nested(number: int, message: bytes) -> bytes:
    size = len(message)
    assert size < 1 << 14
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + message


def a_pod(namespace: str, name: str, *containers: bytes) -> bytes:
    return encode({1: name, 2: namespace}) + b"".join(nested(3, one) for one in containers)


@contextmanager
def serving(socket: Path, answer) -> Iterator[None]:
    """A server that speaks bytes: `answer` is called with each request."""
    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister",
        {"List": grpc.unary_unary_rpc_method_handler(lambda request, _context: answer(request))},
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@contextmanager
def kubelet_gives(socket: Path) -> Iterator[dict[tuple[str, str], list[str]]]:
    """Device ids by namespace and name of pods; what is put there is given from now on."""
    given: dict[tuple[str, str], list[str]] = {}
    with serving(socket, lambda _request: _list(given)):
        yield given


def _list(given: Mapping[tuple[str, str], list[str]]) -> bytes:
    return b"".join(
        nested(1, a_pod(*pod, nested(2, a_device("nvidia.com/gpu", *ids))))
        for pod, ids in given.items()
    )
