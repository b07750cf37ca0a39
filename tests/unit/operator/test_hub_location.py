from __future__ import annotations

import pytest
from huggingface_hub.utils import HFValidationError, validate_repo_id

from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.hub.endpoint import parse_endpoint
from modelcache_operator.sources.hub.location import HubLocation, parse_hub_uri
from modelcache_operator.sources.origin import Origin, origin_of


@pytest.mark.parametrize(
    ("uri", "repository", "revision"),
    [
        ("hf://gpt2", "gpt2", "main"),
        ("hf://meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "main"),
        ("hf://org/name@v1.0", "org/name", "v1.0"),
        ("hf://org/name@refs/pr/1", "org/name", "refs/pr/1"),
        ("hf://gpt2@" + "0a" * 20, "gpt2", "0a" * 20),
        ("hf://org/name@feature/a+b_c-d", "org/name", "feature/a+b_c-d"),
    ],
)
def test_what_a_uri_names(uri, repository, revision):
    assert parse_hub_uri(uri) == HubLocation(repository, revision)


@pytest.mark.parametrize(
    "uri",
    [
        "hf://",
        "hf:///name",
        "hf://org/",
        "hf://a/b/c",
        "hf://datasets/squad",
        "hf://spaces/x",
        "hf://models/gpt2",
        "hf://-org/name",
        "hf://org/name.",
        "hf://org/na--me",
        "hf://org/na..me",
        "hf://org/name.git",
        "hf://org/na me",
        "hf://org/name@",
        "hf://org/name@a//b",
        "hf://org/name@../x",
        "hf://org/name@a/../b",
        "hf://org/name@main/",
        "hf://org/name@-x",
        "hf://org/name@a b",
        "hf://org/name@a%2Fb",
        "hf://org/name@a@b",
        "hf://org/name\n",
        "s3://org/name",
    ],
)
def test_what_is_no_such_uri(uri):
    with pytest.raises(ValueError, match=r"source\.uri"):
        parse_hub_uri(uri)


@pytest.mark.parametrize(
    "name", ["a", "a/b", "_a/b_", "a" * 96, "a/" + "b" * 97, "a-", "A.b-c_d/E", "a.git", "x/.y"]
)
def test_names_are_those_that_the_library_takes(name):
    try:
        validate_repo_id(name)
    except HFValidationError:
        with pytest.raises(ValueError, match=r"source\.uri"):
            parse_hub_uri(f"hf://{name}")
    else:
        assert parse_hub_uri(f"hf://{name}").repository == name


def test_a_mirror_may_lie_below_a_path():
    found = parse_endpoint("https://mirror.example/api/hub/")
    assert found.url == "https://mirror.example/api/hub"
    assert found.origin == Origin("https", "mirror.example", 443)
    assert parse_endpoint("http://[fd00::1]:8080").origin.authority == "[fd00::1]:8080"


@pytest.mark.parametrize(
    "url", ["mirror", "ftp://x", "https://", "https://u:p@x", "https://x/?a=b", "https://x:99999"]
)
def test_what_is_no_address_of_a_hub(url):
    with pytest.raises(SourceError, match="SourceInvalid"):
        parse_endpoint(url)


def test_another_port_is_another_server():
    assert origin_of("https://x") == origin_of("https://X.:443/path")
    assert origin_of("https://x:444") != origin_of("https://x")
    assert origin_of("javascript:x") is None
