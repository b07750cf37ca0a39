"""Which grants a single pod may have: of Ready ModelVersions of its own namespace. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from modelcache_api.conditions import truncate
from modelcache_api.names import Reason
from modelcache_api.pod_wire import PodVersion, PodVersionRequest
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import WireError
from modelcache_operator.decide.events import find_condition
from modelcache_operator.decide.grant_access import AgentAccount, Claims, Denial, PodState
from modelcache_operator.decide.world import ModelVersionView, ObjectKey

_ACCOUNT: Final = "system:serviceaccount:"
_NOT_READY: Final = "the operator does not understand the ModelVersion: upgrade the operator"


@dataclass(frozen=True, slots=True)
class PodCaller:
    """A pod, known by its token. `node_name` is what the API server says; None: bound to none."""

    key: ObjectKey
    uid: str
    node_name: str | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the pod, and of everything that it may have."""
        return self.key.namespace

    def __str__(self) -> str:
        return f"{self.key} ({self.uid})"


def identify_pod(claims: Claims | None, agents: AgentAccount) -> PodCaller | Denial:
    """The pod that the claims are about. A token that is bound to no pod is refused.

    The namespace is the service account's, and a pod runs in the namespace of its own.
    """
    if claims is None:
        return Denial("the token is not valid here", HTTPStatus.UNAUTHORIZED)
    namespace, _, name = claims.username.removeprefix(_ACCOUNT).partition(":")
    if not claims.username.startswith(_ACCOUNT) or not namespace or not name:
        return Denial("only service accounts of pods are served")
    if claims.username == agents.username:
        return Denial("an agent is granted the entries of its node, and nothing as a pod")
    if not (claims.pod_name and claims.pod_uid):
        return Denial("the token is not bound to a pod: mount a projected service-account token")
    return PodCaller(ObjectKey(namespace, claims.pod_name), claims.pod_uid, claims.node_name)


def check_bound_pod(caller: PodCaller, pod: PodState | None) -> Denial | None:
    """The pod must still be there, be the same one, and be where the token says."""
    if pod is None or pod.uid != caller.uid:
        return Denial("the token's pod is gone")
    if caller.node_name is not None and caller.node_name != pod.node_name:
        return Denial("the token's pod is on another node")
    if pod.is_terminating or pod.is_finished:
        return Denial("the token's pod is ending")
    return None


def check_namespace(caller: PodCaller, asked: PodVersionRequest) -> WireError | None:
    """Why a name of this namespace is not looked up for the pod, or None."""
    if asked.namespace is None or asked.namespace == caller.namespace:
        return None
    message = (
        f"a pod is granted ModelVersions of its own namespace alone, and this one runs in "
        f"{caller.namespace}"
    )
    return WireError(reason=Reason.GRANT_REFUSED, message=message)


def judge_version(version: ModelVersionView) -> WireError | None:
    """Why no pod may fetch the version now, or None."""
    if version.is_deleted:
        return _refuse(Reason.GRANT_REFUSED, f"ModelVersion {version.key} is being deleted")
    ready = find_condition(version.status.conditions)
    if ready is None or ready.status != "True" or version.status.source_digest is None:
        why = f": {ready.reason}: {ready.message}" if ready is not None else ""
        message = f"ModelVersion {version.key} is not Ready{why}"
        return _refuse(Reason.MODEL_VERSION_NOT_READY, message)
    return None


def refuse_unreadable() -> WireError:
    """The answer for a version of a newer release."""
    return _refuse(Reason.MODEL_VERSION_NOT_READY, _NOT_READY)


def refuse_absent(reason: Reason, kind: str, key: ObjectKey) -> WireError:
    """The answer for a name that stands for nothing in the pod's own namespace."""
    return _refuse(reason, f"there is no {kind} {key.name} in namespace {key.namespace}")


def refuse_uid() -> WireError:
    """The one answer for every uid that is not of the pod's namespace, whether it exists or not.

    One that our watch has not told of yet looks the same.
    """
    return _refuse(Reason.NOT_KNOWN_YET, "no such ModelVersion in the pod's namespace is known")


def make_entry(version: ModelVersionView) -> EntrySpec:
    """A version that was judged fit, as an entry of a node would name it."""
    status = version.status
    return EntrySpec(
        uid=version.uid,
        source_digest=status.source_digest or "",
        size_bytes=status.size_bytes or 0,
    )


def describe_version(version: ModelVersionView) -> PodVersion:
    """What the pod is told of a version that it may fetch."""
    status = version.status
    return PodVersion(
        uid=version.uid,
        namespace=version.key.namespace,
        name=version.key.name,
        source_digest=status.source_digest,
        content_digest=version.spec.digest or status.content_digest,
        size_bytes=status.size_bytes or 0,
    )


def _refuse(reason: Reason, message: str) -> WireError:
    return WireError(reason=reason, message=truncate(message))
