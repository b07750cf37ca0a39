"""`kubectl modelcache verify`: what it says, and of what it complains."""

from __future__ import annotations

from datetime import timedelta

import pytest

from builders import NOW, digest
from modelcache_cli.errors import CliError
from modelcache_cli.verify import describe, find_problem, observe_version, to_document
from modelcache_kube import Forbidden
from modelcache_operator.decide.world import ObjectKey

KEY = ObjectKey("search", "m1")


def condition(kind, status="True", reason="Resolved", message="all is well"):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


READY, CURRENT = condition("Ready"), condition("SourceCurrent")
CHANGED = condition("SourceCurrent", "False", "SourceChanged", "1 file changed")
AWAY = condition("SourceCurrent", "Unknown", "AuthFailed", "the key is refused")


def version(conditions=(READY, CURRENT), checked=NOW, pin=None, **status):
    spec = {"model": "m", "source": {"uri": "s3://models/m"}}
    if pin:
        spec["digest"] = pin
    return {
        "metadata": {"name": "m1", "namespace": "search", "uid": "u1", "generation": 2},
        "spec": spec,
        "status": {
            "observedGeneration": 2,
            "sourceDigest": digest("a"),
            "contentDigest": digest("c"),
            "size": "91Mi",
            "files": 5,
            "nodes": {"disk": 2},
            "conditions": list(conditions),
            **({"lastCheckTime": checked.isoformat()} if checked else {}),
            **status,
        },
    }


def node(name, state="Cached", *, wanted=True, ready="True", **entry):
    held = {"contentDigest": digest("c")} if state == "Cached" else {}
    entries = [{"uid": "u1", "sourceDigest": digest("a"), "sizeBytes": 1}] if wanted else []
    told = [{"uid": "u1", "state": state, **held, **entry}] if state else []
    return {
        "metadata": {"name": name},
        "spec": {"nodeUid": name, "entries": entries},
        "status": {"entries": told, "conditions": [condition("Ready", ready, "AgentAlive")]},
    }


class KubeWith:
    """Stands in for the client; nodes None: they may not be listed."""

    def __init__(self, found, nodes=()) -> None:
        self._found, self._nodes = found, nodes

    async def get(self, resource, name, namespace=None):
        return self._found

    async def list(self, resource):
        if self._nodes is None:
            raise Forbidden("not you", code=403)

        class Listed:
            items = self._nodes

        return Listed()


async def verify(found, *nodes, now=NOW):
    seen = await observe_version(KubeWith(found, nodes), KEY, now)
    return describe(seen), find_problem(seen)


async def test_all_that_is_known_is_told():
    text, problem = await verify(
        version(), node("n1"), node("n2"), node("n3", "Downloading"), node("n4", wanted=False)
    )
    assert problem is None
    assert text == (
        "ModelVersion    search/m1\n"
        "Source          s3://models/m (5 files, 91Mi)\n"
        f"Source digest   {digest('a')}\n"
        "Source state    Resolved: all is well\n"
        "Last check      2026-01-31T12:00:00Z (every 24h)\n"
        f"Content digest  {digest('c')}\n"
        "Nodes           2 Cached, 1 Downloading\n"
    )


async def test_programs_get_the_same_with_what_is_not_right():
    seen = await observe_version(KubeWith(version(), (node("n1"), node("n2", "Pending"))), KEY, NOW)
    assert to_document(seen, None) == {
        "namespace": "search",
        "name": "m1",
        "uri": "s3://models/m",
        "sourceDigest": digest("a"),
        "contentDigest": digest("c"),
        "sizeBytes": None,
        "sourceState": "Resolved",
        "lastCheckTime": NOW.isoformat(),
        "nodes": {"n1": "Cached", "n2": "Pending"},
        "problem": None,
    }
    blind = await observe_version(KubeWith(version((READY,), None), None), KEY, NOW)
    told = to_document(blind, "SourceGone: it is gone")
    assert (told["nodes"], told["problem"]) == (None, "SourceGone: it is gone")
    assert (told["sourceState"], told["lastCheckTime"]) == (None, None)


FAILED = node("n2", "Failed", reason="SourceChanged", message="'a' carries another ETag")


@pytest.mark.parametrize(
    ("found", "nodes", "expected"),
    [
        pytest.param(version(), (), None, id="wanted nowhere"),
        pytest.param(version(), (node("n1", None),), None, id="an agent that begins"),
        pytest.param(version((READY,), None, digest("c")), (node("n1"),), None, id="pinned"),
        pytest.param(version((), None), (), "has not looked at", id="no status yet"),
        pytest.param(version(observedGeneration=1), (), "has not looked at", id="an older spec"),
        pytest.param(
            version((condition("Ready", "False", "SourceGone", "it is gone"),)),
            (),
            "SourceGone: it is gone",
            id="not ready",
        ),
        pytest.param(
            version((READY, CHANGED)), (FAILED,), "SourceChanged: 1 file changed", id="changed"
        ),
        pytest.param(version((READY, AWAY)), (), "AuthFailed: the key is refused", id="trouble"),
        pytest.param(
            version(checked=NOW - timedelta(days=3)), (), "last checked at", id="nobody checks"
        ),
        pytest.param(version(checked=NOW + timedelta(days=3)), (), None, id="our clock is slow"),
        pytest.param(
            version(),
            (node("n1"), FAILED),
            "1 of 2 nodes failed, first n2: SourceChanged: 'a' carries another ETag",
            id="a copy failed",
        ),
        pytest.param(
            version(), (node("n1", ready="False"),), "1 of 1 nodes lost, first n1", id="a lost node"
        ),
        pytest.param(
            version(),
            (node("n1", contentDigest=digest("e")),),
            f"node n1 holds {digest('e')}, not {digest('c')}",
            id="other bytes",
        ),
    ],
)
async def test_one_line_names_what_is_not_right(found, nodes, expected):
    _, problem = await verify(found, *nodes)
    assert (problem is None) if expected is None else expected in problem


async def test_who_may_not_list_nodes_sees_the_count():
    seen = await observe_version(KubeWith(version(), None), KEY, NOW)
    assert "2 Cached (others unknown: you may not list cachenodes)" in describe(seen)
    assert find_problem(seen) is None


async def test_what_is_not_known_yet_is_told_as_such():
    fresh = version((), None, sourceDigest=None, contentDigest=None, size=None)
    text, _ = await verify(fresh)
    assert "not resolved yet" in text
    assert "none yet (every 24h)" in text


async def test_pinned_content_is_not_checked_and_that_is_told():
    text, _ = await verify(version((READY,), None, digest("c")))
    assert text.count("the content is pinned") == 2


async def test_an_unknown_version_is_named_with_the_cure():
    with pytest.raises(CliError, match=r"no ModelVersion 'm1'.*kubectl get modelversions"):
        await observe_version(KubeWith(None), KEY, NOW)
