"""What a choice is made of, where the volume changes while it is made."""

from __future__ import annotations

from dataclasses import replace

import modelcache
from modelcache_api.names import VolumeState
from modelcache_api.volume_progress import ShownVersion, VolumeProgress, encode_progress

V1 = ShownVersion("v1", "u1", "d1", "model", "stable")
V2 = ShownVersion("v2", "u2", "d2", "versions/v2", "canary")
BOTH = VolumeProgress(
    "search/m", VolumeState.READY, "Cached", canary_weight=100, versions=(V1, V2), version_uid="u1"
)
ALONE = replace(BOTH, canary_weight=None, versions=(V1, replace(V2, track="")))


def test_weight_and_versions_are_of_one_moment_so_a_canary_that_leaves_is_no_miss(
    tmp_path, monkeypatch
):
    (tmp_path / "model").mkdir()
    (tmp_path / "status.json").write_bytes(encode_progress(BOTH))
    attachment = modelcache.attach(root=tmp_path)
    looks = iter([BOTH])
    monkeypatch.setattr(attachment._live, "progress", lambda: next(looks, ALONE))
    assert attachment.choose_version("a request").name == "v2"
    assert attachment.choose_version("a request").name == "v1"
    assert attachment.misses == 0
