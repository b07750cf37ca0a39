"""Which Node we run on."""

from __future__ import annotations

import base64
import json

import pytest

from modelcache_agent.identity import IdentityError, NodeIdentity, find_identity, read_node_claim


def token(claims) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


BOUND = token({"kubernetes.io": {"node": {"name": "n1", "uid": "u1"}, "pod": {"name": "p"}}})


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(BOUND + "\n")
    return path


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "x",
        "a.b.c",
        "a.e30.c",
        token({"kubernetes.io": {}}),
        token({"kubernetes.io": {"node": 1}}),
    ],
)
def test_a_token_without_the_claim_says_nothing(odd):
    assert read_node_claim(odd) is None


def test_the_token_is_enough(token_file):
    assert find_identity(None, None, token_file) == NodeIdentity("n1", "u1")


def test_options_are_enough():
    assert find_identity("n1", "u1", None) == NodeIdentity("n1", "u1")


@pytest.mark.parametrize(
    ("name", "uid", "says"),
    [("n2", None, "--node-name is 'n2', the token is bound to 'n1'"), (None, "u2", "--node-uid")],
)
def test_what_is_said_twice_must_agree(token_file, name, uid, says):
    with pytest.raises(IdentityError, match=says):
        find_identity(name, uid, token_file)


def test_nothing_says_it():
    with pytest.raises(IdentityError, match="give --node-uid, or --grant-token-file"):
        find_identity("n1", None, None)


def test_a_missing_token_is_named_with_the_cure(tmp_path):
    with pytest.raises(IdentityError, match=r"--grant-token-file .* cannot be read.*audience"):
        find_identity("n1", "u1", tmp_path / "none")
