"""Every CEL rule and every pattern, accepted and refused; the message names field and cure."""

from __future__ import annotations

from typing import Any

import pytest

from contract.crds.objects import (
    DIGEST,
    FULL,
    GONE,
    HUB,
    LISTED,
    MINIMAL,
    RESOURCES,
    SUMMED,
    with_value,
)
from contract.crds.test_bounds import FIELDS, put, schemas
from modelcache_kube import Invalid

pytestmark = pytest.mark.cluster

VERSION, CACHE, NODE = "ModelVersion", "ModelCache", "CacheNode"
QUOTA = "ModelCacheQuota"
DISK = ("spec", "hard", "disk")
SECRET = ("spec", "source", "credentialsSecretRef", "name")
BUNDLE = ("spec", "source", "caBundleRef", "name")
STABLE = ("spec", "stable", "modelVersion")
URI = ("spec", "source", "uri")
ENDPOINT = ("spec", "source", "endpoint")
REGION = ("spec", "source", "region")
INTERVAL = ("spec", "source", "recheckInterval")
ADDRESSING = ("spec", "source", "addressing")
CHECKSUMS = ("spec", "source", "checksums")
COPIES = ("spec", "placement", "copies")
MIN_READY = ("spec", "placement", "minReady")
SELECTOR = ("spec", "placement", "nodeSelector")
TOLERATIONS = ("spec", "placement", "tolerations")
CANARY = ("spec", "canary", "modelVersion")
STEPS = ("spec", "rollout", "steps")
HOLD_FOR = ("spec", "rollout", "holdFor")
STEP_INTERVAL = ("spec", "rollout", "interval")
DEADLINE = ("spec", "rollout", "deadline")
THRESHOLD = ("spec", "rollout", "gate", "threshold")
GATE_INTERVAL = ("spec", "rollout", "gate", "interval")
ROUTE = ("spec", "rollout", "httpRouteRef", "name")
STABLE_SERVICE = ("spec", "rollout", "httpRouteRef", "stableService")
CANARY_SERVICE = ("spec", "rollout", "httpRouteRef", "canaryService")
OTHER_DIGEST = "sha256:" + "f" * 64
LONG_LABEL = "a" * 63

ACCEPTED = [
    pytest.param(VERSION, URI, "s3://abc", id="a bucket alone"),
    pytest.param(VERSION, URI, "s3://my.bucket-1/a b/ü/", id="any key below it"),
    pytest.param(VERSION, URI, "s3://abc/.hidden/v1..2/...", id="dots in names"),
    pytest.param(VERSION, ENDPOINT, "https://10.0.0.1:8333", id="https and an address"),
    pytest.param(VERSION, ENDPOINT, "http://[::1]:8333/", id="an IPv6 address and a slash"),
    pytest.param(VERSION, REGION, "us-gov-west-1", id="a region"),
    pytest.param(VERSION, CHECKSUMS, "Ask", id="checksums asked for"),
    pytest.param(VERSION, ("spec", "model"), "meta-llama/Llama-3.1-8B", id="a model id"),
    pytest.param(VERSION, ("spec", "digest"), DIGEST, id="a digest"),
    pytest.param(VERSION, INTERVAL, "10s", id="the shortest interval"),
    pytest.param(VERSION, INTERVAL, "720h", id="the longest interval"),
    pytest.param(VERSION, SECRET, "a.b-c." + "d" * 240, id="a long name of a Secret"),
    pytest.param(CACHE, STABLE, "minilm.v1-2", id="a version's name"),
    pytest.param(CACHE, COPIES, 5000, id="the most copies"),
    pytest.param(CACHE, COPIES, "All", id="a copy on every node"),
    pytest.param(CACHE, MIN_READY, 1, id="minReady below copies"),
    pytest.param(CACHE, SELECTOR, {LONG_LABEL: LONG_LABEL}, id="the longest label"),
    pytest.param(CACHE, SELECTOR, {f"{'a' * 253}/{LONG_LABEL}": ""}, id="the longest prefix"),
    pytest.param(CACHE, TOLERATIONS, [{"operator": "Exists"}], id="everything tolerated"),
    pytest.param(QUOTA, DISK, "0", id="no bytes at all"),
    pytest.param(QUOTA, DISK, "1.5Ti", id="a broken quantity"),
    pytest.param(QUOTA, ("spec", "hard", "pinned"), "10G", id="a decimal unit"),
    pytest.param(QUOTA, ("spec", "hard", "gpu"), "80Gi", id="bytes of cards"),
    pytest.param(CACHE, STEPS, [1, 5, 25, 100], id="ascending steps"),
    pytest.param(CACHE, STEPS, [], id="no steps"),
    pytest.param(CACHE, ("spec", "tier"), "GPU", id="the memory of cards"),
    pytest.param(CACHE, HOLD_FOR, "10s", id="the shortest hold"),
    pytest.param(CACHE, DEADLINE, "720h", id="the longest deadline"),
    pytest.param(CACHE, STEP_INTERVAL, "90m", id="an interval in minutes"),
    pytest.param(CACHE, THRESHOLD, "-0.5", id="a threshold below 0"),
    pytest.param(CACHE, THRESHOLD, "123456789012.123456789", id="the longest threshold"),
    pytest.param(CACHE, GATE_INTERVAL, "10s", id="the shortest interval of a gate"),
    pytest.param(CACHE, ROUTE, "embed.v1-" + "d" * 240, id="a long name of a route"),
    pytest.param(CACHE, CANARY_SERVICE, "embed-next", id="another Service"),
    pytest.param(CACHE, ("spec", "canary", "weight"), 0, id="a canary without traffic"),
    pytest.param(CACHE, TOLERATIONS, [{"key": "gpu"}], id="Equal to nothing"),
    pytest.param(CACHE, TOLERATIONS, [{"key": "a.b/c", "operator": "Exists"}], id="any value"),
]

