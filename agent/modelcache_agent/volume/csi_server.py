"""The driver's gRPC services on unix sockets: Identity and Node of the CSI, and Registration.

The kubelet finds the registration socket in its folder of plug-ins, asks there who we are, and
calls the other services at the address it is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from modelcache_agent.volume.errors import (
    VolumeConflictError,
    VolumeError,
    VolumeNotNowError,
    VolumeRequestError,
)
from modelcache_agent.volume.messages import CSI, REGISTRATION
from modelcache_agent.volume.publisher import Publisher
from modelcache_agent.volume.requests import PublishRequest
from modelcache_api.names import CSI_DRIVER

_log = logging.getLogger(__name__)
_THREADS: Final = 4
_CSI_VERSION: Final = "1.0.0"
_CODES: Final = {
    VolumeRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    VolumeConflictError: grpc.StatusCode.ALREADY_EXISTS,
    VolumeNotNowError: grpc.StatusCode.UNAVAILABLE,
}

Handle = Callable[[Any, grpc.ServicerContext], Any]


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where the kubelet finds us. Paths are the same for the kubelet and for us."""

    kubelet_dir: Path

    @property
    def csi(self) -> Path:
        """Identity and Node."""
        return self.kubelet_dir / "plugins" / CSI_DRIVER / "csi.sock"

    @property
    def registration(self) -> Path:
        """Registration; the kubelet watches its folder."""
        return self.kubelet_dir / "plugins_registry" / f"{CSI_DRIVER}-reg.sock"


@dataclass(frozen=True, slots=True)
class Driver:
    """Answers the kubelet. `refused` and `stop` are set if it does not want us."""

    publisher: Publisher
    sockets: Sockets
    node_name: str
    version: str
    refused: threading.Event
    stop: threading.Event

    def identity(self) -> Mapping[str, Handle]:
        """csi.v1.Identity."""
        return {
            "GetPluginInfo": lambda _request, _context: CSI["GetPluginInfoResponse"](
                name=CSI_DRIVER, vendor_version=self.version
            ),
            "GetPluginCapabilities": _answer(CSI["GetPluginCapabilitiesResponse"]),
            "Probe": lambda _request, _context: CSI["ProbeResponse"](ready=CSI["Flag"](value=True)),
        }

    def node(self) -> Mapping[str, Handle]:
        """csi.v1.Node."""
        return {
            "NodePublishVolume": self._publish,
            "NodeUnpublishVolume": self._unpublish,
            "NodeGetCapabilities": _answer(CSI["NodeGetCapabilitiesResponse"]),
            "NodeGetInfo": lambda _request, _context: CSI["NodeGetInfoResponse"](
                node_id=self.node_name
            ),
        }

    def registration(self) -> Mapping[str, Handle]:
        """pluginregistration.Registration."""
        return {
            "GetInfo": lambda _request, _context: REGISTRATION["PluginInfo"](
                type="CSIPlugin",
                name=CSI_DRIVER,
                endpoint=str(self.sockets.csi),
                supported_versions=[_CSI_VERSION],
            ),
            "NotifyRegistrationStatus": self._note_registration,
        }

    def _publish(self, request: Any, context: grpc.ServicerContext) -> Any:
        asked = PublishRequest(
            volume_id=request.volume_id,
            target_path=request.target_path,
            is_read_only=request.readonly,
            is_block=request.volume_capability.HasField("block"),
            context=dict(request.volume_context),
        )
        _carry_out(lambda: self.publisher.publish(asked), asked.volume_id, context)
        return CSI["NodePublishVolumeResponse"]()

    def _unpublish(self, request: Any, context: grpc.ServicerContext) -> Any:
        volume_id, target = request.volume_id, request.target_path
        _carry_out(lambda: self.publisher.unpublish(volume_id, target), volume_id, context)
        return CSI["NodeUnpublishVolumeResponse"]()

    def _note_registration(self, request: Any, _context: grpc.ServicerContext) -> Any:
        if request.plugin_registered:
            _log.info("the kubelet has registered the driver")
        else:
            _log.error("the kubelet refuses the driver: %s", request.error)
            self.refused.set()
            self.stop.set()
        return REGISTRATION["RegistrationStatusResponse"]()


def start_server(driver: Driver) -> grpc.Server:
    """Serve on both sockets; the registration's comes last, because the kubelet calls at once.

    Raises:
        OSError, RuntimeError: a socket cannot be bound.
    """
    server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="csi"))
    services = {
        "csi.v1.Identity": (driver.identity(), CSI),
        "csi.v1.Node": (driver.node(), CSI),
        "pluginregistration.Registration": (driver.registration(), REGISTRATION),
    }
    for name, (handles, classes) in services.items():
        server.add_generic_rpc_handlers((_make_handler(name, handles, classes),))
    for path in (driver.sockets.csi, driver.sockets.registration):
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{path}")
        path.chmod(0o600)
    server.start()
    return server


_REQUESTS: Final = {"GetInfo": "InfoRequest", "NotifyRegistrationStatus": "RegistrationStatus"}


def _make_handler(
    service: str, handles: Mapping[str, Handle], classes: Mapping[str, Any]
) -> grpc.GenericRpcHandler:
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=classes[_REQUESTS.get(name, f"{name}Request")].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, handle in handles.items()
    }
    return grpc.method_handlers_generic_handler(service, methods)


def _answer(kind: Any) -> Handle:
    return lambda _request, _context: kind()


def _carry_out(work: Callable[[], None], volume_id: str, context: grpc.ServicerContext) -> None:
    """A refusal becomes a status whose words the kubelet shows in the pod's events."""
    try:
        work()
    except VolumeError as error:
        _log.warning("volume=%s: %s", volume_id, error)
        context.abort(_CODES[type(error)], str(error))
    except OSError as error:
        _log.exception("volume=%s", volume_id)
        context.abort(grpc.StatusCode.INTERNAL, f"{error.strerror or error}: {error.filename}")
