"""Files that are not what their names promise, in a real bucket."""

from __future__ import annotations

import pytest

from fakes.fetch_world import make_job, quick, safetensors_body
from fakes.safetensors_kit import K01, PAGE, POINTER, REFUSED, XML_ERROR
from modelcache_agent.fetch import FetchEngine
from modelcache_api.names import Reason

MIB = 1 << 20


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param(POINTER, "Git LFS pointer", id="K05"),
        pytest.param(PAGE, "HTML page", id="K06"),
        pytest.param(XML_ERROR, "S3 XML error", id="K07"),
        pytest.param(REFUSED["K08 byte-order mark"], "safetensors header", id="K08"),
        pytest.param(K01[:-1], "covers", id="K02"),
        pytest.param(b"84\r\n" + K01 + b"\r\n0\r\n\r\n", "framing", id="C08"),
        pytest.param(safetensors_body(20 * MIB)[:-1], "covers", id="large and cut"),
    ],
)
async def test_C20_wrong_content_is_refused_once_and_named(s3, s3_proxy, tmp_path, body, kind):
    sources = {
        "config.json": s3.put("config.json", b"{}"),
        "model.safetensors": s3.put("model.safetensors", body),
    }
    async with FetchEngine(s3.grants(sources), quick()) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.failure.reason == Reason.NOT_A_MODEL
    assert outcome.failure.path == "model.safetensors"
    assert kind in outcome.failure.message
    assert outcome.failure.retry_after_seconds is None
    key = next(path for path in s3_proxy.gets if path.endswith("model.safetensors"))
    assert s3_proxy.gets[key] == 1


async def test_valid_weights_pass(s3, tmp_path):
    sources = {"model.safetensors": s3.put("model.safetensors", safetensors_body(9 * MIB))}
    async with FetchEngine(s3.grants(sources), quick()) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.failure is None


async def test_header_longer_than_a_piece_is_checked_on_disk(s3, tmp_path):
    import struct

    header = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'.ljust(10 * MIB)
    good = struct.pack("<Q", len(header)) + header + b"data"
    for body, reason in ((good, None), (good + b"x", Reason.NOT_A_MODEL)):
        sources = {"m.safetensors": s3.put("m.safetensors", body)}
        async with FetchEngine(s3.grants(sources), quick()) as engine:
            outcome = await engine.fetch(make_job(sources, tmp_path / str(reason)))
        assert (outcome.failure and outcome.failure.reason) == reason