REFUSED = [
    pytest.param(VERSION, URI, "ftp://bucket/x", "s3://bucket/prefix", id="another scheme"),
    pytest.param(VERSION, URI, "oci://host/model:v1", "oci:// is not supported; copy", id="oci"),
    pytest.param(VERSION, URI, "s3://Bucket/x", "s3://bucket/prefix", id="upper case bucket"),
    pytest.param(VERSION, URI, "s3://ab", "s3://bucket/prefix", id="too short a bucket"),
    pytest.param(VERSION, URI, "s3://", "s3://bucket/prefix", id="no bucket"),
    pytest.param(VERSION, URI, "s3://abc/x/../y", "no empty, . or ..", id="a step back"),
    pytest.param(VERSION, URI, "s3://abc/x/..", "no empty, . or ..", id="a step back at the end"),
    pytest.param(VERSION, URI, "s3://abc/./y", "no empty, . or ..", id="a step nowhere"),
    pytest.param(VERSION, URI, "s3://abc//y", "no empty, . or ..", id="an empty part"),
    pytest.param(VERSION, ENDPOINT, "seaweed:8333", "http://host:port", id="no scheme"),
    pytest.param(VERSION, ENDPOINT, "http://h:1/path", "without a path", id="with a path"),
    pytest.param(VERSION, ENDPOINT, "http://h:1/?a=b", "http://host:port", id="with a query"),
    pytest.param(VERSION, ENDPOINT, "http://u:p@h", "http://host:port", id="with a password"),
    pytest.param(VERSION, REGION, "EU west", "us-east-1", id="no region"),
    pytest.param(VERSION, ("spec", "model"), "/absolute", "organisation/name", id="no model id"),
    pytest.param(VERSION, ("spec", "digest"), "sha256:AB", "64 lower-case hex", id="no digest"),
    pytest.param(VERSION, INTERVAL, "1d", "whole number of s, m or h", id="an interval in days"),
    pytest.param(VERSION, INTERVAL, "-1h", "whole number of s, m or h", id="an interval below 0"),
    pytest.param(VERSION, INTERVAL, "9s", "from 10s to 720h", id="too short an interval"),
    pytest.param(VERSION, INTERVAL, "721h", "from 10s to 720h", id="too long an interval"),
    pytest.param(VERSION, SECRET, "../other/secrets/x", "name of an object", id="a path out"),
    pytest.param(VERSION, BUNDLE, "a/status", "name of an object", id="a path in"),
    pytest.param(CACHE, STABLE, "Minilm V1", "name of an object", id="no name of a version"),
    pytest.param(CACHE, ("spec", "tier"), "Gpu", 'supported values: "Disk"', id="no such tier"),
    pytest.param(CACHE, COPIES, 0, "from 1 to 5000, or All", id="no copies"),
    pytest.param(CACHE, COPIES, 5001, "from 1 to 5000, or All", id="too many copies"),
    pytest.param(CACHE, COPIES, "all", "from 1 to 5000, or All", id="all in lower case"),
    pytest.param(CACHE, COPIES, "2", "from 1 to 5000, or All", id="a number in quotes"),
    pytest.param(CACHE, MIN_READY, 3, "minReady must not be above copies", id="minReady above"),
    pytest.param(CACHE, SELECTOR, {"a" * 64: ""}, "name of at most 63", id="too long a key"),
    pytest.param(CACHE, SELECTOR, {"a/b/c": ""}, "name of at most 63", id="two prefixes"),
    pytest.param(CACHE, SELECTOR, {"": ""}, "name of at most 63", id="an empty key"),
    pytest.param(CACHE, SELECTOR, {"k": "a b"}, "at most 63", id="no label value"),
    pytest.param(CACHE, SELECTOR, {"k": "-a"}, "at most 63", id="a value that begins badly"),
    pytest.param(CACHE, TOLERATIONS, [{"value": "x"}], "needs operator Exists", id="no key"),
    pytest.param(QUOTA, DISK, "-1Gi", "bytes as a quantity", id="bytes below zero"),
    pytest.param(QUOTA, DISK, "500 GB", "bytes as a quantity", id="no quantity"),
    pytest.param(QUOTA, ("spec", "hard", "host"), "1e3", "bytes as a quantity", id="an exponent"),
    pytest.param(QUOTA, ("spec", "hard", "gpu"), "2 cards", "bytes as a quantity", id="cards"),
    pytest.param(CACHE, STEPS, [25, 5], "must ascend", id="descending steps"),
    pytest.param(CACHE, STEPS, [5, 5], "must ascend", id="a step twice"),
    pytest.param(CACHE, HOLD_FOR, "1d", "whole number of s, m or h", id="a hold in days"),
    pytest.param(CACHE, HOLD_FOR, "9s", "from 10s to 720h", id="too short a hold"),
    pytest.param(CACHE, DEADLINE, "721h", "from 10s to 720h", id="too long a deadline"),
    pytest.param(CACHE, STEP_INTERVAL, "5", "whole number of s, m or h", id="a bare number"),
    pytest.param(CACHE, THRESHOLD, "1%", "decimal number in quotes", id="a percentage"),
    pytest.param(CACHE, THRESHOLD, "1e-3", "decimal number in quotes", id="an exponent"),
    pytest.param(CACHE, THRESHOLD, ".5", "decimal number in quotes", id="no digit in front"),
    pytest.param(CACHE, GATE_INTERVAL, "1d", "whole number of s, m or h", id="gate in days"),
    pytest.param(CACHE, GATE_INTERVAL, "9s", "from 10s to 720h", id="a gate asked too often"),
    pytest.param(CACHE, ROUTE, "a/b", "name of an object", id="a path to a route"),
    pytest.param(CACHE, STABLE_SERVICE, "a_b", "name of an object", id="no name of a Service"),
    pytest.param(
        CACHE, CANARY_SERVICE, "embed-stable", "must not be stableService", id="one Service"
    ),
    pytest.param(CACHE, CANARY, "minilm-v1", "must not be stable.modelVersion", id="no canary"),
    pytest.param(CACHE, CANARY, "Minilm V2", "name of an object", id="no name of a canary"),
    pytest.param(
        CACHE,
        TOLERATIONS,
        [{"key": "k", "operator": "Exists", "value": "x"}],
        "takes no value",
        id="Exists with a value",
    ),
    pytest.param(CACHE, TOLERATIONS, [{"key": "a b"}], "key of a taint", id="no taint key"),
    pytest.param(
        CACHE, TOLERATIONS, [{"key": "k", "value": "a b"}], "at most 63", id="no taint value"
    ),
]


