"""The agent's process: `modelcache-agent --help`.

Exit codes: 0 stopped as told, 1 a part of the agent failed, 2 it must not start as configured.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from modelcache_agent.config import Config, ConfigError, parse_config
from modelcache_agent.identity import IdentityError, NodeIdentity, find_identity
from modelcache_agent.log import set_up_logging
from modelcache_agent.startup import check_store_folder, choose_capacity, choose_watermarks
from modelcache_agent.tiers.errors import StoreError, StoreRefusedError, describe_error
from modelcache_agent.tiers.recovery import OpenStore, open_store
from modelcache_agent.tiers.usage import can_tell_use
from modelcache_api.quantities import format_bytes

if TYPE_CHECKING:
    from modelcache_agent.agent import Surroundings
    from modelcache_agent.decide.watermarks import Watermarks

_log = logging.getLogger("modelcache_agent.main")
_EXIT_FAILED = 1
_EXIT_REFUSED = 2
# A hung disk or resolver must not hold the process longer than it promises to drain.
_LAST_RESORT_SECONDS = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, run until SIGTERM or SIGINT, drain."""
    try:
        config = parse_config(sys.argv[1:] if arguments is None else arguments, os.environ)
        set_up_logging(config.log_level)
        return _start(config)
    except (ConfigError, IdentityError, StoreError) as error:
        print(f"modelcache-agent: {error}", file=sys.stderr)  # noqa: T201 - logging may not be set up
        return _EXIT_REFUSED


def _start(config: Config) -> int:
    """Everything that can refuse to start comes before anything that runs."""
    # Users of every pod walk through the folders made here.
    os.umask(0o022)
    identity = find_identity(config.node_name, config.node_uid, config.grant_token_file)
    set_up_logging(config.log_level, node=identity.name)
    capacity, marks, opened = _open(config, identity)
    try:
        held = tuple(opened.store.catalog)
        _log.info(
            "node=%s store=%s capacity=%s watermarks=%d/%d%% versions=%d",
            identity.name,
            config.store,
            format_bytes(capacity),
            marks.high,
            marks.low,
            len(held),
        )
        if not can_tell_use(config.store):
            _log.warning(
                "file leases do not work here (CAP_LEASE, or the file system): "
                "every model counts as in use and none is evicted"
            )
        # Imported late: the store is adopted and the lock held before the slow imports.
        from modelcache_agent.agent import Surroundings  # noqa: PLC0415

        around = Surroundings(config, identity, opened.store, capacity, marks)
        was_told = asyncio.run(_serve(around))
    finally:
        opened.close()
    return 0 if was_told else _EXIT_FAILED


def _open(config: Config, identity: NodeIdentity) -> tuple[int, Watermarks, OpenStore]:
    try:
        check_store_folder(config.store, require_mountpoint=config.require_mountpoint)
        capacity = choose_capacity(config.store, config.capacity)
        marks = choose_watermarks(
            config.store, config.disk_high_watermark, config.disk_low_watermark
        )
        return capacity, marks, open_store(config.store, node_uid=identity.uid)
    except OSError as error:
        raise StoreRefusedError(
            f"--store {config.store} cannot be opened: {describe_error(error)}: "
            "mend the disk or its mount, or give another folder"
        ) from error


async def _serve(around: Surroundings) -> bool:
    from modelcache_agent.agent import run_agent  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin_to_stop() -> None:
        signal.alarm(_LAST_RESORT_SECONDS)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_to_stop)
    # What is loaded by now stays for the process' life.
    gc.freeze()
    return await run_agent(around, stop)


if __name__ == "__main__":
    from modelcache_agent.entry import main as enter

    sys.exit(enter())
