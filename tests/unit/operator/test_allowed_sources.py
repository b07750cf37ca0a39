from __future__ import annotations

import os

import pytest

from modelcache_operator.decide.allowed_sources import (
    AllowList,
    AllowRule,
    Reach,
    Refusal,
    SourceRequest,
    decide_reach,
    describe_refused_address,
    parse_allow_list,
)
from modelcache_operator.policy_files import ReloadedFile


def ask(rules, *, namespace="team", uri="s3://models/llama", host="s3.example:443"):
    allow_list = AllowList() if rules is None else AllowList(tuple(rules))
    return decide_reach(allow_list, SourceRequest(namespace, uri, host))


@pytest.mark.parametrize(
    ("rules", "more", "allowed"),
    [
        pytest.param(None, {}, True, id="the default allows any endpoint"),
        pytest.param([], {}, False, id="no rule allows nothing"),
        pytest.param([AllowRule(namespaces=("te*",))], {}, True, id="namespace by glob"),
        pytest.param([AllowRule(namespaces=("other",))], {}, False, id="another namespace"),
        pytest.param([AllowRule(uri_prefixes=("s3://models",))], {}, True, id="bucket"),
        pytest.param([AllowRule(uri_prefixes=("s3://models/llama/",))], {}, True, id="itself"),
        pytest.param([AllowRule(uri_prefixes=("s3://models/lla",))], {}, False, id="half a name"),
        pytest.param([AllowRule(uri_prefixes=("s3://mod",))], {}, False, id="half a bucket"),
        pytest.param(None, {"uri": "hf://org/name"}, True, id="the default allows the hub"),
        pytest.param([AllowRule(uri_prefixes=("s3://",))], {"uri": "hf://x"}, False, id="no hub"),
        pytest.param(
            [AllowRule(uri_prefixes=("hf://org",))],
            {"uri": "hf://org/name@v1"},
            True,
            id="an organisation",
        ),
        pytest.param(
            [AllowRule(uri_prefixes=("hf://org/name",))],
            {"uri": "hf://org/name@refs/pr/1"},
            True,
            id="all revisions of a repository",
        ),
        pytest.param(
            [AllowRule(uri_prefixes=("hf://org/name@v1",))],
            {"uri": "hf://org/name@v1"},
            True,
            id="one revision",
        ),
        pytest.param(
            [AllowRule(uri_prefixes=("hf://org/name@v1",))],
            {"uri": "hf://org/name@v10"},
            False,
            id="another revision",
        ),
        pytest.param(
            [AllowRule(uri_prefixes=("hf://org/na",))],
            {"uri": "hf://org/name"},
            False,
            id="half a name of the hub",
        ),
        pytest.param(
            [AllowRule(uri_prefixes=("s3://b/exp",))],
            {"uri": "s3://b/exp@2/x"},
            False,
            id="@ means nothing to S3",
        ),
        pytest.param(None, {"uri": "https://h/m/"}, True, id="the default allows TLS"),
        pytest.param(None, {"uri": "http://h/m/"}, False, id="and nothing without it"),
        pytest.param([AllowRule(endpoints=("*.example",))], {}, True, id="host without port"),
        pytest.param([AllowRule(endpoints=("s3.example:443",))], {}, True, id="host and port"),
        pytest.param([AllowRule(endpoints=("s3.example:80",))], {}, False, id="another port"),
        pytest.param(
            [AllowRule(endpoints=("*.example",))], {"host": "evil.test:443"}, False, id="evil"
        ),
        pytest.param(
            [AllowRule(endpoints=("[fd00::1]",))], {"host": "[fd00::1]:80"}, True, id="IPv6"
        ),
        pytest.param(
            [
                AllowRule(namespaces=("team",), uri_prefixes=("s3://x/",)),
                AllowRule(endpoints=("y",)),
            ],
            {},
            False,
            id="rules do not add up",
        ),
    ],
)
def test_a_source_is_allowed_where_one_rule_covers_all_of_it(rules, more, allowed):
    found = ask(rules, **more)
    assert isinstance(found, Reach) is allowed
    if isinstance(found, Refusal):
        assert "allow-list" in found.message