@pytest.mark.parametrize(("kind", "path", "value"), ACCEPTED)
async def test_accepted(hand, kind, path, value):
    assert await hand.create(kind, with_value(FULL[kind], path, value))


@pytest.mark.parametrize(("kind", "path", "value", "cure"), REFUSED)
async def test_refused_with_field_and_cure(hand, kind, path, value, cure):
    with pytest.raises(Invalid) as refused:
        await hand.create(kind, with_value(FULL[kind], path, value))
    message = str(refused.value)
    assert cure in message
    assert ".".join(map(str, path)) in message


HUB_ACCEPTED = [
    pytest.param(URI, "hf://gpt2", id="a name of one part"),
    pytest.param(URI, "hf://meta-llama/Llama-3.1-8B", id="organisation and name"),
    pytest.param(URI, "hf://_a/b_@main", id="underscores"),
    pytest.param(URI, f"hf://{'a' * 96}/{'b' * 96}@{'c' * 255}", id="the longest"),
    pytest.param(URI, f"hf://org/name@{'0a' * 20}", id="a commit"),
    pytest.param(URI, "hf://org/name@refs/pr/1", id="a revision with slashes"),
    pytest.param(URI, "hf://org/name@v1.0+cu12", id="a tag"),
    pytest.param(URI, "hf://org/na.me@a--b", id="dots in a name, dashes in a revision"),
    pytest.param(ENDPOINT, "https://mirror.example", id="a mirror"),
    pytest.param(ENDPOINT, "http://[::1]:8080/api/hub/", id="a mirror below a path"),
    pytest.param(ENDPOINT, GONE, id="the public hub"),
    pytest.param(ADDRESSING, "Auto", id="what is the default anyhow"),
    pytest.param(CHECKSUMS, "WhenListed", id="the default of checksums"),
]
KIND_OF_HUB, NAME_OF_HUB = "and no other kind", "has no -- and no .."
HUB_REFUSED = [
    pytest.param(URI, "hf://", "hf://organisation/name", id="no name"),
    pytest.param(URI, "hf://org/", "hf://organisation/name", id="no second part"),
    pytest.param(URI, "hf://a/b/c", "hf://organisation/name", id="three parts"),
    pytest.param(URI, "hf://org/name.", "hf://organisation/name", id="a dot at the end"),
    pytest.param(URI, "hf://-org/name", "hf://organisation/name", id="a dash at the beginning"),
    pytest.param(URI, f"hf://{'a' * 97}", "hf://organisation/name", id="too long a name"),
    pytest.param(URI, f"hf://a@{'b' * 256}", "hf://organisation/name", id="too long a revision"),
    pytest.param(URI, "hf://org/name@", "hf://organisation/name", id="an empty revision"),
    pytest.param(URI, "hf://org/name@main/", "hf://organisation/name", id="a slash at the end"),
    pytest.param(URI, "hf://org/name@a b", "hf://organisation/name", id="a space"),
    pytest.param(URI, "hf://org/name@a@b", "hf://organisation/name", id="two revisions"),
    pytest.param(URI, "hf://org/name@a//b", "no empty, . or ..", id="an empty part"),
    pytest.param(URI, "hf://org/name@a/../b", "no empty, . or ..", id="a step back"),
    pytest.param(URI, "hf://datasets/squad", KIND_OF_HUB, id="a dataset"),
    pytest.param(URI, "hf://models/gpt2", KIND_OF_HUB, id="a kind that is clear"),
    pytest.param(URI, "hf://org/na--me", NAME_OF_HUB, id="two dashes"),
    pytest.param(URI, "hf://o..rg/name@x", NAME_OF_HUB, id="two dots"),
    pytest.param(URI, "hf://org/name.git@x", NAME_OF_HUB, id="git at the end"),
    pytest.param(REGION, "us-east-1", "source.region goes with s3:// only", id="a region"),
    pytest.param(ADDRESSING, "Path", "source.addressing goes with s3:// only", id="addressing"),
    pytest.param(CHECKSUMS, "Ask", "source.checksums goes with s3:// only", id="checksums"),
    pytest.param(ENDPOINT, "https://h/a b", "http://host:port", id="a space in the path"),
    pytest.param(ENDPOINT, "https://u:p@h/a", "http://host:port", id="a password"),
]


