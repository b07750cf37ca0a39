"""The verbs of the API server, one request each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from modelcache_kube.errors import AlreadyExists, Expired, KubeError, NotFound
from modelcache_kube.events import Event, build_event, build_series_patch
from modelcache_kube.resources import EVENTS, PODS, TOKEN_REVIEWS, Resource
from modelcache_kube.timestamps import utc_now
from modelcache_kube.token_review import TokenIdentity, parse_token_review
from modelcache_kube.transport import APPLY, JSON_PATCH, MERGE_PATCH, RequestHook, Transport
from modelcache_kube.watching import Watcher, WatchEvent

__all__ = ["KubeClient", "ObjectList", "RequestHook"]

Object = dict[str, Any]
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class ObjectList:
    """One consistent list. `resource_version` is where a watch goes on."""

    items: tuple[Object, ...]
    resource_version: str


class KubeClient:
    """The API server, as our programs use it.

    Every method sends one request (`list`: one per chunk) with a deadline and raises KubeError.
    Nothing is retried here: who waits, and for how long, is the caller's decision.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> Object | None:
        """The object, or None if the API server says that it does not exist.

        Raises:
            NotFound: the resource itself is not served (its CRD is missing), which says nothing
                about the object.
        """
        try:
            return await self._transport.request(
                "GET", resource.path(name, namespace), verb="get", plural=resource.plural
            )
        except NotFound as error:
            if error.names_an_object:
                return None
            raise

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        chunk_size: int = _CHUNK,
    ) -> ObjectList:
        """All objects, in chunks of one consistent state; items carry no kind of their own."""
        query = _selectors(label_selector, field_selector) | {"limit": str(chunk_size)}
        try:
            return await self._list_chunks(resource, namespace, query)
        except Expired:
            # The continue token outlived its snapshot: once more, in one piece.
            query.pop("limit", None)
            return await self._list_chunks(resource, namespace, query)

    async def list_pages(
        self,
        resource: Resource,
        *,
        label_selector: str | None = None,
        chunk_size: int = _CHUNK,
    ) -> AsyncGenerator[tuple[Object, ...], None]:
        """The same list chunk by chunk, for who need not hold all of it at once.

        Raises:
            Expired: it took so long that its snapshot is gone: begin anew.
        """
        query = _selectors(label_selector, None) | {"limit": str(chunk_size)}
        async for page in self._pages(resource, None, query):
            yield page.items

    async def _list_chunks(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str]
    ) -> ObjectList:
        items: list[Object] = []
        version = ""
        async for page in self._pages(resource, namespace, query):
            items.extend(page.items)
            version = page.resource_version
        return ObjectList(tuple(items), version)

    async def _pages(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str]
    ) -> AsyncGenerator[ObjectList, None]:
        token: str | None = None
        while True:
            page = await self._transport.request(
                "GET",
                resource.path(namespace=namespace),
                verb="list",
                plural=resource.plural,
                query={**query, "continue": token} if token else query,
            )
            metadata = page.get("metadata") or {}
            items = tuple(page.get("items") or ())
            yield ObjectList(items, metadata.get("resourceVersion", ""))
            token = metadata.get("continue")
            if not token:
                return

    async def read_from_pod(self, name: str, namespace: str, *, port: int, path: str) -> Object:
        """What a pod answers to GET on one of its ports, through the API server.

        Raises:
            Forbidden: `pods/proxy` may not be read in the namespace.
            ApiUnavailable: the API server cannot reach the pod.
        """
        proxy = PODS.path(f"{name}:{port}", namespace, "proxy")
        return await self._transport.request("GET", proxy + path, verb="get", plural=PODS.plural)

    async def read_log(
        self,
        name: str,
        namespace: str,
        *,
        container: str,
        tail_lines: int,
        limit_bytes: int,
        previous: bool = False,
    ) -> str:
        """The last lines that a container of a pod has written, each with its time.

        Raises:
            Forbidden: `pods/log` may not be read in the namespace.
            Invalid: the container has not started yet, or (`previous`) was never started before.
        """
        query = {
            "container": container,
            "tailLines": str(tail_lines),
            "limitBytes": str(limit_bytes),
            "previous": "true" if previous else "false",
            "timestamps": "true",
        }
        return await self._transport.read_text(
            PODS.path(name, namespace, "log"), verb="get", plural=PODS.plural, query=query
        )

    async def read_version(self) -> Object:
        """What the API server says of its own build."""
        return await self._transport.request("GET", "/version", verb="get", plural="version")

    async def read_time(self) -> datetime:
        """The API server's clock, in whole seconds."""
        return await self._transport.read_date("/version", verb="get", plural="version")

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        on_error: Callable[[KubeError], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Every change, from now until the iterator is closed; see `Watcher`."""
        query = _selectors(label_selector, field_selector)
        return Watcher(self._transport, resource, namespace, query, on_error=on_error).events()

    async def apply(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> Object:
        """Server-side apply: exactly these fields are this manager's; creates what is not there.

        Raises:
            Conflict: another manager owns a field and `force` is False, or the UID or
                resourceVersion in the metadata is not that of the object.
        """
        metadata = obj["metadata"]
        return await self._transport.request(
            "PATCH",
            resource.path(metadata["name"], metadata.get("namespace"), subresource),
            verb="apply",
            plural=resource.plural,
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
            body={"apiVersion": resource.api_version, "kind": resource.kind, **obj},
            content_type=APPLY,
        )

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Object:
        """RFC 7386: members replaced, null removes. A resourceVersion in it guards the object.

        Raises:
            Conflict: the guard does not hold.
            NotFound: there is no such object.
        """
        return await self._transport.request(
            "PATCH",
            resource.path(name, namespace, subresource),
            verb="patch",
            plural=resource.plural,
            query=_manager(field_manager),
            body=dict(body),
            content_type=MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
    ) -> Object:
        """RFC 6902: all operations or none. A `test` among them guards what it names.

        Raises:
            Invalid: a test fails, or a path is not there (422 without causes); or the outcome is
                refused by validation.
            NotFound: there is no such object.
        """
        return await self._transport.request(
            "PATCH",
            resource.path(name, namespace),
            verb="patch",
            plural=resource.plural,
            query=_manager(field_manager),
            body=[dict(operation) for operation in operations],
            content_type=JSON_PATCH,
        )

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        field_manager: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Object:
        """A new object.

        Raises:
            AlreadyExists: one of that name is there; the API server decides between two creators.
        """
        return await self._transport.request(
            "POST",
            resource.path(namespace=obj["metadata"].get("namespace")),
            verb="create",
            plural=resource.plural,
            query=_manager(field_manager),
            body={"apiVersion": resource.api_version, "kind": resource.kind, **obj},
            timeout_seconds=timeout_seconds,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
    ) -> bool:
        """Delete in the background; False if it was gone already.

        Raises:
            Conflict: the object of that name has another UID than `uid`.
        """
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._transport.request(
                "DELETE",
                resource.path(name, namespace),
                verb="delete",
                plural=resource.plural,
                body=options,
            )
        except NotFound as error:
            if error.names_an_object:
                return False
            raise
        return True

    async def token_review(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """Whose token it is, for one of the audiences. An unknown token is no error."""
        review = await self._transport.request(
            "POST",
            TOKEN_REVIEWS.path(),
            verb="create",
            plural=TOKEN_REVIEWS.plural,
            body={
                "apiVersion": TOKEN_REVIEWS.api_version,
                "kind": TOKEN_REVIEWS.kind,
                "spec": {"token": token, "audiences": list(audiences)},
            },
        )
        return parse_token_review(review)

    async def post_event(self, event: Event, now: datetime | None = None) -> None:
        """Tell people. Repeats (`count` above one) update the event that is there."""
        now = now or utc_now()
        if event.count > 1:
            try:
                await self._repeat_event(event, now)
            except NotFound:
                pass  # expired on the server: told anew below
            else:
                return
        try:
            await self.create(EVENTS, build_event(event, now))
        except AlreadyExists:
            await self._repeat_event(event, now)

    async def _repeat_event(self, event: Event, now: datetime) -> None:
        patch = build_series_patch(event, now)
        await self.merge_patch(EVENTS, event.name, patch, namespace=event.namespace)


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in query.items() if value is not None}


def _manager(field_manager: str | None) -> dict[str, str]:
    return {} if field_manager is None else {"fieldManager": field_manager}
