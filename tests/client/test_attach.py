"""Attaching to a pod's volume, as the node's agent fills it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import weakref
from dataclasses import replace

import pytest

import modelcache
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import VolumeProgress, encode_progress

LOADING = VolumeProgress("search/minilm", VolumeState.DOWNLOADING, Reason.DOWNLOADING, "", 40, 900)
READY = replace(LOADING, state=VolumeState.READY, reason=Reason.CACHED, percent=100)


@pytest.fixture
def volume(tmp_path):
    tell(tmp_path, LOADING)
    return tmp_path


def tell(volume, progress):
    (volume / "status.json").write_bytes(encode_progress(progress))


def finish(volume):
    tell(volume, READY)
    (volume / "model").mkdir()


def test_a_complete_model_is_attached_at_once_by_either_of_its_names(volume):
    finish(volume)
    for name in (None, "minilm", "search/minilm"):
        found = modelcache.attach(name, root=volume, on_miss="raise")
        assert (found.cache, found.path) == ("search/minilm", volume / "model")
    assert found.version("stable").path == volume / "model"
    assert found.hub_cache == volume / "hub"


def test_the_word_that_follows_the_folder_is_waited_for(volume):
    """The agent shows the model first, and says which version it is a moment later."""
    (volume / "model").mkdir()
    telling = threading.Timer(0.3, tell, (volume, replace(READY, version_uid="v1")))
    telling.start()
    assert modelcache.attach(root=volume, on_miss="raise").version().uid == "v1"
    telling.join()


def test_an_attachment_that_nobody_has_any_more_hangs_up_without_a_collection(volume):
    """The agent waits for processes that are attached, and a collection may be long in coming."""
    finish(volume)
    gone = []
    attachment = modelcache.attach(root=volume, on_miss="raise")
    weakref.finalize(attachment.version(), gone.append, "version")
    weakref.finalize(attachment, gone.append, "attachment")
    del attachment
    assert gone == ["attachment", "version"]


def test_the_injected_environment_says_where_the_volume_is(volume, monkeypatch):
    finish(volume)
    monkeypatch.setenv("MODELCACHE_PATH", str(volume / "model"))
    assert modelcache.attach().path == volume / "model"


def test_waiting_tells_how_far_it_is_and_ends_with_the_model(volume):
    told = []

    def look(progress):
        told.append(progress.percent)
        if len(told) == 1:
            tell(volume, replace(LOADING, percent=80))
        else:
            finish(volume)

    assert modelcache.attach(root=volume, timeout=60, on_progress=look).path.is_dir()
    assert told == [40, 80]


async def test_waiting_leaves_the_event_loop_to_others(volume):
    waiting = asyncio.create_task(modelcache.attach_async(root=volume, timeout=60))
    await asyncio.sleep(0)
    assert not waiting.done()
    finish(volume)
    assert (await waiting).cache == "search/minilm"


@pytest.mark.parametrize("how", [{"on_miss": "raise"}, {"timeout": 0.3}])
def test_a_model_that_is_not_there_is_named_with_what_it_waits_for(volume, how):
    tell(volume, replace(LOADING, message="the store is slow"))
    with pytest.raises(
        modelcache.NotReadyError, match=r"search/minilm .* Downloading .*40 %\): the store is slow"
    ):
        modelcache.attach(root=volume, **how)


def test_a_refusal_is_not_waited_for(volume):
    tell(volume, replace(LOADING, state=VolumeState.REFUSED, message="not your namespace"))
    with pytest.raises(modelcache.VolumeRefusedError, match="not your namespace"):
        modelcache.attach(root=volume)


def test_a_folder_that_is_no_volume_says_how_to_get_one(tmp_path):
    with pytest.raises(modelcache.NoVolumeError, match=r"modelcache\.io/cache"):
        modelcache.attach(root=tmp_path)


def test_the_volume_of_another_model_is_not_taken_for_the_one_that_is_asked_for(volume):
    finish(volume)
    with pytest.raises(modelcache.NoVolumeError, match="shows search/minilm, not bert"):
        modelcache.attach("bert", root=volume)


def test_a_track_that_is_not_there_is_named(volume):
    finish(volume)
    with pytest.raises(modelcache.NoSuchVersionError, match="canary"):
        modelcache.attach(root=volume).version("canary")


def test_a_laptop_attaches_to_a_folder_and_only_when_it_says_so(tmp_path):
    assert modelcache.attach_folder(tmp_path).path == tmp_path
    with pytest.raises(modelcache.NoVolumeError):
        modelcache.attach_folder(tmp_path / "absent")


def test_importing_it_costs_the_standard_library_alone():
    program = "import modelcache, sys; print(' '.join(sys.modules))"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in said.stdout.split()}
    assert not loaded & {"torch", "numpy", "pydantic", "yaml", "kubernetes", "aiohttp", "grpc"}


def test_what_it_offers_is_what_it_names():
    assert sorted(modelcache.__all__) == modelcache.__all__
    assert all(hasattr(modelcache, name) for name in modelcache.__all__)
