"""What a name stands for, asked of the operator with a pod's own token."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from modelcache_agent.adapters.operator_http import OperatorHttp
from modelcache_agent.decide.granting import UNKNOWN_SECONDS, describe_wire_error
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_api.names import PATH_POD_VERSIONS, Reason
from modelcache_api.pod_wire import PodVersion, PodVersionRequest

_AGAIN_SECONDS: Final = 5.0


async def ask_for_version(http: OperatorHttp, asked: PodVersionRequest) -> PodVersion:
    """The version, with its uid and sourceDigest.

    Raises:
        GrantUnavailableError: there is no answer, or a refusal with its reason.
    """
    body = asked.model_dump_json(by_alias=True, exclude_none=True).encode()
    _status, document = await http.post(PATH_POD_VERSIONS, body)
    try:
        answer = PodVersion.model_validate(document)
    except ValidationError as error:
        message = "the operator's answer about the version cannot be read"
        raise GrantUnavailableError(Reason.OPERATOR_UNREACHABLE, message, _AGAIN_SECONDS) from error
    if answer.error is not None or answer.uid is None or answer.source_digest is None:
        reason, message = describe_wire_error(answer.error)
        # Another replica may have seen by now what this one has not.
        http.reconnect()
        late = reason is Reason.NOT_KNOWN_YET
        raise GrantUnavailableError(reason, message, UNKNOWN_SECONDS if late else _AGAIN_SECONDS)
    return answer
