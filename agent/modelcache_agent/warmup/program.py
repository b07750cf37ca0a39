"""The warm-up container: `modelcache-agent warmup --help`.

It asks the pod's own server until it has answered once, says so in a file, and stays: the kubelet
counts the pod as Ready when the file says `warm after`. Needs no API server, no agent and no
volume. Exit codes: 1 not warm in time, 2 the command is wrong, 3 the server refuses the request,
143 told to stop.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_agent.config import (
    ConfigError,
    Option,
    Program,
    number_from,
    parse_duration,
    parse_path,
    parse_text,
    read_options,
)
from modelcache_agent.decide.warm_up import (
    DEFAULT_BODY,
    DEFAULT_TOKENS,
    MOST_TOKENS,
    Address,
    Judgement,
    Outcome,
    build_body,
    judge_answer,
    parse_address,
)

EXIT_WARM: Final = 0
EXIT_TIMEOUT: Final = 1
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_LOOK_SECONDS: Final = 1.0
_REMIND_SECONDS: Final = 30.0
_MOST_ANSWER_BYTES: Final = 4096
_PROGRAM: Final = Program(
    "modelcache-agent warmup", "Sends a pod's server its first request, and says when it is warm."
)
OPTIONS: Final = (
    Option("url", "Where the pod's server takes requests.", parse_address, is_required=True),
    Option("body", "JSON to POST; {prompt} becomes the dummy prompt.", parse_text, DEFAULT_BODY),
    Option(
        "tokens",
        "Length of the dummy prompt, in tokens (about).",
        number_from(1, MOST_TOKENS),
        str(DEFAULT_TOKENS),
    ),
    Option("deadline", "How long the server may take to be warm.", parse_duration, "10m"),
    Option("report", "The file that says how it ended.", parse_path, "/dev/termination-log"),
)

Ask = Callable[[bytes, float], Judgement]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time and the log."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    print_line: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended: the exit code, and one line for whoever looks at the pod."""

    code: int
    message: str


def main(arguments: Sequence[str]) -> int:
    """Warm up and stay, or say why not."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_EXIT_TERMINATED))
    try:
        values = read_options(_PROGRAM, OPTIONS, arguments, os.environ)
        body = build_body(values["body"], values["tokens"])
    except ConfigError as error:
        return _end_wrong(str(error))
    except ValueError as error:
        return _end_wrong(f"--body: {error}")
    address = values["url"]
    around = Surroundings(time.monotonic, time.sleep, _print_line)
    ending = warm_up(
        lambda content, seconds: ask(address, content, seconds), body, values["deadline"], around
    )
    _print_line(ending.message)
    values["report"].write_text(ending.message)
    while ending.code == EXIT_WARM:
        signal.pause()
    return ending.code


def warm_up(send: Ask, body: bytes, deadline: float, around: Surroundings) -> Ending:
    """Ask until the server has answered, refuses, or the time is over."""
    began = told_at = around.monotonic()
    told = ""
    while True:
        left = deadline - (around.monotonic() - began)
        judged = send(body, max(left, _LOOK_SECONDS))
        now = around.monotonic()
        if judged.outcome is Outcome.WARM:
            return Ending(EXIT_WARM, f"warm after {now - began:.1f} s")
        if judged.outcome is Outcome.REFUSED:
            return Ending(EXIT_REFUSED, f"the request is refused: {judged.message}")
        if now - began >= deadline:
            return Ending(EXIT_TIMEOUT, f"not warm within {deadline:g} s: {judged.message}")
        if judged.message != told or now - told_at >= _REMIND_SECONDS:
            around.print_line(f"not yet: {judged.message}")
            told, told_at = judged.message, now
        around.sleep(_LOOK_SECONDS)


def ask(address: Address, body: bytes, seconds: float) -> Judgement:
    """One request. No proxy and no redirect: it is the pod's own server that is to be warm."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", address.path, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read(_MOST_ANSWER_BYTES).decode(errors="replace")
        return judge_answer(answer.status, text)
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        return Judgement(Outcome.NOT_YET, f"{address.host}:{address.port} does not answer: {why}")
    finally:
        connection.close()


def _end_wrong(message: str) -> int:
    _print_line(f"modelcache-agent warmup: {message}")
    return EXIT_USAGE


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the container's log
