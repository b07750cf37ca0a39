from __future__ import annotations

from dataclasses import replace

import pytest

from modelcache_agent.decide.getting import (
    Patience,
    describe_lack_of_room,
    find_held,
    name_cure,
)
from modelcache_agent.decide.world import Held, Origin
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Reason
from modelcache_api.pod_wire import PodVersion

A, B, S, OTHER = (f"sha256:{letter * 64}" for letter in "abcd")
HELD = Held(ContentDigest(A), frozenset(), 0.0, (Origin("u1", S),), is_verified=True)
VERSION = PodVersion(uid="u1", namespace="search", name="m1", source_digest=S)


@pytest.mark.parametrize(
    ("version", "is_found"),
    [
        pytest.param(VERSION, True, id="read from this source"),
        pytest.param(
            VERSION.model_copy(update={"uid": "u2"}), False, id="equal tokens of another version"
        ),
        pytest.param(
            VERSION.model_copy(update={"source_digest": OTHER}), False, id="another source"
        ),
        pytest.param(VERSION.model_copy(update={"content_digest": A}), True, id="known and here"),
        pytest.param(
            VERSION.model_copy(update={"content_digest": B}),
            False,
            id="nodes found other bytes",
        ),
        pytest.param(
            VERSION.model_copy(update={"uid": "u2", "content_digest": A}),
            True,
            id="the same bytes under another name",
        ),
    ],
)
def test_what_is_held_is_the_version_by_digest_or_by_source(version, is_found):
    assert find_held([replace(HELD, digest=ContentDigest(OTHER), origins=()), HELD], version) == (
        HELD if is_found else None
    )


@pytest.mark.parametrize(
    ("reason", "retry_after", "idle", "pause"),
    [
        pytest.param(Reason.OPERATOR_UNREACHABLE, 10.0, 0.0, 10.0, id="soon again"),
        pytest.param(Reason.OPERATOR_UNREACHABLE, 10.0, 55.0, 5.0, id="not beyond the patience"),
        pytest.param(Reason.OPERATOR_UNREACHABLE, 10.0, 60.0, None, id="no patience left"),
        pytest.param(Reason.MODEL_VERSION_NOT_FOUND, 5.0, 0.0, 5.0, id="it may be created"),
        pytest.param(Reason.SOURCE_CHANGED, None, 0.0, None, id="nothing to wait for"),
        pytest.param(Reason.GRANT_REFUSED, 60.0, 0.0, None, id="a refusal"),
        pytest.param(Reason.NOT_A_MODEL, 60.0, 0.0, None, id="other bytes will not come"),
    ],
)
def test_it_tries_on_while_that_is_of_use(reason, retry_after, idle, pause):
    assert Patience(60.0).pause(reason, retry_after, idle) == pause


def test_C16_room_is_counted_with_what_is_there_already():
    assert describe_lack_of_room(100, 0, 100) is None
    assert describe_lack_of_room(100, 60, 40) is None
    assert describe_lack_of_room(100, 50, 40) is not None
    assert "50 more bytes are needed, 40 are free" in str(describe_lack_of_room(100, 50, 40))


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_cure(reason):
    assert name_cure(reason)
