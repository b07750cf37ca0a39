"""What a store can do wrong, and the one reason that it gets. Against a scripted server."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from fakes.s3_stub import Answer, S3Stub, error, listing, script_listing, unversioned
from fakes.source_world import make_sources, make_version
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.client import Timeouts
from modelcache_testbed.waiting import wait_until


async def fail(sources, version) -> SourceError:
    with pytest.raises(SourceError) as caught:
        await sources.resolve(version)
    return caught.value


@pytest.mark.parametrize(
    ("answer", "reason", "says", "retries"),
    [
        pytest.param(
            error(404, "NoSuchBucket"), "SourceNotFound", "no bucket", False, id="no bucket"
        ),
        pytest.param(error(403, "AccessDenied"), "AuthFailed", "check the keys", False, id="no"),
        pytest.param(
            error(403, "InvalidAccessKeyId", AWSAccessKeyId="AKEXAMPLE"),
            "AuthFailed",
            "InvalidAccessKeyId",
            False,
            id="unknown key",
        ),
        pytest.param(
            error(403, "SignatureDoesNotMatch"),
            "AuthFailed",
            "SignatureDoesNotMatch",
            False,
            id="wrong secret",
        ),
        pytest.param(error(401, "Odd"), "AuthFailed", "401 Odd", False, id="401 of any kind"),
        pytest.param(
            error(400, "ExpiredToken"), "CredentialsExpired", "new credentials", True, id="C09"
        ),
        pytest.param(error(503, "SlowDown"), "Throttled", "SlowDown", True, id="slow down"),
        pytest.param(Answer(429), "Throttled", "429", True, id="429 without a body"),
        pytest.param(Answer(500, "<html>"), "SourceError", "500", True, id="500"),
        pytest.param(Answer(404, "<html>"), "SourceError", "S3 store", True, id="a web server"),
        pytest.param(Answer(200, "<html>hi"), "SourceError", "S3 store", True, id="a web page"),
        pytest.param(
            error(301, "PermanentRedirect", Endpoint="models.elsewhere"),
            "WrongAddressing",
            "elsewhere",
            False,
            id="sends elsewhere",
        ),
        pytest.param(
            Answer(307, "", {"Location": "http://169.254.169.254/latest"}),
            "WrongAddressing",
            "elsewhere",
            False,
            id="redirects are not followed",
        ),
        pytest.param(
            error(400, "AuthorizationHeaderMalformed", Region="eu-west-3"),
            "SourceInvalid",
            "eu-west-3",
            False,
            id="another region",
        ),
    ],
)
async def test_a_refused_listing_has_one_reason(sources, answer, reason, says, retries):
    with S3Stub(lambda _: answer) as stub:
        found = await fail(
            sources, make_version("s3://models/m", endpoint=stub.endpoint, secret="keys")
        )
    assert (found.reason, found.retry_after_seconds is not None) == (reason, retries)
    assert says in found.message
    assert "AKEXAMPLE" not in found.message
    assert len(stub.requests) == 1, "the queue retries, not the client"


async def test_anonymous_refusal_names_the_missing_secret(sources):
    with S3Stub(lambda _: error(403, "AccessDenied")) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert "credentialsSecretRef" in found.message
    assert "authorization" not in stub.requests[0].headers


async def test_retry_after_is_honoured(sources):
    with S3Stub(lambda _: Answer(503, "", {"Retry-After": "77"})) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.reason, found.retry_after_seconds) == ("Throttled", 77.0)


async def test_C10_clock_skew_gives_both_times(sources):
    answer = error(
        403,
        "RequestTimeTooSkewed",
        RequestTime="20261129T100000Z",
        ServerTime="2026-11-29T10:20:00Z",
    )
    with S3Stub(lambda _: answer) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "ClockSkew"
    assert "20261129T100000Z" in found.message
    assert "2026-11-29T10:20:00Z" in found.message
    assert found.retry_after_seconds >= 30, "no hot retry"


async def test_C10_an_occasional_skew_recovers_by_itself(sources):
    answers = iter([error(403, "RequestTimeTooSkewed")])
    good = script_listing(listing(["m/a"]))
    with S3Stub(lambda request: next(answers, None) or good(request)) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint)
        assert (await fail(sources, version)).reason == "ClockSkew"
        assert len((await sources.resolve(version)).files) == 1


async def test_C03_an_empty_page_with_a_token_is_not_the_end(sources):
    pages = (listing(["m/a"], token="1"), listing([], token="2"), listing(["m/z"]))
    with S3Stub(script_listing(*pages)) as stub:
        found = await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
    assert [file.path for file in found.files] == ["a", "z"]


async def test_C03_a_failed_second_page_fails_the_listing(sources):
    pages = (listing(["m/a"], token="1"), error(500, "InternalError"))
    with S3Stub(script_listing(*pages)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "SourceError"


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param([listing(["m/a"], truncated=True)], id="truncated without a token"),
        pytest.param([listing(["m/a"], token="1"), listing([], token="1")], id="token repeats"),
        pytest.param([listing(["m/a"], token="1"), listing(["m/a"])], id="page repeats"),
        pytest.param([listing(["m/a", "n/b"])], id="key outside of the prefix"),
        pytest.param([listing([("m/a", 1, "")])], id="no ETag"),
    ],
)
async def test_C03_a_listing_that_makes_no_sense_is_an_error(sources, pages):
    with S3Stub(script_listing(*pages)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.reason, found.retry_after_seconds) == ("SourceError", 30.0)


@pytest.mark.parametrize(
    ("listed", "kept"),
    [('"abc"', '"abc"'), ("abc", '"abc"'), ('"abc-12"', '"abc-12"'), ('W/"abc"', 'W/"abc"')],
)
async def test_C05_etags_are_kept_as_headers_spell_them(sources, listed, kept):
    with S3Stub(script_listing(listing([("m/a", 1, listed)]))) as stub:
        found = await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.files[0].etag == kept


async def test_C07_a_store_that_wants_the_bucket_in_the_host_name_says_so(sources):
    answer = error(403, "SecondLevelDomainForbidden", "Please use virtual hosted style to access.")
    with S3Stub(lambda _: answer) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "WrongAddressing"
    assert "set source.addressing to Virtual" in found.message


async def test_C07_a_host_name_that_does_not_resolve_is_no_stack_trace(sources):
    with S3Stub(lambda _: Answer()) as stub:
        endpoint = f"http://localhost:{stub.port}"
        version = make_version("s3://models/m", endpoint=endpoint, addressing="Virtual")
        found = await fail(sources, version)
    assert found.reason == "WrongAddressing"
    assert "set source.addressing to Path" in found.message
    assert not stub.requests


async def test_C07_an_answer_about_all_buckets_is_not_an_empty_prefix(sources):
    body = "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>"
    with S3Stub(lambda _: Answer(200, body)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "WrongAddressing"


async def test_C07_a_slash_at_the_end_of_the_endpoint_changes_nothing(sources):
    with S3Stub(script_listing(listing(["m/a"]))) as stub:
        version = make_version("s3://models/m", endpoint=f"{stub.endpoint}/")
        assert len((await sources.resolve(version)).files) == 1
        page = await sources.sign(version, (await sources.resolve(version)).files)
    assert page.files[0].url == f"{stub.endpoint}/models/m/a"


async def test_C08_no_checksum_header_is_sent(sources):
    def strict(request):
        if any("checksum" in name or "sdk-checksum" in name for name in request.headers):
            return error(400, "InvalidRequest", "unknown header")
        return script_listing(listing(["m/a"]))(request)

    with S3Stub(strict) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint, secret="keys")
        found = await sources.resolve(version)
        page = await sources.sign(version, found.files)
    assert len(found.files) == 1
    assert "checksum" not in page.files[0].url.lower()


async def test_C09_credentials_are_read_again_without_a_restart(data, sources):
    def picky(request):
        if "AKNEW" not in request.headers["authorization"]:
            return error(400, "ExpiredToken")
        return script_listing(listing(["m/a"]))(request)

    with S3Stub(picky) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint, secret="keys")
        assert (await fail(sources, version)).reason == "CredentialsExpired"
        data.put_credentials("keys", "AKNEW", "another", AWS_SESSION_TOKEN="t")
        found = await sources.resolve(version)
        page = await sources.sign(version, found.files)
    assert "AKNEW" in page.files[0].url
    assert "X-Amz-Security-Token=t" in page.files[0].url


async def test_a_missing_secret_or_key_is_named(data, sources):
    found = await fail(
        sources, make_version("s3://models/m", endpoint="http://127.0.0.1:1", secret="nope")
    )
    assert (found.reason, found.retry_after_seconds) == ("SecretNotFound", None)
    data.put_secret("half", AWS_ACCESS_KEY_ID="AK")
    found = await fail(
        sources, make_version("s3://models/m", endpoint="http://127.0.0.1:1", secret="half")
    )
    assert found.reason == "SecretInvalid"
    assert "AWS_SECRET_ACCESS_KEY" in found.message


async def test_a_refused_connection_is_unreachable(sources):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        found = await fail(sources, make_version("s3://models/m", endpoint=endpoint))
    assert found.reason == "EndpointUnreachable"
    assert "refuses connections" in found.message


async def test_a_silent_store_is_unreachable_within_the_time_out(data):
    sources = make_sources(data, timeouts=Timeouts(read=0.3))
    with S3Stub(lambda _: Answer(hang_seconds=1.0)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    await sources.close()
    assert found.reason == "EndpointUnreachable"
    assert "in time" in found.message


async def test_a_broken_connection_is_unreachable(sources):
    with S3Stub(lambda _: Answer(cut=True)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "EndpointUnreachable"


async def test_a_name_that_does_not_resolve_is_unreachable(sources):
    found = await fail(sources, make_version("s3://models/m", endpoint="http://nowhere.invalid"))
    assert found.reason == "EndpointUnreachable"
    assert "nowhere.invalid" in found.message


async def test_loopback_needs_the_administrator(data):
    sources = make_sources(data, allow_list=AllowList())
    with S3Stub(lambda _: Answer()) as stub:
        for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1"):
            version = make_version("s3://models/m", endpoint=f"http://{host}:{stub.port}")
            found = await fail(sources, version)
            assert found.reason == "SourceNotAllowed", host
            assert "loopback: true" in found.message
            with pytest.raises(SourceError, match="SourceNotAllowed"):
                await sources.sign(version, ())
    await sources.close()
    assert not stub.requests


async def test_metadata_addresses_are_refused_even_where_loopback_is_allowed(sources):
    for host in ("169.254.169.254", "2852039166", "[fe80::1]", "[::ffff:169.254.169.254]"):
        found = await fail(sources, make_version("s3://models/m", endpoint=f"http://{host}"))
        assert found.reason == "SourceNotAllowed", host
        assert "always refused" in found.message


async def test_a_name_that_changes_after_the_check_is_caught_at_the_connection(data, monkeypatch):
    async def no_check(*_):
        pass

    monkeypatch.setattr("modelcache_operator.sources.s3.check_names", no_check)
    sources = make_sources(data, allow_list=AllowList())
    with S3Stub(lambda _: Answer()) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    await sources.close()
    assert found.reason == "SourceNotAllowed"
    assert not stub.requests


async def test_the_operators_own_identity_is_never_used(data, monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:1\n")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AMBIENT",
        "AWS_SECRET_ACCESS_KEY": "ambient",
        "AWS_PROFILE": "nope",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_CA_BUNDLE": "/nowhere",
        "AWS_DEFAULTS_MODE": "auto",
        "HTTP_PROXY": "http://127.0.0.1:1",
    }.items():
        monkeypatch.setenv(name, value)
    sources = make_sources(data)
    with S3Stub(script_listing(listing(["m/a"]))) as stub:
        await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
        await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint, secret="keys"))
    await sources.close()
    sent = [request.headers.get("authorization") for request in stub.requests]
    assert sent[0] is None
    assert "AKEXAMPLE" in sent[-1]
    assert not any("AMBIENT" in text for text in sent if text)


async def test_versions_that_may_not_be_seen_leave_etags(sources):
    def answer(request):
        if "versioning" in request.query:
            return error(403, "AccessDenied")
        return listing(["m/a"])

    with S3Stub(answer) as stub:
        found = await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.files[0].version_id, found.files[0].etag) == (None, '"e"')


VERSIONS = (
    "<ListVersionsResult><Version><Key>m/a</Key><VersionId>{id}</VersionId>"
    "<IsLatest>true</IsLatest><ETag>{etag}</ETag><Size>10</Size></Version>"
    "<IsTruncated>false</IsTruncated></ListVersionsResult>"
)


def versioned(version_id: str, etag: str, head: int = 200):
    def answer(request):
        if request.method == "HEAD":
            return Answer(head)
        if "versioning" in request.query:
            return Answer(
                200, "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            )
        if "versions" in request.query:
            return Answer(200, VERSIONS.format(id=version_id, etag=etag))
        return listing(["m/a"])

    return answer


@pytest.mark.parametrize(
    ("script", "version_id"),
    [
        pytest.param(versioned("v7", '"e"'), "v7", id="versioned"),
        pytest.param(versioned("v7", '"e"', head=403), None, id="versions may not be read"),
        pytest.param(versioned("null", '"e"'), None, id="null is overwritten in place"),
    ],
)
async def test_C21_a_version_id_is_used_where_it_can_be(sources, script, version_id):
    with S3Stub(script) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint)
        found = await sources.resolve(version)
        page = await sources.sign(version, found.files)
    assert found.files[0].version_id == version_id
    assert ("versionId=" in page.files[0].url) == (version_id is not None)


async def test_C06_a_change_between_two_listings_is_noticed(sources):
    with S3Stub(versioned("v8", '"other"')) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.reason, found.retry_after_seconds) == ("SourceChanged", 10.0)


async def test_not_found_says_what_was_looked_for(sources):
    with S3Stub(lambda r: unversioned() if "versioning" in r.query else listing([])) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
        whole = await fail(sources, make_version("s3://models", endpoint=stub.endpoint))
    assert (found.reason, whole.reason) == ("SourceNotFound", "SourceNotFound")
    assert 'no object named "m" and none below it' in found.message
    assert "is empty" in whole.message


async def test_a_cancelled_resolve_ends_its_listing(data):
    sources = make_sources(data)
    pages = [listing([f"m/{n}"], token=str(n + 1)) for n in range(1000)]
    paced = script_listing(*pages)
    with S3Stub(paced) as stub:
        task = asyncio.create_task(
            sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
        )
        await asyncio.to_thread(wait_until, lambda: len(stub.requests) > 2, seconds=5, what="pages")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.2)
        seen = len(stub.requests)
        await asyncio.sleep(0.2)
        assert len(stub.requests) == seen < 1000
    await sources.close()


async def test_a_store_that_drips_is_cut_off(data):
    sources = make_sources(data, timeouts=Timeouts(read=2.0, request=0.5))
    for drip in ("body", "head"):
        answer = Answer(200, "x" * 100, drip_seconds=0.1, drip=drip)
        with S3Stub(lambda _, answer=answer: answer) as stub:
            started = time.monotonic()
            found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
            assert time.monotonic() - started < 3.0
        assert found.retry_after_seconds is not None
    await sources.close()


async def test_an_endless_answer_is_not_kept_in_memory(sources):
    with S3Stub(lambda _: Answer(200, "x" * (17 * 1024 * 1024))) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "SourceError"
    assert "longer than" in found.message


async def test_a_listing_that_takes_too_long_is_given_up(data):
    sources = make_sources(data, resolve_seconds=0.3)
    pages = [listing([f"m/{n}"], token=str(n + 1)) for n in range(1000)]
    slow = script_listing(*(replace(page, hang_seconds=0.05) for page in pages))
    with S3Stub(slow) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    await sources.close()
    assert "takes too long" in found.message
