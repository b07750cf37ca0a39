"""The warm-up container's words and exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from modelcache_agent.decide.warm_up import judge_answer
from modelcache_agent.warmup.program import (
    EXIT_REFUSED,
    EXIT_TIMEOUT,
    EXIT_USAGE,
    EXIT_WARM,
    Surroundings,
    warm_up,
)
from modelcache_operator.injection import InjectionSettings, build_warm_up_container


class PlayedServer:
    """Answers by a list of status codes, the last of them for ever. Time passes in sleeps."""

    def __init__(self, *codes: int) -> None:
        self.codes, self.now, self.lines, self.asked = list(codes), 0.0, [], []

    def ask(self, body: bytes, seconds: float):
        self.asked.append((body, seconds))
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return judge_answer(code, "")

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def warm_up(self, deadline: float = 600.0):
        around = Surroundings(lambda: self.now, self.sleep, self.lines.append)
        return warm_up(self.ask, b"{}", deadline, around)


def test_it_asks_until_the_server_has_answered_and_tells_each_change_once():
    server = PlayedServer(503, 503, 404, 200)
    ending = server.warm_up()
    assert (ending.code, ending.message) == (EXIT_WARM, "warm after 3.0 s")
    assert [line.split(": ")[0] for line in server.lines] == ["not yet", "not yet"]
    assert len(server.asked) == 4


def test_a_refusal_ends_it_at_once_with_what_the_server_says():
    ending = PlayedServer(503, 422).warm_up()
    assert ending.code == EXIT_REFUSED
    assert ending.message == "the request is refused: the server answers 422"


def test_the_deadline_ends_it_with_the_last_answer():
    server = PlayedServer(503)
    ending = server.warm_up(10.0)
    assert ending.code == EXIT_TIMEOUT
    assert ending.message == "not warm within 10 s: the server answers 503"
    assert server.asked[0][1] == 10.0


@pytest.mark.parametrize(
    ("code", "is_ready"),
    [
        pytest.param(200, True, id="warm"),
        pytest.param(503, False, id="not in time"),
        pytest.param(422, False, id="refused"),
    ],
)
def test_the_injected_probe_counts_a_pod_as_ready_only_by_the_words_of_success(
    tmp_path, code, is_ready
):
    container = build_warm_up_container(InjectionSettings("agent:1"), {})
    *command, _ = container["readinessProbe"]["exec"]["command"]
    words = tmp_path / "last-words"
    words.write_text(PlayedServer(code).warm_up(10.0).message)
    found = subprocess.run([*command, str(words)], check=False)
    assert (found.returncode == 0) is is_ready


def test_a_wrong_command_is_one_line_that_names_the_cure():
    code = "import sys; from modelcache_agent.entry import main; sys.exit(main())"

    def run(*arguments):
        command = [sys.executable, "-c", code, "warmup", *arguments]
        env = {"PYTHONPATH": ":".join(sys.path)}
        found = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=60, env=env
        )
        assert found.returncode == EXIT_USAGE
        assert found.stdout.count("\n") == 1
        return found.stdout

    assert "--url (or MODELCACHE_AGENT_URL) is missing" in run()
    assert "--body: it is not JSON" in run("--url=http://localhost:1/", "--body={prompt}")
