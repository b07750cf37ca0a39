"""What a store can do wrong, and the one reason that it gets. Against a scripted server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.s3_stub import Answer, S3Stub, error, listing, script_listing
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version


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


PAGE = listing(["m/a", "m/b"])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(replace(PAGE, cut_at=150), id="hangs up in the middle"),
        pytest.param(replace(PAGE, body=PAGE.body[:150]), id="ends in a tag"),
        pytest.param(replace(PAGE, body=PAGE.body.partition("</Contents>")[0]), id="lacks an end"),
    ],
)
async def test_C03_C04_half_a_page_is_no_listing(sources, page):
    with S3Stub(script_listing(page)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "SourceError"
    assert found.retry_after_seconds is not None
    assert len([one for one in stub.requests if "list-type" in one.query]) == 1, "no hot loop"
