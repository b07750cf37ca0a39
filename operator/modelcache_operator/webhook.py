"""Injection for clusters without MutatingAdmissionPolicy: a process of its own, kept small.

`modelcache-operator webhook` answers AdmissionReviews over TLS and writes nothing. It is asked
for pods with our label alone, with a time-out of 2 s and failurePolicy Ignore: while it is away
they are created without their volume, at most 2 s later, and no other pod is concerned.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from modelcache_api.names import ENV_PREFIX_OPERATOR
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_kube import MODEL_CACHES, Change, ConnectConfig, KubeClient, KubeError, connect
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.injection import InjectionSettings, KnownCache, know_cache
from modelcache_operator.injection_review import review_pod
from modelcache_operator.injection_webhook import PATH

_log = logging.getLogger(__name__)

HEALTH_PATH: Final = "/healthz"
# A pod is at most as large as etcd's request limit; a review holds it once, or twice for updates.
_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_RELOAD_SECONDS: Final = 60.0
# For reviews at work when the program is told to end: within a pod's grace of 30 s.
_LAST_ANSWERS_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """Where it listens, and with what."""

    host: str
    port: int
    certificate: Path
    key: Path
    wait_image: str
    kubeconfig: Path | None = None
    log_level: str = "info"


@dataclass(slots=True)
class KnownCaches:
    """What the watch tells of ModelCaches; the last that was known while it is away."""

    is_synced: bool = False
    _known: dict[ObjectKey, KnownCache] = field(default_factory=dict)

    def find(self, key: ObjectKey) -> KnownCache | None:
        """None where there is none of that name."""
        return self._known.get(key)

    async def follow(self, kube: KubeClient) -> None:
        """Watch for ever."""

        def tell(error: KubeError) -> None:
            _log.warning("cannot watch ModelCaches: %s", error)

        async with aclosing(kube.watch(MODEL_CACHES, on_error=tell)) as events:
            async for event in events:
                self._note(event.type, event.object)

    def _note(self, change: Change, raw: Mapping[str, Any]) -> None:
        if change is Change.SYNCED:
            self.is_synced = True
            return
        metadata = raw["metadata"]
        key = ObjectKey(metadata["namespace"], metadata["name"])
        if change is Change.DELETED:
            self._known.pop(key, None)
            return
        try:
            status = ModelCacheStatus.model_validate(raw.get("status") or {})
        except ValueError as error:
            _log.warning("cannot read ModelCache %s: %s", key, error)
            return
        self._known[key] = know_cache(status)


class WebhookServer:
    """The door for the API server."""

    def __init__(self, caches: KnownCaches, settings: InjectionSettings) -> None:
        self._caches = caches
        self._settings = settings
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; the port is returned (0 asks for a free one)."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post(PATH, self._review)
        app.router.add_get(HEALTH_PATH, self._health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LAST_ANSWERS_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Finish the requests at work and close the door; safe to repeat."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _review(self, request: web.Request) -> web.Response:
        try:
            review = json.loads(await request.read())
            answer = review_pod(review, self._caches.find, self._settings)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            _log.warning("a review that cannot be read: %s", type(error).__name__)
            return web.Response(status=HTTPStatus.BAD_REQUEST, text="no AdmissionReview of a pod\n")
        return web.json_response(answer)

    async def _health(self, _: web.Request) -> web.Response:
        # Before the first list every ModelCache would seem to be missing.
        if not self._caches.is_synced:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="not synced yet\n")
        return web.Response(text="ok\n")


class Certificate:
    """The serving certificate as files that are renewed under us."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._loaded: tuple[bytes, bytes] | None = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    def load(self) -> bool:
        """Take in the files if they have changed; new connections get them.

        Raises:
            OSError: they cannot be read, or do not belong together.
        """
        found = (self._certificate.read_bytes(), self._key.read_bytes())
        if found == self._loaded:
            return False
        self.context.load_cert_chain(self._certificate, self._key)
        self._loaded = found
        return True

    async def keep_fresh(self) -> None:
        """Look at the files now and then, for ever."""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            try:
                if await asyncio.to_thread(self.load):
                    _log.info("a new serving certificate")
            except OSError as error:
                _log.warning("the serving certificate cannot be read: %s", error)


@asynccontextmanager
async def serving(config: WebhookConfig, kube: KubeClient) -> AsyncIterator[int]:
    """The webhook at work; its port. Nothing is answered before ModelCaches are known."""
    caches = KnownCaches()
    certificate = Certificate(config.certificate, config.key)
    certificate.load()
    server = WebhookServer(caches, InjectionSettings(config.wait_image))
    tasks = [
        asyncio.create_task(caches.follow(kube), name="model-caches"),
        asyncio.create_task(certificate.keep_fresh(), name="certificate"),
    ]
    try:
        yield await server.start(config.host, config.port, certificate.context)
    finally:
        await server.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_webhook(config: WebhookConfig) -> None:
    """Serve until cancelled."""
    wanted = ConnectConfig(kubeconfig=config.kubeconfig, user_agent="modelcache-webhook")
    async with connect(wanted) as kube, serving(config, kube) as port:
        _log.info("answering on port %d", port)
        await asyncio.Event().wait()


def load_webhook_config(arguments: Sequence[str]) -> WebhookConfig:
    """The options; each also as MODELCACHE_OPERATOR_WEBHOOK_<NAME>. Ends the program if wrong."""
    parser = argparse.ArgumentParser(
        prog="modelcache-operator webhook", description="Injection by webhook."
    )

    def add(flag: str, default: str | None, told: str, kind: type = str) -> None:
        variable = (
            f"{ENV_PREFIX_OPERATOR}WEBHOOK_{flag.removeprefix('--').replace('-', '_').upper()}"
        )
        given = os.environ.get(variable, default)
        parser.add_argument(
            flag, default=given, required=given is None, type=kind, help=f"{told}; {variable}"
        )

    add("--host", "0.0.0.0", "address to listen on")  # noqa: S104 - a pod's own address
    add("--port", "9443", "port to listen on", int)
    add("--tls-cert-file", None, "PEM; read again when it changes", Path)
    add("--tls-key-file", None, "PEM; read again when it changes", Path)
    add("--wait-image", None, "image of the wait container: the agent's")
    add("--kubeconfig", "", "file; the pod's account without it")
    add("--log-level", "info", "debug, info, warning or error")
    given = parser.parse_args(arguments)
    return WebhookConfig(
        host=given.host,
        port=given.port,
        certificate=given.tls_cert_file,
        key=given.tls_key_file,
        wait_image=given.wait_image,
        kubeconfig=Path(given.kubeconfig) if given.kubeconfig else None,
        log_level=given.log_level,
    )
