from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.web_address import WEB_ADDRESS, quote_path, unquote_path
from modelcache_operator.sources.origin import Origin
from modelcache_operator.sources.web.location import parse_web_uri


@pytest.mark.parametrize(
    ("uri", "folder_url", "name"),
    [
        ("https://h/m.gguf", "https://h/", "m.gguf"),
        ("https://h/", "https://h/", None),
        ("https://models.example:8443/a/b/", "https://models.example:8443/a/b/", None),
        ("http://[::1]:80/a/m.bin", "http://[::1]:80/a/", "m.bin"),
        ("https://h/a%20b/%C3%BC.bin", "https://h/a%20b/", "ü.bin"),
        ("https://h/~u/v1..2/...", "https://h/~u/v1..2/", "..."),
        ("https://h/pkg@1.0/model+fp16.bin", "https://h/pkg@1.0/", "model+fp16.bin"),
    ],
)
def test_what_a_uri_names(uri, folder_url, name):
    found = parse_web_uri(uri)
    assert (found.folder_url, found.file_name) == (folder_url, name)
    if name is not None:
        assert found.url_of(name) == uri


def test_an_origin_has_the_schemes_own_port():
    assert parse_web_uri("https://h/x").origin == Origin("https", "h", 443)
    assert parse_web_uri("http://h:443/x").origin == Origin("http", "h", 443)
    assert Origin("https", "h", 443).host_header == "h"
    assert Origin("http", "::1", 8080).host_header == "[::1]:8080"


# Each would be read as another place by a server, a rule or a reader.
AMBIGUOUS = [
    "https://h",
    "https:///x",
    "ftp://h/x",
    "https://user@h/x",
    "https://user:pw@h/x",
    "https://good.example@evil.example/x",
    "https://h\\@evil.example/x",
    "https://H/x",
    "HTTPS://h/x",
    "https://h./x",
    "https://h:0/x",
    "https://h:99999999/x",
    "https://h:/x",
    "https://h/x?y",
    "https://h/x#y",
    "https://h/a//b",
    "https://h//a",
    "https://h/a/../b",
    "https://h/a/..",
    "https://h/./a",
    "https://h/a/%2e%2e/b",
    "https://h/a/%2E%2E/b",
    "https://h/a%2Fb",
    "https://h/a%5Cb",
    "https://h/a\\b",
    "https://h/%252e%252e/b",
    "https://h/..;/b",
    "https://h/a;x=1/b",
    "https://h/%41",
    "https://h/%c3%bc",
    "https://h/%C0%AE%C0%AE/b",
    "https://h/%FF",
    "https://h/a b",
    "https://h/ü",
    "https://h/a\n",
    "https://h/" + "a" * 256,
]


@pytest.mark.parametrize("uri", AMBIGUOUS)
def test_what_could_be_read_in_two_ways_is_refused(uri):
    with pytest.raises(ValueError, match=r"source\.uri"):
        parse_web_uri(uri)


@given(st.text(min_size=1))
def test_a_path_is_escaped_and_read_back_alike(path):
    try:
        path.encode()
    except UnicodeEncodeError:
        return
    escaped = quote_path(path)
    assert unquote_path(escaped) == path
    assert urlsplit(f"https://h/{escaped}").path == f"/{escaped}", "nothing of it is a query"


@given(st.from_regex(WEB_ADDRESS, fullmatch=True))
def test_what_is_taken_stays_on_its_server(uri):
    try:
        found = parse_web_uri(uri)
    except ValueError:
        return
    parts = urlsplit(uri)
    assert found.origin.host == parts.hostname
    assert (parts.username, parts.query, parts.fragment) == (None, "", "")
    assert uri.startswith(found.folder_url)
    assert re.fullmatch(WEB_ADDRESS, found.url_of(found.file_name or ""))
