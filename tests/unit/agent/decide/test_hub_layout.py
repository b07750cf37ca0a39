"""Names in the hub's cache."""

from __future__ import annotations

import pytest

from fakes.agent_world import digest_of
from modelcache_agent.decide.hub_layout import make_hub_layout

DIGEST = digest_of("a")
IDS = [
    "gpt2",
    "sentence-transformers/all-MiniLM-L6-v2",
    "meta-llama/Llama-3.1-8B",
    "_private/a_b.c",
    "a",
    "a/b/c",
    "a//b",
    "a/",
    "/a",
    "",
    "a/../b",
    "a..b",
    "a--b",
    "org--x/name",
    "name.git",
    "org/name.",
    "org/-name",
    "org/.name",
    "org/name-",
    "a" * 96,
    "a" * 97,
    "a/" + "b" * 96,
    "org/na me",
    "org/na\nme",
]


@pytest.mark.parametrize("model", IDS)
def test_ids_are_those_that_the_libraries_accept(model):
    validators = pytest.importorskip("huggingface_hub.utils")
    try:
        validators.validate_repo_id(model)
    except validators.HFValidationError:
        is_accepted = False
    else:
        is_accepted = True
    assert (make_hub_layout(model, DIGEST) is not None) is is_accepted


def test_the_folder_and_the_revision_are_those_of_the_hub():
    layout = make_hub_layout("org/name", DIGEST)
    assert (layout.folder, layout.revision) == ("models--org--name", DIGEST[7:47])


def test_the_revision_is_the_commit_where_there_is_one():
    commit = "0123456789" * 4
    assert make_hub_layout("org/name", DIGEST, commit).revision == commit
    assert make_hub_layout("org/name", DIGEST, "../" + commit[3:]).revision == DIGEST[7:47]


def test_without_an_id_there_is_no_layout():
    assert make_hub_layout(None, DIGEST) is None
