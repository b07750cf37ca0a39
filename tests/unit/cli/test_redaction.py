"""What a support archive must not hold, wherever somebody wrote it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_cli.bundle.redaction import REDACTED, is_secret_name, redact_object, redact_text

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIFsecretbytes\n-----END EC PRIVATE KEY-----"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
# What must not be found afterwards, and a text that has it.
PLANTED = [
    ("c2lnbmF0dXJl", f"token {JWT} was refused"),
    ("MHcCAQEEIFsecretbytes", f"cannot use {KEY}: no"),
    ("MHcCAQEEIFsecretbytes", json.dumps({"text": KEY})),
    ("AKIAIOSFODNN7EXAMPLE", "InvalidAccessKeyId: AKIAIOSFODNN7EXAMPLE"),
    ("hf_abcdefghijklmnop", "401 for hf_abcdefghijklmnop"),
    ("Zm9vOmJhcg", "Authorization: Basic Zm9vOmJhcg=="),
    ("abcdef123456", "authorization: Bearer abcdef123456"),
    ("hunter2", "GET https://ann:hunter2@store.example/m failed"),
    ("deadbeef", "https://s3.example/b/k?X-Amz-Signature=deadbeef&X-Amz-Date=1 timed out"),
    ("opaque99", 'fetch "http://cdn.example/f?p=opaque99": 403'),
    ("hunter2", "password=hunter2"),
    ("hunter2", '{"msg": "x", "client_secret": "hunter2"}'),
    ("wJalrXUtnFEMI", "AWS_SECRET_ACCESS_KEY: wJalrXUtnFEMI/K7MDENG"),
    ("hunter2", "--hub-token=hunter2"),
    ("hunter2", "--password hunter2"),
    ("hunter2", 'args: ["--password", "hunter2"]'),
    ("hunter2", "args:\n- --password\n- hunter2"),
    ("battery", 'passphrase: "correct horse battery"'),
    ("hunter2", "password=ab&hunter2"),
    ("hunter2", "password=ab,hunter2;x"),
    ("hunter2", r'{"token": "ab\"hunter2"}'),
    ("YIIhunter2", "Authorization: Negotiate YIIhunter2"),
    ("hunter2", '"Authorization": "Digest username=x, response=hunter2"'),
    ("hunter2", "Authorization: Digest username=u, realm=x, response=hunter2"),
    ("hunter2", 'Authorization: Digest username="u", realm="x", response=hunter2'),
    ("hunter2", "authorization: AWS4-HMAC-SHA256 Credential=x, SignedHeaders=h, Signature=hunter2"),
    ("hunter2", 'password: "ab\n  hunter2"'),
    ("hunter2", "password: |\n  ab\n\n  hunter2"),
    ("hunter2", "- client_secret: >-\n    ab\n    hunter2"),
    ("hunter2", "DefaultEndpointsProtocol=https;AccountKey=hunter2==;EndpointSuffix=x"),
]


@pytest.mark.parametrize(("secret", "text"), PLANTED)
def test_a_secret_in_a_line_is_taken_out_and_the_rest_stays(secret, text):
    assert secret in text
    cleaned = redact_text(text)
    assert secret not in cleaned
    assert REDACTED in cleaned


@pytest.mark.parametrize(("secret", "text"), PLANTED)
@pytest.mark.parametrize("folds", [1, 2])
def test_a_secret_is_taken_out_of_json_within_a_line_of_a_log(secret, text, folds):
    """As our own formatter folds a line that has line ends."""
    for _ in range(folds):
        text = json.dumps(f"refused: {text}\nTraceback")
    cleaned = redact_text(text)
    assert secret not in cleaned
    assert redact_text(cleaned) == cleaned


def test_of_arguments_the_one_behind_the_flag_of_a_secret_goes():
    arguments = ["--hub-token", "hunter2", "--token-file", "/etc/token", "--level", "info"]
    cleaned = redact_object({"args": arguments})["args"]
    assert cleaned == ["--hub-token", REDACTED, *arguments[2:]]
    assert redact_object(cleaned) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "s3://models/minilm/v1: 5 files, 91Mi",
        "http://seaweed.storage:8333 does not answer",
        "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
        "credentialsSecretRef: {name: models-s3}",
        "--prometheus-token-file=/etc/modelcache/prometheus-token/token",
        "the Secret models-s3 lacks the key AWS_SECRET_ACCESS_KEY",
        "evicted version=sha256:5f70 policy=value score=3.08414e-10: uid=0d8c needs room",
        "AuthFailed: the store refuses the credentials: correct the Secret",
        "--token-file /etc/modelcache/token --level info",
    ],
)
def test_what_helps_to_understand_stays_as_it_is(text):
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("HF_TOKEN", True),
        ("password", True),
        ("X-Amz-Signature", True),
        ("credentialsSecretRef", False),
        ("secretName", False),
        ("serviceAccountName", False),
        ("PROMETHEUS_TOKEN_FILE", False),
        ("contentDigest", False),
    ],
)
def test_names_of_secrets_are_told_from_names_of_what_points_to_one(name, expected):
    assert is_secret_name(name) is expected


def test_of_an_object_values_by_name_and_the_book_keeping_of_applies_go():
    found = {
        "kind": "Pod",
        "metadata": {
            "name": "agent-x",
            "managedFields": [{"manager": "m"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": '{"a": "hunter2"}',
                "note": "kept",
            },
        },
        "spec": {
            "containers": [
                {
                    "env": [
                        {"name": "HF_TOKEN", "value": "hunter2"},
                        {"name": "LEVEL", "value": "info"},
                        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ]
                }
            ],
            "volumes": [{"secret": {"secretName": "tls"}}],
            "source": {"credentialsSecretRef": {"name": "models-s3"}},
        },
    }
    cleaned = redact_object(found)
    assert cleaned["metadata"] == {"name": "agent-x", "annotations": {"note": "kept"}}
    env = cleaned["spec"]["containers"][0]["env"]
    assert [one.get("value") for one in env] == [REDACTED, "info", None]
    assert env[2] == found["spec"]["containers"][0]["env"][2]
    assert cleaned["spec"]["volumes"] == found["spec"]["volumes"]
    assert cleaned["spec"]["source"] == found["spec"]["source"]


def test_a_secret_that_got_in_nevertheless_keeps_its_name_alone():
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "aHVudGVyMg=="}}
    assert redact_object([secret]) == [
        {"kind": "Secret", "metadata": {"name": "s"}, "data": REDACTED}
    ]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a:\n  token: |-\n    x\n    y\n  user: ann", "  user: ann"),
        ('x: "unclosed\nuser: "ann"', 'user: "ann"'),
        ('password: "unclosed\nuser: "ann"', 'user: "ann"'),
        ('{"e": "Authorization: Digest u=\\"x\\", r=y", "user": "ann"}', '", "user": "ann"}'),
        ("Authorization: Basic abc\nuser: ann", "user: ann"),
    ],
)
def test_what_stands_behind_a_secret_of_many_words_or_lines_stays(text, cleaned):
    assert redact_text(text).endswith(cleaned)


WORDS = st.text(alphabet="abcdef :/-", max_size=12)


@given(
    planted=st.sampled_from(PLANTED),
    before=WORDS,
    after=WORDS,
    path=st.lists(st.sampled_from(["spec", "message", "args", 0]), max_size=4),
)
def test_a_secret_is_found_at_any_depth_and_within_any_words(planted, before, after, path):
    secret, text = planted
    value: object = f"{before} {text} {after}"
    for step in path:
        value = [value] if step == 0 else {step: value}
    assert secret not in json.dumps(redact_object(value))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_cleaning_twice_changes_nothing_more(value):
    once = redact_object(value)
    assert redact_object(once) == once