WEB_RULE = "https://good.example/models"


@pytest.mark.parametrize(
    ("prefix", "uri", "allowed"),
    [
        (WEB_RULE, "https://good.example/models/m.gguf", True),
        (WEB_RULE, "https://good.example/models/", True),
        (WEB_RULE, "https://good.example:443/models/m/", True),
        ("https://Good.Example:443/models/", "https://good.example/models/m/", True),
        ("https://good.example", "https://good.example/any/m.gguf", True),
        ("https://", "https://any.example/m.gguf", True),
        ("http://good.example:80", "http://good.example/m.gguf", True),
        (WEB_RULE, "https://good.example/models2/m.gguf", False),
        (WEB_RULE, "https://good.example/Models/m.gguf", False),
        (WEB_RULE, "http://good.example/models/m.gguf", False),
        (WEB_RULE, "https://good.example:8443/models/m.gguf", False),
        (WEB_RULE, "https://good.example:80/models/m.gguf", False),
        ("https://good.example", "https://good.example.evil.example/m.gguf", False),
        ("https://good.example", "https://good.example@evil.example/m.gguf", False),
        ("https://good.example", "https://evil.example/good.example/m.gguf", False),
        ("https://good.example:8443", "https://good.example/m.gguf", False),
        ("https://good.example/x@y", "https://good.example/x@y@z/m", False),
    ],
)
def test_a_web_servers_rule_covers_what_lies_below_it_and_nothing_beside(prefix, uri, allowed):
    found = ask([AllowRule(uri_prefixes=(prefix,))], uri=uri, host="good.example:443")
    assert isinstance(found, Reach) is allowed


def test_loopback_is_granted_by_a_covering_rule_only():
    rules = [AllowRule(), AllowRule(namespaces=("dev",), loopback=True)]
    assert ask(rules, namespace="dev") == Reach(may_reach_loopback=True)
    assert ask(rules, namespace="team") == Reach(may_reach_loopback=False)


ALWAYS = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "not an address",
]


@pytest.mark.parametrize("address", ALWAYS)
def test_addresses_that_no_rule_can_grant(address):
    assert describe_refused_address(address, Reach(may_reach_loopback=True)) is not None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_refused_unless_granted(address):
    assert "loopback" in str(describe_refused_address(address, Reach()))
    assert describe_refused_address(address, Reach(may_reach_loopback=True)) is None


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.1", "8.8.8.8", "fd12::1", "2600::1"])
def test_ordinary_addresses_are_reached(address):
    assert describe_refused_address(address, Reach()) is None


@pytest.mark.parametrize(
    "document",
    [{}, "text", [{"namespace": ["typo"]}], [{"loopback": "perhaps"}], [1]],
)
def test_a_list_with_a_mistake_is_refused_as_a_whole(document):
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's is one
        parse_allow_list(document)


def read(path):
    return ReloadedFile(path, parse_allow_list, "--source-policy")


def test_the_file_is_read_again_when_it_changes(tmp_path, caplog):
    file = tmp_path / "allow.yaml"
    file.write_text("- {namespaces: [a], uriPrefixes: ['s3://x/'], loopback: true}\n")
    allow_list = read(file)
    assert allow_list.current().rules[0].namespaces == ("a",)
    file.write_text("- {namespaces: [bb]}\n")
    os.utime(file, ns=(1, 1))
    assert allow_list.current().rules[0].namespaces == ("bb",)
    file.write_text("- {nonsense: true}\n")
    assert allow_list.current().rules[0].namespaces == ("bb",), "the last good one stays"
    assert "kept as it was" in caplog.text
    file.unlink()
    assert allow_list.current().rules[0].namespaces == ("bb",)


def test_a_broken_file_at_the_start_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.yaml"):
        read(tmp_path / "missing.yaml")
    assert read(None).current() == AllowList()
    (tmp_path / "empty.yaml").write_text("")
    assert read(tmp_path / "empty.yaml").current() == AllowList()
