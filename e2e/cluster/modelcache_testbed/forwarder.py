"""The host's door to a network namespace: ``forwarder INSTANCE READY_FILE PORT...``.

Each port is listened to on the host's loopback and leads to the same port of the loopback inside.
The sockets are bound first; the process then moves into the namespace and keeps them, so the
host's own network is not changed in any way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

from modelcache_testbed.ports import LOOPBACK
from modelcache_testbed.real_nodes.namespaces import namespace_file

_CHUNK_BYTES = 1 << 16
_SERVE = "--serve"


def main() -> None:
    """Bind and move (first call), or serve the sockets that were handed over (second call)."""
    if sys.argv[1] == _SERVE:
        asyncio.run(_serve(Path(sys.argv[2]), [int(fd) for fd in sys.argv[3:]]))
        return
    folder, ready_file, *ports = sys.argv[1:]
    namespace = namespace_file(Path(folder))
    descriptors = [str(_listen(int(port))) for port in ports]
    again = [sys.executable, "-m", "modelcache_testbed.forwarder", _SERVE, ready_file]
    os.execvp("nsenter", ["nsenter", f"--net={namespace}", "--", *again, *descriptors])


def _listen(port: int) -> int:
    listening = socket.create_server((LOOPBACK, port), backlog=128)
    listening.set_inheritable(True)
    return listening.detach()


async def _serve(ready_file: Path, descriptors: list[int]) -> None:
    servers = [
        await asyncio.start_server(_forward, sock=socket.socket(fileno=fd)) for fd in descriptors
    ]
    ready_file.write_text(str(os.getpid()))  # noqa: ASYNC240 - once, before anybody is served
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    port = writer.get_extra_info("sockname")[1]
    try:
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
    finally:
        writer.close()
        inner_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(_CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()


if __name__ == "__main__":
    main()
