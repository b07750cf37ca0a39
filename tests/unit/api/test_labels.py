"""Node label keys: always valid, one for each content of each ModelVersion."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.labels import make_node_label_key
from modelcache_api.names import NODE_LABEL_PREFIX

DIGEST = "sha256:" + "a" * 64
LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
NAMES = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
PAIRS = st.tuples(NAMES, NAMES)


@given(st.text(), st.text(), st.text())
def test_key_is_a_valid_label_key_for_any_input(namespace, name, digest):
    key = make_node_label_key(namespace, name, digest)
    assert key.startswith(NODE_LABEL_PREFIX)
    assert LABEL_NAME.fullmatch(key.removeprefix(NODE_LABEL_PREFIX))


@given(PAIRS, PAIRS)
def test_two_versions_never_share_a_key(one, other):
    keys_agree = make_node_label_key(*one, DIGEST) == make_node_label_key(*other, DIGEST)
    assert keys_agree == (one == other)


@given(st.text(), st.text(), st.text(), st.text())
def test_names_that_nobody_can_have_do_not_collide_either(a, b, c, d):
    keys_agree = make_node_label_key(a, b, DIGEST) == make_node_label_key(c, d, DIGEST)
    assert keys_agree == ((a, b) == (c, d))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(("a-b", "c"), ("a", "b-c"), id="a dash"),
        pytest.param(("a.b", "c"), ("a", "b.c"), id="a dot"),
        pytest.param(("a", '","'), ('a","', ""), id="quotes"),
        pytest.param(("a", "b" * 41), ("a", "b" * 42), id="names that differ past the shown part"),
    ],
)
def test_C33_the_join_of_namespace_and_name_is_unambiguous(one, other):
    assert make_node_label_key(*one, DIGEST) != make_node_label_key(*other, DIGEST)


def test_another_content_has_another_key():
    other = "sha256:" + "b" * 64
    assert make_node_label_key("ns", "m", DIGEST) != make_node_label_key("ns", "m", other)


def test_key_shows_the_name_and_never_changes():
    # Labels on running nodes and affinities in pods outlive a release: a change is a migration.
    key = make_node_label_key("search", "minilm-v1", DIGEST)
    assert key == "cache.modelcache.io/minilm-v1-907dd84270c5da46"
