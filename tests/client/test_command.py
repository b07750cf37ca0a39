"""`modelcache`: what it prints and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from modelcache.command.program import main
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import VolumeProgress, encode_progress

READY = VolumeProgress(
    "search/minilm",
    VolumeState.READY,
    Reason.CACHED,
    percent=100,
    size_bytes=3 << 20,
    version_uid="uid-1",
    content_digest="sha256:abc",
    canary_weight=20,
)


@pytest.fixture
def volume(tmp_path):
    (tmp_path / "model").mkdir()
    tensors = {"b": torch.ones(3, 4, dtype=torch.bfloat16), "a\x1b[2J": torch.tensor(1.5)}
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    tell(tmp_path, READY)
    return tmp_path


def tell(volume, progress):
    (volume / "status.json").write_bytes(encode_progress(progress))


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_attach_prints_path_version_digest_and_weights(volume, capsys):
    code, out, _err = run(capsys, "attach", "--volume", volume)
    assert code == 0
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert said["path"] == str(volume / "model")
    assert said["version"] == "uid-1"
    assert said["digest"] == "sha256:abc"
    assert said["weights"] == "stable 80%, canary 20%"
    document = json.loads(run(capsys, "attach", "--volume", volume, "--json")[1])
    assert document["weights"] == {"stable": 80, "canary": 20}
    assert document["connected"] is False


def test_index_prints_tensors_and_nothing_that_a_terminal_would_obey(volume, capsys):
    code, out, _err = run(capsys, "index", "--volume", volume)
    assert code == 0
    assert ["b", "BF16", "3x4", "24", "model.safetensors"] in [s.split() for s in out.splitlines()]
    assert "\x1b" not in out
    document = json.loads(run(capsys, "index", "--path", volume / "model", "--json")[1])
    assert {tensor["name"] for tensor in document["tensors"]} == {"b", "a\x1b[2J"}
    assert {tensor["file"] for tensor in document["tensors"]} == {"model.safetensors"}


def test_wait_tells_how_far_it_is_and_ends_with_the_model(volume, capsys):
    (volume / "model").rename(volume / "later")
    tell(volume, replace(READY, state=VolumeState.DOWNLOADING, percent=40))
    timer = threading.Timer(0.3, (volume / "later").rename, (volume / "model",))
    timer.start()
    code, out, _err = run(capsys, "wait", "--volume", volume, "--timeout", "60s")
    timer.join()
    assert code == 0
    assert "search/minilm downloading [########............]  40%" in out
    assert "search/minilm is ready  3Mi" in out.splitlines()[-1]


def test_bench_compares_the_library_with_the_path(volume, capsys):
    code, out, _err = run(capsys, "bench", "--volume", volume, "--rounds", 1, "--json")
    assert code == 0
    found = {row["name"]: row for row in json.loads(out)}
    assert found["path: read()"]["ofPath"] == 1
    assert len(found) == 4
    assert all(row["seconds"] > 0 for row in found.values())


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param({"state": VolumeState.REFUSED}, 3, "VolumeRefused", id="refused"),
        pytest.param({"state": VolumeState.WAITING}, 1, "is not complete", id="not there yet"),
    ],
)
def test_what_is_not_to_be_had_is_one_line_and_a_code(volume, capsys, change, code, words):
    (volume / "model").rename(volume / "later")
    reason = Reason.VOLUME_REFUSED if code == 3 else Reason.WAITING
    tell(volume, replace(READY, reason=reason, **change))
    for command in ("attach", "index", "bench"):
        found, out, err = run(capsys, command, "--volume", volume)
        assert (found, out) == (code, "")
        assert words in err
        assert len(err.splitlines()) == 1
    assert run(capsys, "wait", "--volume", volume, "--timeout", "0.1")[0] == code


def test_no_volume_a_damaged_file_and_a_wrong_word_are_told_apart(volume, capsys):
    assert run(capsys, "attach", "--volume", volume / "model")[0] == 2
    (volume / "model" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0notjson!")
    code, _out, err = run(capsys, "index", "--volume", volume)
    assert (code, len(err.splitlines())) == (4, 1)
    with pytest.raises(SystemExit) as ended:
        main(["wait", "--timeout", "soon"])
    assert ended.value.code == 2
    assert "write for example 60s" in capsys.readouterr().err


def test_starting_it_costs_the_standard_library_alone():
    program = "import modelcache.command.program, sys; print(' '.join(sys.modules))"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in said.stdout.split()}
    assert not loaded & {"torch", "numpy", "pydantic", "yaml", "kubernetes", "aiohttp", "grpc"}
