from __future__ import annotations

import pytest

from modelcache_api.limits import MAX_FILES
from modelcache_api.manifest import SourceFile
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.selection import (
    Globs,
    ListedObject,
    drop_folder_markers,
    select_files,
    select_object,
    with_versions,
)


def listed(*keys, size=1):
    return tuple(ListedObject(key, size, '"e"') for key in keys)


def select(*keys, prefix="m/", include=None, exclude=None):
    return [file.path for file in select_files(listed(*keys), prefix, Globs(include, exclude))]


def test_C01_every_kind_of_marker_is_dropped():
    markers = listed("m/", "m/a/", "m/b", "m/c_$folder$", size=0)
    files = listed("m/b/x", "m/c/y", "m/d")
    assert drop_folder_markers((*markers, *files)) == files


def test_C01_an_empty_file_is_a_file():
    empty = listed("m/__init__.py", size=0)
    assert drop_folder_markers(empty) == empty


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../b", "a//b", "/x", "a/.", "a\\b", "a\nb", "a\x00b", "x" * 256, "a/", "\ud800"],
)
def test_an_unsafe_key_is_named_in_quotes(path):
    with pytest.raises(SourceError) as caught:
        select(f"m/{path}")
    assert caught.value.reason == "UnsafeKey"
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) <= 512


def test_an_unsafe_key_that_is_left_out_does_no_harm():
    assert select("m/a\\b", "m/c", exclude=["a*"]) == ["c"]


def test_a_file_that_is_a_folder_too_is_refused():
    with pytest.raises(SourceError, match="'a' is both a file and a folder"):
        select("m/a", "m/a/b")


def test_too_many_files_are_refused_after_selection():
    keys = [f"m/{n}" for n in range(MAX_FILES + 1)]
    with pytest.raises(SourceError, match=f"{MAX_FILES + 1} files are selected"):
        select(*keys)
    assert len(select(*keys, "m/x.bin", include=["*.bin"])) == 1


def test_C02_one_object_keeps_its_key():
    item = ListedObject("exp/model/model.pkl", 3, '"e"')
    assert select_object(item, "model.pkl", Globs()) == (
        SourceFile("model.pkl", 3, '"e"', key="exp/model/model.pkl"),
    )
    assert select_object(item, "model.pkl", Globs(exclude=["*.pkl"])) == ()


def test_C21_versions_are_joined_by_key_and_etag():
    files = (SourceFile("a", 1, '"x"'), SourceFile("b", 1, '"y"'))
    latest = {"m/a": ("v1", '"x"'), "m/b": ("null", '"of another form-5"')}
    found = with_versions(files, ["m/a", "m/b"], latest)
    assert [file.version_id for file in found] == ["v1", None]
    assert found[1].etag == '"y"'
    with pytest.raises(SourceError, match="SourceChanged"):
        with_versions(files, ["m/a", "m/b"], {"m/a": ("v1", '"x"')})