@pytest.mark.parametrize(("path", "value"), HUB_ACCEPTED)
async def test_of_the_hub_accepted(hand, path, value):
    assert await hand.create(VERSION, with_value(HUB, path, value))


@pytest.mark.parametrize(("path", "value", "cure"), HUB_REFUSED)
async def test_of_the_hub_refused_with_field_and_cure(hand, path, value, cure):
    with pytest.raises(Invalid) as refused:
        await hand.create(VERSION, with_value(HUB, path, value))
    assert cure in str(refused.value)
    assert ".".join(path) in str(refused.value)


async def test_a_repository_stays_one_and_its_transport_may_change(hand):
    made = await hand.create(VERSION, HUB)
    name = made["metadata"]["name"]
    await hand.patch(VERSION, name, with_value({}, ENDPOINT, "https://other/mirror"))
    with pytest.raises(Invalid, match=r"source\.uri is immutable"):
        await hand.patch(VERSION, name, with_value({}, URI, "hf://gpt2"))


FILES, CHECKSUM_FILE = ("spec", "files"), ("spec", "checksumFile")
WEB_ACCEPTED = [
    pytest.param(LISTED, URI, "https://h/", id="a folder at the top"),
    pytest.param(LISTED, URI, "http://[::1]:8080/a/", id="http, an IPv6 address and a port"),
    pytest.param(LISTED, URI, "https://h/a%20b/%C3%BC/~x/v1..2/", id="what needs an escape"),
    pytest.param(LISTED, FILES, GONE, id="a folder with the usual checksum file"),
    pytest.param(LISTED, FILES, [".gitkeep", "a b/ü?#.bin", "..."], id="any name"),
    pytest.param(SUMMED, CHECKSUM_FILE, "sha256 sums (1).txt", id="any name of a checksum file"),
    pytest.param(SUMMED, ("spec", "include"), ["*.safetensors"], id="globs"),
    pytest.param(SUMMED, ("spec", "digest"), DIGEST, id="a pin"),
]
NO_ADDRESS = "https://host/path, with the host in lower case"
WEB_REFUSED = [
    pytest.param(LISTED, URI, "https://h", NO_ADDRESS, id="no path"),
    pytest.param(LISTED, URI, "https://H/x/", NO_ADDRESS, id="an upper case host"),
    pytest.param(LISTED, URI, "HTTPS://h/x/", NO_ADDRESS, id="an upper case scheme"),
    pytest.param(LISTED, URI, "https://u:p@h/x/", NO_ADDRESS, id="a password"),
    pytest.param(LISTED, URI, "https://h./x/", NO_ADDRESS, id="a dot after the host"),
    pytest.param(LISTED, URI, "https://h:0/x/", NO_ADDRESS, id="no port"),
    pytest.param(LISTED, URI, "https://h/x/?token=y/", NO_ADDRESS, id="a query"),
    pytest.param(LISTED, URI, "https://h/x/#y/", NO_ADDRESS, id="a fragment"),
    pytest.param(LISTED, URI, "https://h/%2e%2e/x/", NO_ADDRESS, id="escaped dots"),
    pytest.param(LISTED, URI, "https://h/a%2Fb/", NO_ADDRESS, id="an escaped slash"),
    pytest.param(LISTED, URI, "https://h/%252e/", NO_ADDRESS, id="an escaped escape"),
    pytest.param(LISTED, URI, "https://h/..;/x/", NO_ADDRESS, id="a path parameter"),
    pytest.param(LISTED, URI, "https://h/a/../b/", "no empty, . or ..", id="a step back"),
    pytest.param(LISTED, URI, "https://h//a/", "no empty, . or ..", id="an empty part"),
    pytest.param(LISTED, SECRET[:-1], {"name": "s"}, "never get credentials", id="a Secret"),
    pytest.param(LISTED, ENDPOINT, "https://h", "the URI is the address", id="an endpoint"),
    pytest.param(LISTED, REGION, "us-east-1", "goes with s3:// only", id="a region"),
    pytest.param(LISTED, ADDRESSING, "Path", "goes with s3:// only", id="addressing"),
    pytest.param(LISTED, CHECKSUMS, "Ask", "goes with s3:// only", id="checksums of a store"),
    pytest.param(LISTED, FILES, [], "at least 1 item", id="an empty list"),
    pytest.param(LISTED, FILES, ["/a"], "paths below source.uri", id="an absolute path"),
    pytest.param(LISTED, FILES, ["a/"], "paths below source.uri", id="a folder"),
    pytest.param(LISTED, FILES, ["a\\b"], "paths below source.uri", id="a backslash"),
    pytest.param(LISTED, FILES, ["a/../../b"], "no . or .. part", id="a step out"),
    pytest.param(LISTED, CHECKSUM_FILE, "SHA256SUMS", "remove one of them", id="both"),
    pytest.param(
        SUMMED, CHECKSUM_FILE, "a/SHA256SUMS", "name of a file in the folder", id="a path"
    ),
    pytest.param(SUMMED, CHECKSUM_FILE, "..", "must be the name of a file", id="no name"),
]


