"""What a pod asks the operator before its grants: which version a name stands for.

The grants themselves are asked for and answered as an agent's are (`wire.GrantRequest`).
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from modelcache_api.v1alpha1.base import ApiModel, ByteCount, Digest
from modelcache_api.wire import Uid, WireError

Name = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class PodVersionRequest(ApiModel):
    """`POST /v1/pod/versions`: a ModelVersion, or the one that a ModelCache has as stable.

    Both are of the namespace that the token was issued in. `namespace` can only make the operator
    refuse.
    """

    namespace: Name | None = None
    model_version: Name | None = None
    model_cache: Name | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.model_version is None) == (self.model_cache is None):
            raise ValueError("give one of modelVersion and modelCache")
        return self


class PodVersion(ApiModel):
    """The version that the name stands for, or the refusal (HTTP 409).

    `content_digest` is there if it is pinned or adopted.
    """

    uid: Uid | None = None
    namespace: Name | None = None
    name: Name | None = None
    source_digest: Digest | None = None
    content_digest: Digest | None = None
    size_bytes: ByteCount = 0
    error: WireError | None = None
