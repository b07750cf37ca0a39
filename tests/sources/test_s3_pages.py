"""Listings as odd stores page, tag and version them. Against a scripted server."""

from __future__ import annotations

import pytest

from fakes.s3_stub import Answer, S3Stub, error, listing, script_listing, unversioned
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version


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
    [('"abc"', '"abc"'), ("abc", '"abc"'), ('"abc-12"', '"abc-12"')],
)
async def test_C05_etags_are_kept_as_headers_spell_them(sources, listed, kept):
    with S3Stub(script_listing(listing([("m/a", 1, listed)]))) as stub:
        found = await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.files[0].etag == kept


async def test_a_weak_etag_is_no_identity_without_a_version_id(sources):
    with S3Stub(script_listing(listing([("m/a", 1, 'W/"abc"')]))) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.reason, found.retry_after_seconds) == ("SourceInvalid", None)
    assert "enable versioning" in found.message


VERSIONS = (
    "<ListVersionsResult><Version><Key>m/a</Key><VersionId>{id}</VersionId>"
    "<IsLatest>true</IsLatest><ETag>{etag}</ETag><Size>10</Size></Version>"
    "<IsTruncated>false</IsTruncated></ListVersionsResult>"
)


VERSIONING = "<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"


def versioned(version_id: str, etag: str = '"e"', status: str = "Enabled", **overriding: Answer):
    """`overriding` takes the place of answers to `versioning`, `versions` and `head`."""
    told = {
        "versioning": VERSIONING.format(status=status),
        "versions": VERSIONS.format(id=version_id, etag=etag),
        "head": "",
    }
    answers = {name: Answer(200, body) for name, body in told.items()} | overriding

    def answer(request):
        asked = "head" if request.method == "HEAD" else next(iter(request.query), "")
        return answers.get(asked) or listing(["m/a"])

    return answer


DENIED = error(403, "AccessDenied", "not\nfor you")


@pytest.mark.parametrize(
    ("script", "version_id"),
    [
        pytest.param(versioned("v7"), "v7", id="versioned"),
        pytest.param(versioned("v7", status="Suspended"), "v7", id="from before it was suspended"),
        pytest.param(
            versioned("null", status="Suspended"), None, id="null is overwritten in place"
        ),
        pytest.param(versioned("v7", versioning=unversioned()), None, id="never versioned"),
    ],
)
async def test_C21_a_version_id_is_used_where_it_can_be(sources, script, version_id):
    with S3Stub(script) as stub:
        version = make_version("s3://models/m", endpoint=stub.endpoint)
        found = await sources.resolve(version)
        page = await sources.sign(version, found.files)
    assert found.files[0].version_id == version_id
    assert ("versionId=" in page.files[0].url) == (version_id is not None)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param(versioned("v7", versioning=DENIED), "403 AccessDenied", id="not seen"),
        pytest.param(versioned("v7", versions=DENIED), "403 AccessDenied", id="not listed"),
        pytest.param(versioned("v7", head=Answer(403)), "403", id="not read"),
        pytest.param(
            versioned("v7", versioning=error(501, "NotImplemented")),
            "501 NotImplemented",
            id="a store without versions",
        ),
    ],
)
async def test_versions_that_may_not_be_used_leave_etags_and_the_log_says_why(
    sources, caplog, script, why
):
    with S3Stub(script) as stub, caplog.at_level("INFO"):
        found = await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.files[0].version_id, found.files[0].etag) == (None, '"e"')
    told = [record.message for record in caplog.records if "versions of bucket" in record.message]
    assert told == [f"versions of bucket 'models' are not used, ETags are: {why}"]


@pytest.mark.parametrize("step", ["versioning", "versions"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(error(400, "ExpiredToken"), "CredentialsExpired", id="C09"),
        pytest.param(error(403, "RequestTimeTooSkewed"), "ClockSkew", id="C10"),
        pytest.param(error(503, "SlowDown"), "Throttled", id="busy"),
    ],
)
async def test_what_ails_every_request_leaves_no_etag_in_place_of_a_version(
    sources, step, answer, reason
):
    with S3Stub(versioned("v7", **{step: answer})) as stub:
        found = await fail(
            sources, make_version("s3://models/m", endpoint=stub.endpoint, secret="keys")
        )
    assert found.reason == reason


async def test_C06_a_change_between_two_listings_is_noticed(sources):
    with S3Stub(versioned("v8", '"other"')) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert (found.reason, found.retry_after_seconds) == ("SourceChanged", 10.0)


async def test_not_found_says_what_was_looked_for(sources):
    with S3Stub(lambda r: unversioned() if "versioning" in r.query else listing([])) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
        whole = await fail(sources, make_version("s3://models", endpoint=stub.endpoint))
    assert (found.reason, whole.reason) == ("SourceNotFound", "SourceNotFound")
    assert "no object named 'm' and none below it" in found.message
    assert "is empty" in whole.message