@pytest.mark.parametrize(("sample", "path", "value"), WEB_ACCEPTED)
async def test_of_a_web_server_accepted(hand, sample, path, value):
    assert await hand.create(VERSION, with_value(sample, path, value))


@pytest.mark.parametrize(("sample", "path", "value", "cure"), WEB_REFUSED)
async def test_of_a_web_server_refused_with_field_and_cure(hand, sample, path, value, cure):
    with pytest.raises(Invalid) as refused:
        await hand.create(VERSION, with_value(sample, path, value))
    assert cure in str(refused.value)
    assert ".".join(path) in str(refused.value)


NOT_A_FOLDER = [
    pytest.param(FILES, "https://h/m.gguf", "files goes with a folder", id="files of a file"),
    pytest.param(FILES, "s3://models/m/", "files goes with a folder", id="files of a bucket"),
    pytest.param(
        CHECKSUM_FILE, "https://h/m.gguf", "checksumFile goes with a folder", id="of a file"
    ),
    pytest.param(
        CHECKSUM_FILE, "hf://org/name", "checksumFile goes with a folder", id="of the hub"
    ),
]


@pytest.mark.parametrize(("field", "uri", "cure"), NOT_A_FOLDER)
async def test_what_names_files_goes_with_a_folder_of_a_web_server(hand, field, uri, cure):
    sample = LISTED if field == FILES else SUMMED
    with pytest.raises(Invalid) as refused:
        await hand.create(VERSION, with_value(sample, URI, uri))
    assert cure in str(refused.value)
    assert ".".join(field) in str(refused.value)


