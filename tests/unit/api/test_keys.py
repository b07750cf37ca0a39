"""Hostile keys: what may become a path, and what a glob selects."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.keys import (
    describe_unsafe_path,
    find_file_and_folder_clash,
    is_selected,
    matches,
)

SAFE = [
    "a",
    "a/b.c",
    "ü/日本",
    "a b",
    "...",
    "..a",
    "a" * 255,
    "/".join(["a" * 254] * 4),
    "-rf",
    "~",
]
UNSAFE = [
    pytest.param("", "it is empty", id="nothing"),
    pytest.param("/etc/passwd", "the part ''", id="absolute"),
    pytest.param("a//b", "the part ''", id="empty part"),
    pytest.param("a/", "the part ''", id="a folder's marker"),
    pytest.param("..", "the part '..'", id="parent"),
    pytest.param("a/../../b", "the part '..'", id="parent inside"),
    pytest.param("./a", "the part '.'", id="here"),
    pytest.param("a\\..\\b", "backslash", id="backslash"),
    pytest.param("a\0b", "control character", id="NUL"),
    pytest.param("a\nb", "control character", id="line feed"),
    pytest.param("a\x7fb", "control character", id="DEL"),
    pytest.param("a\ud800", "not valid UTF-8", id="lone surrogate"),
    pytest.param("a" * 256, "more than 255 bytes", id="long part"),
    pytest.param("ü" * 128, "more than 255 bytes", id="long part in bytes"),
    pytest.param("/".join(["a" * 200] * 6), "the limit is 1024", id="long path"),
]


@pytest.mark.parametrize("path", SAFE)
def test_safe(path):
    assert describe_unsafe_path(path) is None


@pytest.mark.parametrize(("path", "told"), UNSAFE)
def test_unsafe(path, told):
    assert told in describe_unsafe_path(path)


@given(st.text(st.sampled_from("a./\\\0\n") | st.characters()))
def test_a_safe_path_stays_below_the_store(path):
    if describe_unsafe_path(path) is None:
        joined = posixpath.normpath(posixpath.join("/store/x", path))
        assert joined == f"/store/x/{path}"
        assert "\n" not in path


CLASHES = [
    pytest.param(["a", "b/c"], None, id="none"),
    pytest.param(["a/b", "a"], "a", id="a file and a folder"),
    pytest.param(["a/b/c/d", "a/b", "ab"], "a/b", id="deeper"),
    pytest.param(["a-b", "a", "a.c"], None, id="only a common beginning"),
]


@pytest.mark.parametrize(("paths", "clash"), CLASHES)
def test_clash(paths, clash):
    assert find_file_and_folder_clash(paths) == clash


GLOBS = [
    ("*.safetensors", "model.safetensors", True),
    ("*.safetensors", "a/b/model.safetensors", True),
    ("*.safetensors", "model.safetensors.bak", False),
    ("*.SAFETENSORS", "model.safetensors", False),
    ("config.json", "onnx/config.json", True),
    ("/config.json", "config.json", True),
    ("/config.json", "onnx/config.json", False),
    ("onnx/*", "onnx/a", True),
    ("onnx/*", "onnx/a/b", False),
    ("onnx/*", "x/onnx/a", False),
    ("onnx/**", "onnx/a/b", True),
    ("onnx/**", "onnx", False),
    ("onnx/", "onnx/a/b", True),
    ("onnx/", "onnx", False),
    ("**/onnx/*", "onnx/a", True),
    ("**/onnx/*", "x/y/onnx/a", True),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/b", "a/x/y/c", False),
    ("a/**/**/b", "a/b", True),
    ("**", "a/b/c", True),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("a*c/d", "abbc/d", True),
    ("a*c/d", "a/c/d", False),
    ("[ab].bin", "b.bin", True),
    ("[!ab].bin", "b.bin", False),
    ("[^ab].bin", "c.bin", True),
    ("[0-9]*.bin", "00.bin", True),
    ("[", "[", True),
    ("a.b", "axb", False),
    ("(a|b)+", "(a|b)+", True),
    ("a\n*", "a\nb", True),
    ("*", ".hidden", True),
]


@pytest.mark.parametrize(("glob", "path", "expected"), GLOBS)
def test_glob(glob, path, expected):
    assert matches(path, glob) is expected


@given(st.text(max_size=30), st.text(st.sampled_from("a*?[]!^/-") | st.characters(), max_size=30))
def test_any_glob_gives_an_answer(path, glob):
    assert matches(path, glob) in (True, False)


def test_a_hostile_glob_on_a_hostile_key_ends_at_once():
    # An ordinary translation into a regular expression would try more ways than there are atoms.
    assert not matches("a" * 255, "*a" * 127 + "b")
    assert not matches("/".join(["a"] * 500), "**/a/" * 50 + "b")


SELECTIONS = [
    pytest.param("a.bin", None, None, True, id="all if nothing is said"),
    pytest.param("a.bin", ["*.bin"], None, True, id="included"),
    pytest.param("a.txt", ["*.bin"], None, False, id="not included"),
    pytest.param("a.bin", None, ["*.bin"], False, id="excluded"),
    pytest.param("a.bin", ["a.*"], ["*.bin"], False, id="exclusion wins"),
    pytest.param("a.bin", [], None, False, id="an empty list includes nothing"),
    pytest.param("a.bin", None, [], True, id="an empty list excludes nothing"),
]


@pytest.mark.parametrize(("path", "include", "exclude", "expected"), SELECTIONS)
def test_selection(path, include, exclude, expected):
    assert is_selected(path, include, exclude) is expected
