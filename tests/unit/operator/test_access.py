from __future__ import annotations

import pytest

from fakes.source_world import FakeKeyedData, make_version
from modelcache_operator.ports.keyed_data import KeyedData, KeyedDataForbiddenError
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.access import (
    Credentials,
    parse_credentials,
    read_access,
    read_trust,
)
from modelcache_operator.sources.hub.access import parse_token


def parse(**data: bytes) -> Credentials:
    return parse_credentials(KeyedData(data, "r"), "models-s3")


def test_white_space_around_keys_is_dropped():
    found = parse(AWS_ACCESS_KEY_ID=b" AK\n", AWS_SECRET_ACCESS_KEY=b"SK\r\n")
    assert (found.access_key, found.secret_key, found.session_token) == ("AK", "SK", None)


@pytest.mark.parametrize("value", [b"", b" \n", b"a\nb", b"\xff", b"a\x00", b"x" * 9000])
def test_an_unusable_value_is_named_and_never_shown(value):
    with pytest.raises(SourceError) as caught:
        parse(AWS_ACCESS_KEY_ID=b"AKSHOWN", AWS_SECRET_ACCESS_KEY=value)
    assert caught.value.reason == "SecretInvalid"
    assert "AWS_SECRET_ACCESS_KEY" in caught.value.message
    assert "AKSHOWN" not in caught.value.message


def test_nothing_secret_is_in_a_repr():
    found = parse(AWS_ACCESS_KEY_ID=b"AK", AWS_SECRET_ACCESS_KEY=b"SK", AWS_SESSION_TOKEN=b"ST")
    assert repr(found) == "Credentials()"
    assert "SK" not in repr(KeyedData({"k": b"SK"}, "r"))


async def test_without_references_access_is_anonymous():
    found = await read_access(FakeKeyedData(), make_version("s3://models/m"), parse_credentials)
    assert (found.credentials, found.ca_bundle, found.revision) == (None, None, ())


async def test_a_new_secret_is_a_new_revision():
    data = FakeKeyedData()
    version = make_version("s3://models/m", secret="s")
    data.put_credentials("s", "AK1", "SK")
    first = await read_access(data, version, parse_credentials)
    data.put_credentials("s", "AK2", "SK")
    second = await read_access(data, version, parse_credentials)
    assert first.revision != second.revision
    assert second.credentials.access_key == "AK2"


async def test_a_hub_takes_a_token_of_its_own():
    data = FakeKeyedData()
    data.put_secret("s", HF_TOKEN=" hf_x\n", AWS_ACCESS_KEY_ID="AK")
    data.put_secret("empty", HF_TOKEN="")
    data.put_secret("other", token="hf_x")
    found = await read_access(data, make_version("hf://org/name", secret="s"), parse_token)
    assert found.credentials == "hf_x"
    assert "hf_x" not in repr(found)
    anonymous = await read_access(data, make_version("hf://org/name"), parse_token)
    assert anonymous.credentials is None
    for name in ("empty", "other"):
        with pytest.raises(SourceError, match="HF_TOKEN"):
            await read_access(data, make_version("hf://org/name", secret=name), parse_token)


async def test_a_secret_that_may_not_be_read_names_the_cure():
    class Forbidding(FakeKeyedData):
        async def secret(self, key):
            raise KeyedDataForbiddenError

    with pytest.raises(SourceError, match="grant it `get`"):
        await read_access(
            Forbidding(), make_version("s3://models/m", secret="s"), parse_credentials
        )
    # Who takes no credentials reads no Secret.
    trust = await read_trust(Forbidding(), make_version("https://host/m", secret="s"))
    assert (trust.credentials, trust.ca_bundle) == (None, None)