FOLDER_SET_ONCE = [
    pytest.param(LISTED, FILES, ["x"], "files is immutable", id="files"),
    pytest.param(LISTED, FILES, None, "files is immutable", id="files taken"),
    pytest.param(SUMMED, CHECKSUM_FILE, "x", "checksumFile is immutable", id="checksumFile"),
    pytest.param(SUMMED, CHECKSUM_FILE, None, "checksumFile is immutable", id="checksumFile taken"),
]


@pytest.mark.parametrize(("sample", "path", "value", "cure"), FOLDER_SET_ONCE)
async def test_which_files_a_folder_has_cannot_be_changed(hand, sample, path, value, cure):
    made = await hand.create(VERSION, sample)
    with pytest.raises(Invalid, match=cure):
        await hand.patch(VERSION, made["metadata"]["name"], with_value({}, path, value))


LOAD = ("spec", "load")
SET_ONCE = [
    pytest.param(VERSION, ("spec", "model"), "other", "model is immutable: create", id="model"),
    pytest.param(VERSION, URI, "s3://other", "source.uri is immutable: create", id="uri"),
    pytest.param(VERSION, CHECKSUMS, "Ignore", "checksums is immutable: create", id="checksums"),
    pytest.param(VERSION, ("spec", "include"), ["x"], "include is immutable: create", id="include"),
    pytest.param(VERSION, ("spec", "include"), None, "include is immutable", id="include taken"),
    pytest.param(VERSION, ("spec", "exclude"), ["x"], "exclude is immutable: create", id="exclude"),
    pytest.param(VERSION, ("spec", "exclude"), None, "exclude is immutable", id="exclude taken"),
    pytest.param(VERSION, LOAD, {"include": ["x"]}, "load is immutable: create", id="load"),
    pytest.param(VERSION, LOAD, None, "load is immutable", id="load taken"),
    pytest.param(VERSION, ("spec", "digest"), OTHER_DIGEST, "digest can be set once", id="digest"),
    pytest.param(VERSION, ("spec", "digest"), None, "digest can be set once", id="digest taken"),
    pytest.param(NODE, ("spec", "nodeUid"), "u2", "nodeUid is immutable", id="nodeUid"),
]


@pytest.mark.parametrize(("kind", "path", "value", "cure"), SET_ONCE)
async def test_identity_cannot_be_changed(hand, kind, path, value, cure):
    made = await hand.create(kind, FULL[kind])
    with pytest.raises(Invalid) as refused:
        await hand.patch(kind, made["metadata"]["name"], with_value({}, path, value))
    assert cure in str(refused.value)
    assert ".".join(map(str, path)) in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("include", ["x"]), ("exclude", ["x"]), ("load", {"include": ["x"]})],
    ids=["include", "exclude", "load"],
)
async def test_globs_cannot_be_added_later(hand, field, value):
    made = await hand.create(VERSION, MINIMAL[VERSION])
    with pytest.raises(Invalid, match=f"{field} is immutable"):
        await hand.patch(VERSION, made["metadata"]["name"], {"spec": {field: value}})


