"""Which nodes can lock memory, and what is said of those that cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelcache_agent.decide.host_fitness import HostFacts, describe_notes, describe_unfit

GIB = 1 << 30
FIT = HostFacts(
    is_root=True,
    can_lock=True,
    lock_limit_bytes=65536,
    in_user_namespace=False,
    file_system="ext4",
    kernel=(6, 1),
    memory_bytes=64 * GIB,
    cgroup_limit_bytes=20 * GIB,
    cgroup_version=2,
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"in_user_namespace": True}, ["hostUsers: true"], id="a user namespace"),
        pytest.param({"is_root": False}, ["not root"], id="not root"),
        pytest.param(
            {"can_lock": False},
            ["64Ki (65536 bytes)", "IPC_LOCK"],
            id="C65 too little may be locked",
        ),
        *(
            pytest.param({"file_system": name}, [name, "ext4 or xfs"], id=name)
            for name in ("zfs", "nfs4", "fuse.s3fs", "overlay", "btrfs", "tmpfs")
        ),
        pytest.param(
            {"cgroup_limit_bytes": GIB},
            [
                "16Gi (17179869184 bytes)",
                f"{16 * GIB * 115 // 100} bytes",
                "1Gi (1073741824 bytes)",
            ],
            id="C56 a memory limit below the capacity",
        ),
        pytest.param({"memory_bytes": 8 * GIB}, ["8Gi"], id="C56 a node with less memory"),
        pytest.param({"probe_fault": "no pages"}, ["no pages"], id="a probe that failed"),
    ],
)
def test_an_unfit_node_is_refused_with_cause_and_cure(changes, words):
    message = describe_unfit(replace(FIT, **changes), 16 * GIB)
    assert message is not None
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"file_system": "xfs"},
        {"can_lock": False, "lock_limit_bytes": 16 * GIB},
        {"can_lock": False, "lock_limit_bytes": None},
        {"cgroup_limit_bytes": None},
        {"cgroup_limit_bytes": 16 * GIB * 115 // 100},
    ],
    ids=str,
)
def test_a_fit_node_is_taken(changes):
    assert describe_unfit(replace(FIT, **changes), 16 * GIB) is None


def test_what_an_administrator_should_know_is_said():
    facts = replace(
        FIT,
        kernel=(5, 10),
        swap_bytes=2 * GIB,
        huge_folios=True,
        cgroup_limit_bytes=None,
        cgroup_version=1,
    )
    text = "\n".join(describe_notes(facts))
    for words in (
        "5.10",
        "mlock alone",
        "swap is on (2Gi) and handled",
        "huge folios",
        "version 1",
    ):
        assert words in text
    assert describe_notes(FIT) == ()
