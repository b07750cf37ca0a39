"""Where a content comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from modelcache_api.markers import Matches, Rule
from modelcache_api.names import Scheme
from modelcache_api.v1alpha1.base import ApiModel, ObjectName
from modelcache_api.web_address import WEB_ADDRESS

_INTERVAL_PATTERN: Final = "^[0-9]{1,6}[smh]$"


class Addressing(StrEnum):
    """How a bucket is named in a request."""

    AUTO = "Auto"
    PATH = "Path"
    VIRTUAL = "Virtual"


class Checksums(StrEnum):
    """Which checksums of an S3 store are compared with the bytes."""

    WHEN_LISTED = "WhenListed"
    ASK = "Ask"
    IGNORE = "Ignore"


class BundleKind(StrEnum):
    """Kinds of object that can carry a CA bundle."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind's name


class CABundleRef(ApiModel):
    """Where the PEM bundle lies that signs the endpoint's certificate."""

    kind: Annotated[
        BundleKind, Field(description="ConfigMap or Secret, in the same namespace.")
    ] = BundleKind.CONFIG_MAP
    name: Annotated[ObjectName, Field(description="Name of the object.")]
    key: Annotated[str, Field(min_length=1, max_length=253, description="Key in its data.")] = (
        "ca.crt"
    )


class SecretRef(ApiModel):
    """A Secret of the same namespace."""

    name: Annotated[ObjectName, Field(description="Name of the Secret.")]


_BUCKET: Final = rf"{Scheme.S3.prefix}[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9](/.*)?"
_HUB_NAME: Final = r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REVISION: Final = r"[A-Za-z0-9_]([A-Za-z0-9._/+-]{0,253}[A-Za-z0-9_+-])?"
_REPOSITORY: Final = f"{Scheme.HUB.prefix}{_HUB_NAME}(/{_HUB_NAME})?(@{_REVISION})?"


_IS_S3: Final = f"self.uri.startsWith('{Scheme.S3.prefix}')"
_IS_WEB: Final = "self.uri.matches(r'^https?://')"


class Source(ApiModel):
    """The store, hub or web server that holds the content. Only `uri` is part of the identity."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.endpoint) || !{_IS_S3} || self.endpoint.matches(r'^https?://[^/]*/?$')",
            "source.endpoint of s3:// must be without a path",
            ".endpoint",
        ),
        Rule(
            f"!has(self.region) || {_IS_S3}",
            "source.region goes with s3:// only: remove it",
            ".region",
        ),
        Rule(
            f"!has(self.addressing) || self.addressing == 'Auto' || {_IS_S3}",
            "source.addressing goes with s3:// only: remove it",
            ".addressing",
        ),
        Rule(
            f"!has(self.checksums) || self.checksums == 'WhenListed' || {_IS_S3}",
            "source.checksums goes with s3:// only: remove it",
            ".checksums",
        ),
        Rule(
            f"!has(self.endpoint) || !{_IS_WEB}",
            "source.endpoint does not go with https://: the URI is the address; remove it",
            ".endpoint",
        ),
        Rule(
            f"!has(self.credentialsSecretRef) || !{_IS_WEB}",
            "source.credentialsSecretRef does not go with https://: agents read web servers "
            "themselves and never get credentials; put the model into a bucket (s3://), or let the "
            "nodes read without any",
            ".credentialsSecretRef",
        ),
    )

    uri: Annotated[
        str,
        Field(
            max_length=1600,
            description=(
                "s3://bucket/prefix; s3://bucket/key for one object; or a model repository of the "
                "hub as hf://organisation/name@revision, where the revision is a branch (main, if "
                "there is none), a tag or a commit; or https://host/path: one file, or with a "
                "slash at its end a folder, whose files checksumFile or files name. Immutable."
            ),
        ),
        Matches(
            f"^({_BUCKET}|{_REPOSITORY}|{WEB_ADDRESS})$",
            "source.uri must be s3://bucket/prefix, hf://organisation/name@revision or "
            "https://host/path, with the host in lower case, without user, query and needless "
            "escapes",
        ),
        Rule(
            r"!self.matches(r'^(s3|hf|https?)://.*(//|/\.{1,2}(/|$))')",
            "source.uri must have no empty, . or .. part",
        ),
        Rule(
            f"!self.matches(r'^{Scheme.HUB.prefix}(models|datasets|spaces|kernels|buckets)/')",
            "source.uri names a model repository as hf://organisation/name, and no other kind",
        ),
        Rule(
            rf"!self.matches(r'^{Scheme.HUB.prefix}[^@]*(--|\.\.|\.git(@|$))')",
            "source.uri: a name of the hub has no -- and no .. and does not end with .git",
        ),
        Rule(
            "!self.startsWith('oci://')",
            "source.uri: oci:// is not supported; copy the artifact's files into a bucket and name "
            "that by s3://",
        ),
        Rule("self == oldSelf", "source.uri is immutable: create a new ModelVersion instead"),
    ]
    endpoint: Annotated[
        str | None,
        Field(
            max_length=512,
            description=(
                "Address with its scheme: of an S3-compatible store, e.g. http://seaweed:8333, or "
                "of a mirror of the hub, which may have a path. Without it, AWS S3 of the region, "
                "or the cluster's own mirror of the hub, else the public one."
            ),
        ),
        Matches(
            r"^https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~/-]*)?$",
            "source.endpoint must be http://host:port or https://host:port",
        ),
    ] = None
    region: Annotated[
        str | None,
        Field(max_length=64, description="Region used for signing s3://; us-east-1 if absent."),
        Matches(r"^[a-z0-9-]+$", "source.region must be the name of a region, e.g. us-east-1"),
    ] = None
    addressing: Annotated[
        Addressing,
        Field(
            description=(
                "For s3://: Path puts the bucket in the path, Virtual in the host name. "
                "Auto takes Path for a custom endpoint and Virtual for AWS."
            )
        ),
    ] = Addressing.AUTO
    checksums: Annotated[
        Checksums,
        Field(
            description=(
                "For s3://: which checksums of whole objects the first node's bytes are compared "
                "with. WhenListed: those that the store's listing announces. Ask: all objects are "
                "asked for one, which some stores refuse. Ignore: none. Immutable."
            )
        ),
        Rule("self == oldSelf", "source.checksums is immutable: create a new ModelVersion instead"),
    ] = Checksums.WHEN_LISTED
    ca_bundle_ref: Annotated[
        CABundleRef | None,
        Field(
            description=(
                "CA bundle for an https endpoint or URI of a private CA, and for where that "
                "redirects to."
            )
        ),
    ] = None
    credentials_secret_ref: Annotated[
        SecretRef | None,
        Field(
            description=(
                "Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally "
                "AWS_SESSION_TOKEN for s3://, with HF_TOKEN for hf://. Without it, and always for "
                "https://, requests are anonymous."
            )
        ),
    ] = None
    recheck_interval: Annotated[
        str,
        Field(
            max_length=7,
            description=(
                "How often the source is listed again to see whether it is still the same, from "
                "10s to 720h. Not done while spec.digest, or a commit in the URI, pins the content."
            ),
        ),
        Matches(
            _INTERVAL_PATTERN,
            "source.recheckInterval must be a whole number of s, m or h, e.g. 24h",
        ),
        Rule(
            f"!self.matches(r'{_INTERVAL_PATTERN}')"
            " || (duration(self) >= duration('10s') && duration(self) <= duration('720h'))",
            "source.recheckInterval must be from 10s to 720h",
        ),
    ] = "24h"
