"""A TCP relay before the API server, to cut, freeze or refuse connections at will."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class Relay:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.close()
            return
        away_reader, away_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, away_writer}
        await asyncio.gather(self._pump(reader, away_writer), self._pump(away_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def freeze(self) -> None:
        """Bytes no longer arrive, as if a cable were pulled."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Every connection ends now."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def refuse(self, *, refusing: bool = True) -> None:
        """New connections are closed at once; those that are there end."""
        self._refusing = refusing
        self.cut()


@asynccontextmanager
async def relay_before(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[Relay, Path]]:
    """The relay, and a kubeconfig that goes through it."""
    config = yaml.safe_load(kubeconfig.read_text())  # noqa: ASYNC240 - a small file
    cluster = config["clusters"][0]["cluster"]
    address = urlsplit(cluster["server"])
    relay = Relay(address.hostname, address.port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    cluster["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    own = folder / "relayed.kubeconfig"
    own.write_text(yaml.safe_dump(config))
    try:
        yield relay, own
    finally:
        server.close()
        relay.thaw()
        relay.cut()
