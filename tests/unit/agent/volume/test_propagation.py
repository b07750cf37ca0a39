from __future__ import annotations

from pathlib import Path

import pytest

from modelcache_agent.volume.propagation import is_shared

ROOT = "28 1 254:0 / / rw,relatime {} - ext4 /dev/vda rw"
KUBELET = "97 28 254:0 /v /var/lib/kubelet rw,relatime {} - ext4 /dev/vda rw"
PODS = Path("/var/lib/kubelet/pods")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([ROOT.format("shared:1")], True, id="all is shared"),
        pytest.param([ROOT.format("master:1")], False, id="a slave hears and is not heard"),
        pytest.param(
            [ROOT.format("master:1"), KUBELET.format("shared:9 master:2")], True, id="bidirectional"
        ),
        pytest.param([ROOT.format("shared:1"), KUBELET.format("")], False, id="private below"),
        pytest.param(
            [KUBELET.format("shared:1"), KUBELET.format("master:3")], False, id="hidden by another"
        ),
        pytest.param(
            [KUBELET.replace("/var/lib", "/var/l").format("shared:1")], False, id="no one"
        ),
    ],
)
def test_the_mount_that_holds_the_path_decides(lines, expected):
    assert is_shared(PODS, "\n".join(lines).replace("  ", " ")) is expected


def test_names_with_spaces_are_understood():
    line = KUBELET.replace("/var/lib/kubelet", r"/var/my\040kubelet").format("shared:1")
    assert is_shared(Path("/var/my kubelet/pods"), line)
