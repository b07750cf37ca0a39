"""The operator's program."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from modelcache_operator.config import ConfigError, OperatorConfig, load_config
from modelcache_operator.logs import set_up_logs

_BAD_OPTIONS = 2


def main() -> int:
    """Run until a signal ends it; the exit code."""
    if sys.argv[1:2] == ["webhook"]:
        return _run_webhook(sys.argv[2:])
    if sys.argv[1:2] == ["cleanup"]:
        # Imported late: neither program pays for the other's libraries.
        from modelcache_operator.cleanup import main as clean_up  # noqa: PLC0415

        return clean_up(sys.argv[2:])
    try:
        config = load_config(sys.argv[1:], os.environ, hostname=socket.gethostname())
    except ConfigError as error:
        print(f"modelcache-operator: {error}", file=sys.stderr)  # noqa: T201 - before the log
        return _BAD_OPTIONS
    set_up_logs(config.log_level)
    return asyncio.run(_run(config))


def _run_webhook(arguments: list[str]) -> int:
    # Imported late: neither program pays for the other's libraries.
    from modelcache_operator.webhook import load_webhook_config, run_webhook  # noqa: PLC0415

    config = load_webhook_config(arguments)
    set_up_logs(config.log_level)

    async def serve() -> int:
        _end_on_signals()
        try:
            await run_webhook(config)
        except asyncio.CancelledError:
            return 0
        return 0

    try:
        return asyncio.run(serve())
    except OSError as error:
        print(f"modelcache-operator webhook: {error}", file=sys.stderr)  # noqa: T201 - it ends
        return _BAD_OPTIONS


def _end_on_signals() -> None:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)


async def _run(config: OperatorConfig) -> int:
    # Imported late: bad options are told without loading kopf, botocore and the client.
    from modelcache_operator.program import StartupError, run_operator  # noqa: PLC0415

    _end_on_signals()
    try:
        await run_operator(config)
    except asyncio.CancelledError:
        return 0
    except StartupError as error:
        print(f"modelcache-operator: {error}", file=sys.stderr)  # noqa: T201 - nothing runs yet
        return _BAD_OPTIONS
    return 0


if __name__ == "__main__":
    sys.exit(main())
