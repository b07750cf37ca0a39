"""The CUDA path under the whole agent, by the real bindings against the stand-in driver."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

from fakes.cuda_stand_in import environment_with
from fakes.fetch_world import safetensors_body

NOTHING = dict.fromkeys(["memory", "mappings", "addresses", "pins", "streams", "contexts"], 0)


def test_C63_the_agent_holds_a_version_on_the_card_until_the_driver_no_longer_matches(
    stand_in, tmp_path
):
    ran = subprocess.run(
        [sys.executable, "-m", "fakes.cuda_agent", str(tmp_path)],
        env=environment_with(stand_in),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["summary"].endswith("/64Mi")
    assert found["during"]["memory"] == 1
    body = safetensors_body(3 << 20, 0)
    begin = 8 + int.from_bytes(body[:8], "little")
    assert found["read"] == [{"w": hashlib.sha256(body[begin:]).hexdigest()}, "cuda:0"]
    state, tier, reason, message = found["lost"]
    assert (state, tier, reason) == ("Cached", "Disk", "GpuUnavailable")
    assert "Driver/library version mismatch" in message
    assert found["labels"] == 1, "the node has it on its disk still"
    assert found["after"] == NOTHING
