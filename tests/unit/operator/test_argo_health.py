"""The health script of docs/gitops.md, run as Argo CD runs it, on statuses that our code makes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from builders import NOW, digest, make_cache, make_version
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.base import ApiModel
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_operator.decide.cache_status import CacheFacts, make_cache_status
from modelcache_operator.decide.copies import Copy, CopyTally
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.version_status import (
    RefusedSource,
    ResolvedSource,
    VersionFacts,
    make_version_status,
)

PAGE = Path(__file__).parents[3] / "docs/gitops.md"


def read_script() -> str:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (settings,) = [one for block in blocks for one in yaml.safe_load_all(block) if "data" in one]
    customizations = yaml.safe_load(settings["data"]["resource.customizations"])
    return customizations["modelcache.io/*"]["health.lua"]


def judge(status: ApiModel | None, generation: int = 1) -> tuple[str, str]:
    """Health and message. As without `useOpenLibs`, the script has no library but the base."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    for library in ("os", "io", "string", "table", "math", "package", "require", "debug"):
        lua.globals()[library] = None
    shown: dict[str, Any] = {"metadata": {"generation": generation}}
    if status is not None:
        shown["status"] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    lua.globals().obj = lua.table_from(shown, recursive=True)
    health = lua.execute(read_script())
    return health["status"], health["message"]


def version_status(source: ResolvedSource | RefusedSource | None) -> ApiModel:
    return make_version_status(VersionFacts(make_version(), source, None, 0), NOW)


def cache_status(shortage: Shortage | None, *copies: Copy) -> ApiModel:
    facts = CacheFacts(make_cache(), make_version(), CopyTally(2, copies), shortage)
    return make_cache_status(facts, NOW)


VERIFIED = Copy("n1", EntryStatus(uid="v1", state=EntryState.CACHED, content_digest=digest("c")))
FETCHED = Copy("n1", EntryStatus(uid="v1", state=EntryState.DOWNLOADING, progress_percent=40))


@pytest.mark.parametrize(
    ("status", "health", "reason"),
    [
        pytest.param(version_status(None), "Progressing", Reason.RESOLVING, id="being listed"),
        pytest.param(
            version_status(ResolvedSource(digest("a"), 2048, 3)),
            "Healthy",
            Reason.RESOLVED,
            id="resolved",
        ),
        pytest.param(
            version_status(RefusedSource(Reason.AUTH_FAILED, "403", needs_help=True)),
            "Degraded",
            Reason.AUTH_FAILED,
            id="refused until somebody helps",
        ),
        pytest.param(
            version_status(RefusedSource(Reason.THROTTLED, "429", needs_help=False)),
            "Progressing",
            Reason.THROTTLED,
            id="tried again by itself",
        ),
        pytest.param(
            cache_status(Shortage(Reason.NO_ELIGIBLE_NODE, "no node matches")),
            "Degraded",
            Reason.NO_ELIGIBLE_NODE,
            id="no node",
        ),
        pytest.param(
            cache_status(None, VERIFIED), "Healthy", Reason.LOADING, id="minReady of two copies"
        ),
        pytest.param(
            cache_status(None, VERIFIED, replace(VERIFIED, node="n2")),
            "Healthy",
            Reason.CACHED,
            id="all copies",
        ),
        pytest.param(
            cache_status(None, FETCHED), "Progressing", Reason.DOWNLOADING, id="being fetched"
        ),
    ],
)
def test_health_follows_from_ready_and_stalled_and_says_the_reason(status, health, reason):
    found, message = judge(status)
    assert found == health
    assert message.startswith(f"{reason}: ")


def test_an_object_that_nobody_has_looked_at_is_progressing():
    assert judge(None)[0] == "Progressing"


def test_a_status_of_an_older_spec_is_progressing():
    resolved = version_status(ResolvedSource(digest("a"), 2048, 3))
    assert judge(resolved, generation=2)[0] == "Progressing"
