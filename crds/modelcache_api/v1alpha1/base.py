"""What all types of the group share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from modelcache_api.limits import MAX_MESSAGE_LENGTH, MAX_NAME_LENGTH
from modelcache_api.markers import Column, ListType, Matches, Rule


class ApiModel(BaseModel):
    """A frozen value in the API's spelling (camelCase). Unknown fields are ignored on reading."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    """CEL validations over several fields; those of one field stand beside it."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        if cls.rules:
            keywords = [rule.as_keyword() for rule in cls.rules]
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = keywords
        return schema


class Kind(ApiModel):
    """What the CRD of a kind says besides its schema."""

    plural: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]]
    scope: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]


_NAME = Matches(
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
    "must be the name of an object: lower-case letters, digits, and - . in between",
)
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), _NAME]
ObjectName = Annotated[str, Field(min_length=1, max_length=253), _NAME]
DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern=DIGEST_PATTERN, max_length=71)]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", max_length=40)]
ByteCount = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]


class ConditionStatus(ApiModel):
    """One observed fact, as kstatus reads it."""

    type: Annotated[str, Field(min_length=1, max_length=63, description="Type of condition.")]
    status: Annotated[
        str,
        Field(
            max_length=7,
            pattern="^(True|False|Unknown)$",
            description="True, False or Unknown.",
        ),
    ]
    reason: Annotated[
        str,
        Field(min_length=1, max_length=63, description="One CamelCase word; see the reasons page."),
    ]
    message: Annotated[
        str, Field(max_length=MAX_MESSAGE_LENGTH, description="One sentence with cause and cure.")
    ] = ""
    observed_generation: Annotated[
        int | None,
        Field(
            ge=0,
            description=(
                "Generation of the spec that this condition was computed from; absent where it "
                "does not depend on the spec."
            ),
            json_schema_extra={"format": "int64"},
        ),
    ] = None
    last_transition_time: Annotated[
        datetime, Field(description="When status last changed its value.")
    ]


Conditions = Annotated[tuple[ConditionStatus, ...], Field(max_length=8), ListType("map", ("type",))]