async def test_digest_can_be_set_once_later(hand):
    made = await hand.create(VERSION, MINIMAL[VERSION])
    pinned = await hand.patch(VERSION, made["metadata"]["name"], {"spec": {"digest": DIGEST}})
    assert pinned["spec"]["digest"] == DIGEST


TRANSPORT = [
    pytest.param(ENDPOINT, "https://elsewhere", id="endpoint"),
    pytest.param(REGION, "us-east-1", id="region"),
    pytest.param(("spec", "source", "addressing"), "Virtual", id="addressing"),
    pytest.param(("spec", "source", "credentialsSecretRef"), None, id="credentials"),
    pytest.param(("spec", "source", "caBundleRef", "key"), "x", id="CA bundle"),
    pytest.param(INTERVAL, "90m", id="interval of checks"),
    pytest.param(("spec", "onSourceGone"), "Keep", id="what becomes of copies without a source"),
]


@pytest.mark.parametrize(("path", "value"), TRANSPORT)
async def test_transport_can_be_changed(hand, path, value):
    made = await hand.create(VERSION, FULL[VERSION])
    assert await hand.patch(VERSION, made["metadata"]["name"], with_value({}, path, value))


async def test_node_may_be_reached_with_all_else_changed(hand):
    made = await hand.create(NODE, FULL[NODE])
    await hand.patch(NODE, made["metadata"]["name"], {"spec": {"entries": [], "caches": []}})


@pytest.mark.parametrize("kind", [VERSION, CACHE])
async def test_C32_name_of_63_characters_is_accepted(hand, kind):
    assert await hand.create(kind, MINIMAL[kind], "a" * 63)


@pytest.mark.parametrize("kind", [VERSION, CACHE])
async def test_C32_longer_name_is_refused_with_the_limit(hand, kind):
    with pytest.raises(Invalid, match=r"the name must be at most 63 characters: .* label value"):
        await hand.create(kind, MINIMAL[kind], "a" * 64)


@pytest.mark.parametrize("kind", list(RESOURCES))
@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "sp ace", "ü"])
async def test_C32_name_that_is_no_label_value_is_refused(hand, kind, name):
    with pytest.raises(Invalid, match="lowercase RFC 1123 subdomain"):
        await hand.create(kind, MINIMAL[kind], name)


async def test_C32_reference_longer_than_a_name_is_refused_with_the_limit(hand):
    body = with_value(MINIMAL[CACHE], ("spec", "stable", "modelVersion"), "a" * 64)
    with pytest.raises(Invalid, match=r"spec\.stable\.modelVersion: Too long: .* 63"):
        await hand.create(CACHE, body)


def messages(schema: Any) -> list[str]:
    return [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]


def test_every_rule_has_a_row():
    rows = (*REFUSED, *HUB_REFUSED, *WEB_REFUSED, *NOT_A_FOLDER, *FOLDER_SET_ONCE, *SET_ONCE)
    told = [row.values[-1] for row in rows] + ["the name must be at most 63"]
    # CacheNodes are written by our programs: the patterns are tried, the sentences are not needed.
    every = [m for root in schemas().values() for m in messages(root)]
    every += [m for _, _, schema in FIELDS for m in messages(schema)]
    missing = [m for m in every if not any(cure in m for cure in told)]
    assert missing == []


DIGESTS = [
    pytest.param(kind, path, id=f"{kind}.{'.'.join(map(str, path))}")
    for kind, path, schema in FIELDS
    if schema.get("pattern") and (path[0] == "status" or kind == NODE)
]


@pytest.mark.parametrize(("kind", "path"), DIGESTS)
async def test_pattern_of_what_our_programs_write(hand, kind, path):
    body = with_value(FULL[kind], path, "X")
    with pytest.raises(Invalid, match=f"{path[-1]}"):
        await put(hand, kind, body, path)


async def test_removed_value_is_the_same_as_an_absent_one(hand):
    body = with_value(FULL[VERSION], ("spec", "digest"), GONE)
    assert "digest" not in (await hand.create(VERSION, body))["spec"]
