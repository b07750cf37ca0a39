"""`modelcache-agent get`: complete and verified, or a failure with its reason; never in between."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import random_body, safetensors_body
from fakes.get_world import HIDDEN
from fakes.range_server import Served
from modelcache_agent.get.program import main
from modelcache_agent.get.target import Target
from modelcache_api.cut import Cut
from modelcache_api.wire import WireError
from modelcache_testbed.waiting import wait_until

MIB = 1 << 20
BODIES = {
    "model.safetensors": safetensors_body(20 * MIB, seed=1),
    "config.json": b"{}",
    "1_Pooling/config.json": random_body(1000, seed=2),
}
# Slow enough to be caught in the middle.
SLOWLY = Fault(trickle=(MIB // 4, 0.02))


def test_a_version_is_there_as_a_whole_and_nothing_is_proposed(program, grants, add):
    version = add("m1", BODIES)
    code, said = program.run("m1")
    assert (code, program.read()) == (0, BODIES), said
    assert f"m1 is ready at {program.target / 'model'}: {version.content_digest}" in said
    assert "no node has read it yet" in said
    assert {path for path, _ in grants.requests} == {"/v1/pod/versions", "/v1/pod/grants"}
    assert set(grants.tokens) == {"the pod's token"}
    for path in (program.target, *(program.target / "model").rglob("*")):
        mode = path.stat().st_mode
        assert mode & 0o005 == 0o005 if path.is_dir() else mode & 0o777 == 0o444


def test_a_part_of_a_model_is_read_by_ranges(program, objects, proxy, add):
    whole = BODIES["model.safetensors"]
    cut = Cut(len(whole), b"a header", ((MIB, 3 * MIB), (19 * MIB, 20 * MIB)))
    part = cut.literal + whole[MIB : 3 * MIB] + whole[19 * MIB : 20 * MIB]
    add("m1", {"model.bin": part, "config.json": b"{}"}, cuts={"model.bin": cut})
    objects.objects["uid-m1/model.bin"] = dataclasses.replace(
        Served.of(whole), etag=objects.objects["uid-m1/model.bin"].etag
    )
    code, said = program.run("m1")
    assert (code, program.read()) == (0, {"model.bin": part, "config.json": b"{}"}), said
    assert proxy.total_bytes < 3 * MIB + 64 * 1024


def test_C14_a_second_run_reads_nothing_and_needs_nobody(program, grants, objects, proxy, add):
    add("m1", BODIES, knows_content=True)
    assert program.run("m1")[0] == 0
    fetched = proxy.total_bytes
    inode = (program.target / "model").stat().st_ino
    code, said = program.run("m1")
    assert (code, proxy.total_bytes) == (0, fetched)
    assert "is held and verified here" in said
    assert (program.target / "model").stat().st_ino == inode
    objects.objects.clear()
    grants.failing_status = 503
    code, said = program.run("m1")
    assert (code, program.read()) == (0, BODIES)
    assert "is taken as it was verified here before" in said


def test_C13_a_killed_run_goes_on_where_it_was(program, proxy, add):
    add("m1", BODIES, knows_content=True)
    proxy.script("model.safetensors", SLOWLY)
    killed = program.start("m1")
    program.await_bytes(lambda: proxy.total_bytes, 12 * MIB)
    killed.kill()
    killed.wait()
    assert not (program.target / "model").exists()
    proxy.heal()
    assert program.run("m1")[0] == 0
    assert program.read() == BODIES
    # One piece for each stream may be lost, whatever was in flight included.
    assert proxy.total_bytes - sum(map(len, BODIES.values())) <= 4 * 8 * MIB


def test_told_to_stop_it_ends_soon_and_keeps_what_it_has(program, proxy, add):
    add("m1", BODIES)
    proxy.script("model.safetensors", SLOWLY)
    stopped = program.start("m1")
    program.await_bytes(lambda: proxy.total_bytes, 10 * MIB)
    stopped.send_signal(signal.SIGTERM)
    said, _ = stopped.communicate(timeout=15)
    assert stopped.returncode == 128 + signal.SIGTERM
    assert "was told to stop" in said
    assert "Traceback" not in said
    assert list((program.target / HIDDEN / "store" / "partial").rglob("*.part"))
    assert not (program.target / "model").exists()


def test_C20_what_is_no_model_is_refused_by_its_kind(program, add):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    add("m1", BODIES | {"model.safetensors": pointer})
    code, said = program.run("m1")
    assert code == 3
    assert "NotAModel" in said
    assert "LFS pointer" in said
    assert not (program.target / "model").exists()


def test_bytes_that_the_nodes_did_not_find_are_refused(program, objects, grants, add):
    version = add("m1", BODIES, knows_content=True)
    other = safetensors_body(20 * MIB, seed=3)
    objects.objects["uid-m1/model.safetensors"] = objects.objects["uid-m1/model.safetensors"].of(
        other, version.etag
    )
    code, said = program.run("m1")
    assert code == 3
    assert "DigestMismatch" in said
    assert not (program.target / "model").exists()


def test_C23_a_pin_that_the_bytes_are_not_refuses_them_and_they_are_not_kept(program, add):
    add("m1", BODIES, pin="sha256:" + "0" * 64)
    code, said = program.run("m1")
    assert code == 3
    assert "DigestMismatch" in said
    assert "spec.digest" in said
    assert not (program.target / "model").exists()
    assert not list((program.target / HIDDEN / "store" / "partial").iterdir())


def test_another_version_takes_the_place_and_the_room_of_the_first(program, add):
    add("m1", BODIES)
    second = {"model.safetensors": safetensors_body(9 * MIB, seed=4), "config.json": b"{}"}
    add("m2", second)
    assert program.run("m1")[0] == 0
    assert program.run("m2")[0] == 0
    assert program.read() == second
    blobs = program.target / HIDDEN / "store" / "blobs" / "sha256"
    assert len(list(blobs.iterdir())) == 2
    assert not any((program.target / HIDDEN / "store" / "released").iterdir())


def test_C22_what_somebody_touched_is_hashed_what_is_damaged_fetched_what_is_foreign_removed(
    program, proxy, add
):
    add("m1", BODIES, knows_content=True)
    assert program.run("m1")[0] == 0
    weights = program.target / "model" / "model.safetensors"
    os.utime(weights)
    fetched = proxy.total_bytes
    code, said = program.run("m1")
    assert (code, proxy.total_bytes) == (0, fetched)
    assert "hashing it again" in said
    weights.chmod(0o600)
    with weights.open("r+b") as file:
        file.seek(10 * MIB)
        file.write(b"damage")
    assert program.run("m1")[0] == 0
    assert program.read() == BODIES
    assert proxy.total_bytes == 2 * fetched
    (program.target / "model" / "pytorch_model.bin").write_bytes(b"x")
    (program.target / "model" / "config.json").unlink()
    assert program.run("m1")[0] == 0
    assert (program.read(), proxy.total_bytes) == (BODIES, 2 * fetched)


def test_a_folder_with_somebody_elses_model_is_left_alone(program, add):
    add("m1", BODIES)
    own = program.target / "model" / "mine.bin"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    code, said = program.run("m1")
    assert code == 2
    assert "is not of `get`" in said
    assert own.read_bytes() == b"mine"
    assert not (program.target / HIDDEN).exists()


def test_C17_who_finds_the_folder_in_use_waits_and_goes_on(program, grants, add):
    add("m1", BODIES)
    other = Target(program.target)
    second = program.start("m1")
    assert second.stdout is not None
    assert "waits: another process fills" in second.stdout.readline()
    assert grants.requests == []
    other.close()
    second.communicate(timeout=30)
    assert (second.returncode, program.read()) == (0, BODIES)


def test_a_version_that_comes_later_is_waited_for(program, grants, add):
    waiting = program.start("m1")
    wait_until(lambda: len(grants.requests) > 0, seconds=20, what="the first question")
    add("m1", BODIES)
    said, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, program.read()) == (0, BODIES)
    assert "waits: ModelVersionNotFound: there is no such version" in said


def test_without_progress_it_gives_up_with_reason_and_cure(program):
    code, said = program.run("m1", "--timeout=1s")
    assert code == 1
    (last,) = [line for line in said.splitlines() if "failed" in line]
    assert "ModelVersionNotFound" in last
    assert "create it, or correct the name" in last


def test_a_refusal_is_final(program, add):
    add("m1", BODIES, error=WireError(reason="GrantRefused", message="not yours"))
    code, said = program.run("m1")
    assert code == 3
    assert "GrantRefused: not yours: ask from a pod of the ModelVersion's own namespace" in said


def test_C16_what_cannot_fit_is_refused_before_the_first_byte(program, proxy, grants, add):
    version = add("m1", BODIES)
    version.sized_as = 1 << 60
    code, said = program.run("m1")
    assert (code, proxy.total_bytes) == (3, 0)
    assert "InsufficientSpace" in said
    assert "are free on the target's file system" in said


def test_a_cap_on_bandwidth_and_little_memory_are_kept_to(program, add):
    add("m1", {"config.json": b"{}", "model.safetensors": safetensors_body(3 * MIB, seed=5)})
    code, said = program.run("m1", "--max-bandwidth=1Mi", "--memory=8Mi")
    assert code == 0
    assert "downloading [" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "give the name of one ModelVersion", id="no name"),
        pytest.param(["m1", "--cache=c1"], "give the name of one", id="two names"),
        pytest.param(["a/b/c"], "is no name", id="too many parts"),
        pytest.param(["/m1"], "is no name", id="an empty namespace"),
        pytest.param(["m1", "--memory=1Mi"], "--memory: '1Mi' is less than one", id="memory"),
        pytest.param(["m1", "--streams=0"], "--streams", id="streams"),
        pytest.param(["m1", "--grant-token-file=/none"], "there is no file /none", id="token"),
        pytest.param(["m1", "--nonsense"], "see --help", id="an unknown option"),
    ],
)
def test_a_wrong_word_is_named_with_its_cure(tmp_path, capsys, arguments, says):
    for name in ("ca.crt", "token"):
        (tmp_path / name).touch()
    files = [f"--operator-ca-file={tmp_path}/ca.crt", f"--grant-token-file={tmp_path}/token"]
    assert main([f"--to={tmp_path}/models", *files, *arguments]) == 2
    assert says in capsys.readouterr().out
    assert not (tmp_path / "models").exists()
