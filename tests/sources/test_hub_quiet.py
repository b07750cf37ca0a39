"""The hub's library in an operator: it writes nothing, finds no token, and tells nothing about us.

In a process of its own, as any user without a home, because the library looks around when loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RUN = """
import asyncio, builtins, json, os, sys
import fakes.source_world as world
from fakes.hub_server import HubServer

opened = []
def note(event, arguments):
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "shutil.copyfile"):
        mode = arguments[1] if event == "open" else "w"
        flags = arguments[2] if event == "open" else 0
        if (isinstance(mode, str) and set(mode) & set("wax+")) or flags & (os.O_WRONLY | os.O_RDWR):
            opened.append(str(arguments[0]))
sys.addaudithook(note)

async def main(secret):
    data = world.FakeKeyedData()
    data.put_secret("hub", HF_TOKEN="hf_example")
    with HubServer() as hub:
        hub.add("org/name", {"config.json": b"{}", "m.safetensors": b"x"}, admitted={"hf_example"})
        sources = world.make_hub_sources(data)
        version = world.make_version("hf://org/name", endpoint=hub.url, secret=secret)
        manifest = await sources.resolve(version)
        await sources.sign(version, manifest.files, manifest.revision)
        if secret:
            await sources.read(version, manifest.files[0], manifest.revision)
        await sources.close()
        return [[one.path, dict(one.headers)] for one in hub.requests]

requests = [asyncio.run(main(secret)) for secret in (None, "hub")]
print(json.dumps({"opened": opened, "requests": requests}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "token").write_text("hf_from_a_file")
    ambient = {
        "HOME": str(home),
        "HF_HOME": str(home),
        "HF_TOKEN": "hf_ambient",
        "HUGGING_FACE_HUB_TOKEN": "hf_older",
        "HF_HUB_OFFLINE": "1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PYTHONPATH": str(TESTS),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.environ["PATH"],
    }
    ended = subprocess.run(
        [sys.executable, "-c", RUN],
        env=ambient,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    left = sorted(path.name for path in home.rglob("*"))
    return {**json.loads(ended.stdout), "left": left}


def test_nothing_is_written(seen):
    assert seen["opened"] == []
    assert seen["left"] == ["token"]


def test_no_token_is_found_and_none_but_the_secrets_is_sent(seen):
    anonymous, named = seen["requests"]
    assert {headers.get("authorization") for _, headers in anonymous} == {None}
    assert {headers.get("authorization") for _, headers in named} == {"Bearer hf_example"}


def test_nothing_but_the_questions_is_asked_and_told(seen):
    paths = [path for path, _ in seen["requests"][0]]
    assert all("/org/name/" in path for path in paths), paths
    for _, headers in seen["requests"][0]:
        assert "cookie" not in headers
        assert "torch" not in headers["user-agent"]
        assert "agent/" not in headers["user-agent"]
