"""`modelcache-agent get --help`: a version into a folder, for pods on nodes without an agent.

Exit codes: 0 the model is there, 1 not in time, 2 it cannot start as told, 3 refused, or the bytes
are not what they should be; 143 told to stop. What was fetched is kept for the next run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from modelcache_agent.adapters.http_grants import HttpGrants
from modelcache_agent.adapters.http_pod_versions import ask_for_version
from modelcache_agent.adapters.operator_http import OperatorHttp
from modelcache_agent.adapters.system_clock import SystemClock
from modelcache_agent.config import (
    MOST_STREAMS,
    ConfigError,
    Option,
    Program,
    number_from,
    parse_bandwidth,
    parse_duration,
    parse_operator_url,
    parse_path,
    parse_text,
    read_options,
)
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.decide.getting import Patience, name_cure
from modelcache_agent.fetch import FetchConfig, FetchEngine, SourceGate
from modelcache_agent.fetch.clock import SystemClock as FetchClock
from modelcache_agent.get.getter import Getter
from modelcache_agent.get.target import Target
from modelcache_agent.get.telling import Teller
from modelcache_agent.log import set_up_logging
from modelcache_agent.peers.waiting import GrantQueue
from modelcache_agent.slots import SlotKeeper
from modelcache_agent.tiers.errors import StoreError, StoreInUseError, describe_error
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.transfers import TransferFailedError, Transfers
from modelcache_api.manifest import PIECE_BYTES
from modelcache_api.names import PATH_POD_GRANTS
from modelcache_api.pod_wire import PodVersionRequest
from modelcache_api.quantities import format_bytes, parse_bytes

EXIT_THERE: Final = 0
EXIT_TIMEOUT: Final = 1
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3
EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_LOOK_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 5.0
_MOUNT: Final = "/var/run/secrets/modelcache"
_PROGRAM: Final = Program(
    "modelcache-agent get",
    "Brings a ModelVersion of the pod's own namespace into a folder, verified, as <to>/model.",
)


def _parse_memory(value: str) -> int:
    size = parse_bytes(value)
    if size < PIECE_BYTES:
        raise ValueError(f"{value!r} is less than one piece: give 8Mi at least")
    return size


OPTIONS: Final = (
    Option(
        "model-version",
        "Name of the ModelVersion; the pod's namespace may stand before it: search/minilm-v1.",
        parse_text,
        is_positional=True,
    ),
    Option("cache", "In its place: the stable version of this ModelCache.", parse_text),
    Option("to", "Folder to fill; it is made if it is not there.", parse_path, is_required=True),
    Option(
        "operator-url",
        "Where the operator grants.",
        parse_operator_url,
        "https://modelcache-operator.modelcache-system.svc",
    ),
    Option("operator-ca-file", "PEM file of the operator's CA.", parse_path, f"{_MOUNT}/ca.crt"),
    Option(
        "grant-token-file",
        "The pod's projected token with audience modelcache-grant.",
        parse_path,
        f"{_MOUNT}/token",
    ),
    Option(
        "streams", "Requests to object stores at the same time.", number_from(1, MOST_STREAMS), "4"
    ),
    Option(
        "memory",
        "Bytes of memory for what is in flight: 8Mi for each stream at least.",
        _parse_memory,
        "128Mi",
    ),
    Option(
        "max-bandwidth",
        "Bytes a second over all streams, e.g. 500Mi; default: no cap.",
        parse_bandwidth,
    ),
    Option("timeout", "How long to go on without any progress, e.g. 30m.", parse_duration, "10m"),
)


def main(arguments: Sequence[str]) -> int:
    """Get and tell."""
    try:
        values = read_options(_PROGRAM, OPTIONS, arguments, os.environ)
        asked = read_name(values["model_version"], values["cache"])
        _check_files(values["operator_ca_file"], values["grant_token_file"])
    except ConfigError as error:
        _print_line(f"modelcache-agent get: {error}")
        return EXIT_USAGE
    set_up_logging("warning")
    # Users of other containers read what is made here.
    os.umask(0o022)
    return asyncio.run(_run(asked, values))


def read_name(model_version: str | None, cache: str | None) -> PodVersionRequest:
    """What is asked for.

    Raises:
        ConfigError: neither or both were given, or it is no name.
    """
    given = model_version or cache
    if given is None or (model_version and cache):
        raise ConfigError("give the name of one ModelVersion, or of one ModelCache with --cache")
    namespace, slash, name = given.rpartition("/")
    kind = "model_version" if model_version else "model_cache"
    try:
        return PodVersionRequest(namespace=namespace if slash else None, **{kind: name})
    except ValueError:
        message = f"{given[:80]!r} is no name: write minilm-v1 or search/minilm-v1"
        raise ConfigError(message) from None


def _check_files(authority: Path, token: Path) -> None:
    for option, path in (("operator-ca-file", authority), ("grant-token-file", token)):
        if not path.is_file():
            raise ConfigError(
                f"--{option}: there is no file {path}: mount it, as docs/get.md shows"
            )


async def _run(asked: PodVersionRequest, values: dict[str, Any]) -> int:
    name = asked.model_version or asked.model_cache or ""
    teller = Teller(name, time.monotonic, _print_line)
    work = asyncio.create_task(_get(asked, values, teller), name="get")
    loop = asyncio.get_running_loop()
    # The first process of a container ignores SIGTERM unless it says otherwise.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        teller.say("was told to stop: what was fetched is kept for the next run")
        return EXIT_TERMINATED
    except TransferFailedError as failure:
        cure = name_cure(failure.reason)
        teller.say(f"failed: {failure.reason}: {failure.message}: {cure}")
        is_final = Patience(float("inf")).pause(failure.reason, failure.retry_after, 0) is None
        return EXIT_REFUSED if is_final else EXIT_TIMEOUT
    except StoreError as error:
        teller.say(f"failed: {error}")
        return EXIT_USAGE
    except OSError as error:
        teller.say(f"failed: --to {values['to']} cannot be written: {describe_error(error)}")
        return EXIT_USAGE
    return EXIT_THERE


async def _get(asked: PodVersionRequest, values: dict[str, Any], teller: Teller) -> None:
    kind = "modelcache" if asked.model_cache else "modelversion"
    patience = Patience(values["timeout"])
    async with AsyncExitStack() as stack:
        thread = StoreThread()
        stack.push_async_callback(thread.close, _DRAIN_SECONDS)
        target = await _open(values["to"], thread, teller, patience)
        stack.push_async_callback(_close, thread, target)
        http = OperatorHttp(
            values["operator_url"],
            ca_file=values["operator_ca_file"],
            token_file=values["grant_token_file"],
        )
        stack.push_async_callback(http.close)
        grants = HttpGrants(http, path=PATH_POD_GRANTS)
        clock, fetch_clock = SystemClock(), FetchClock()
        gate = SourceGate(fetch_clock, clock.monotonic)
        engine = await stack.enter_async_context(
            FetchEngine(grants, _fetch_config(values), fetch_clock, gate=gate)
        )
        # A pod is granted no source that a limit covers, so neither of the two has to wait.
        queue, slots = GrantQueue(grants, None, clock), SlotKeeper(grants, gate, clock)
        getter = Getter(
            asked=f"{kind}/{asked.model_cache or asked.model_version}",
            ask=partial(ask_for_version, http, asked),
            target=target,
            thread=thread,
            transfers=Transfers(grants, engine, target.store, thread, queue, slots),
            teller=teller,
            patience=patience,
        )
        stack.callback(getter.stopping.set)
        digest = await getter.run()
        received = format_bytes(engine.counters().network_bytes)
        teller.say(f"is ready at {target.model}: {digest}, {received} fetched")


async def _close(thread: StoreThread, target: Target) -> None:
    """Nothing is written any more when others may fill the folder."""
    await thread.close(_DRAIN_SECONDS)
    target.close()


async def _open(root: Path, thread: StoreThread, teller: Teller, patience: Patience) -> Target:
    """The target, once nobody else fills it."""
    while True:
        try:
            return await thread.call(Target, root)
        except StoreInUseError:
            if teller.idle_seconds >= patience.seconds:
                raise
            teller.say_waiting(f"waits: another process fills {root}")
            await asyncio.sleep(_LOOK_SECONDS)


def _fetch_config(values: dict[str, Any]) -> FetchConfig:
    cap = values["max_bandwidth"]
    return FetchConfig(
        streams=min(values["streams"], values["memory"] // PIECE_BYTES),
        buffer_bytes=values["memory"],
        bandwidth=None if cap is None else Bandwidth(cap),
    )


def _print_line(line: str) -> None:
    print(line, file=sys.stdout, flush=True)  # noqa: T201 - the container's log
