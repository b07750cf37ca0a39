from __future__ import annotations

import pytest

from modelcache_api.v1alpha1.source import Source
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.addressing import make_address
from modelcache_operator.sources.location import S3Location, parse_s3_uri


def address(bucket: str = "models", **source):
    return make_address(Source(uri=f"s3://{bucket}/m", **source), bucket)


@pytest.mark.parametrize(
    ("bucket", "source", "style", "host", "port"),
    [
        ("models", {}, "virtual", "s3.us-east-1.amazonaws.com", 443),
        ("my.models", {}, "path", "s3.us-east-1.amazonaws.com", 443),
        ("models", {"region": "eu-west-3"}, "virtual", "s3.eu-west-3.amazonaws.com", 443),
        ("models", {"region": "cn-north-1"}, "virtual", "s3.cn-north-1.amazonaws.com.cn", 443),
        ("models", {"endpoint": "http://seaweed:8333"}, "path", "seaweed", 8333),
        ("models", {"endpoint": "http://seaweed:8333/"}, "path", "seaweed", 8333),
        ("models", {"endpoint": "https://[fd00::1]:9000"}, "path", "fd00::1", 9000),
        (
            "models",
            {"endpoint": "http://s3.test", "addressing": "Virtual"},
            "virtual",
            "s3.test",
            80,
        ),
        ("a.b", {"endpoint": "http://s3.test", "addressing": "Virtual"}, "virtual", "s3.test", 80),
        ("models", {"addressing": "Path"}, "path", "s3.us-east-1.amazonaws.com", 443),
    ],
)
def test_C07_where_requests_go(bucket, source, style, host, port):
    found = address(bucket, **source)
    assert (found.style, found.host, found.port) == (style, host, port)
    wanted = f"{bucket}.{host}" if style == "virtual" else host
    assert found.request_host == wanted


@pytest.mark.parametrize(
    ("bucket", "endpoint"),
    [
        pytest.param("models", "http://127.0.0.1:9000", id="an IP address"),
        pytest.param("models", "http://[::1]:9000", id="an IPv6 address"),
        pytest.param("my.models", "https://s3.test", id="a dot under a wildcard certificate"),
        pytest.param("my.models", None, id="a dot at AWS"),
    ],
)
def test_C07_virtual_style_that_cannot_work_names_the_cure(bucket, endpoint):
    with pytest.raises(SourceError) as caught:
        address(bucket, endpoint=endpoint, addressing="Virtual")
    assert caught.value.reason == "WrongAddressing"
    assert "set source.addressing to Path" in caught.value.message


@pytest.mark.parametrize(
    "endpoint",
    ["seaweed:8333", "http://a:99999", "http://a/b", "http://u:p@a", "ftp://a", "http://"],
)
def test_C07_an_endpoint_that_is_none_is_named(endpoint):
    source = Source.model_construct(uri="s3://b/k", endpoint=endpoint, region=None)
    with pytest.raises(SourceError, match="SourceInvalid"):
        make_address(source, "b")


@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [
        ("s3://b1", "b1", ""),
        ("s3://b1/", "b1", ""),
        ("s3://b1/a", "b1", "a"),
        ("s3://b1/a/", "b1", "a"),
        ("s3://b1/.a/v1..2/...", "b1", ".a/v1..2/..."),
        ("s3://b1/a b/%20", "b1", "a b/%20"),
    ],
)
def test_C02_uris_with_and_without_slash_are_equal(uri, bucket, key):
    assert parse_s3_uri(uri) == S3Location(bucket, key)


@pytest.mark.parametrize(
    "uri",
    ["s3://b1/a//", "s3://b1//a", "s3://b1/a//b", "s3://b1/a/../b", "s3://b1/..", "s3://b1/./a"],
)
def test_C02_what_a_reader_of_the_allow_list_may_misread_is_refused(uri):
    with pytest.raises(ValueError, match=r"no empty, \. or \.\. part"):
        parse_s3_uri(uri)


@pytest.mark.parametrize("uri", ["http://b/k", "s3://", "s3:///k", ""])
def test_C02_what_is_no_uri_is_refused(uri):
    with pytest.raises(ValueError, match="not an s3"):
        parse_s3_uri(uri)
