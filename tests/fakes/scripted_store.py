"""Sources for the leader's core in memory: the real client, a store that is told what to say."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from builders import GIB
from fakes.s3_stub import Answer, Request, S3Stub, listing, unversioned
from fakes.source_world import LOOPBACK_ALLOWED, FakeKeyedData, make_sources
from fakes.tls_world import PrivateAuthority


class ScriptedStore:
    """One model in a bucket. `refusal` is what is answered in place of its list."""

    def __init__(self) -> None:
        self.etag = '"e"'
        self.refusal: Answer | None = None
        self.allow_list = LOOPBACK_ALLOWED
        self.data = FakeKeyedData()
        self.data.put_credentials("keys", "AKEXAMPLE", "not-a-secret")
        self._closing = ExitStack()
        self._stub = self._closing.enter_context(S3Stub(self._answer))
        self.endpoint = self._stub.endpoint

    def close(self) -> None:
        self._closing.close()

    def use_private_authority(self) -> None:
        """It is reached by TLS alone, and its certificate is of an authority that nobody knows."""
        stub = S3Stub(self._answer, tls=PrivateAuthority().context())
        self.endpoint = self._closing.enter_context(stub).endpoint

    def go_away(self) -> None:
        """Nobody listens there any more."""
        self.close()

    def _answer(self, request: Request) -> Answer:
        if self.refusal is not None:
            return self.refusal
        if "versioning" in request.query:
            return unversioned()
        return listing([("m/model.bin", GIB, self.etag)])

    async def resolve(self, version: Any, revision: str | None = None) -> Any:
        """With a client of its own: each settling of the core has another event loop."""
        sources = make_sources(self.data, allow_list=self.allow_list)
        try:
            return await sources.resolve(version, revision)
        finally:
            await sources.close()
