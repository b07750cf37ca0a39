"""Who may have grants, for what, and which proposals are believed: pure."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from modelcache_api.manifest import (
    PIECE_BYTES,
    ContentManifest,
    SourceManifest,
    describe_difference,
)
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import WireError
from modelcache_operator.decide.world import CacheNodeView, NodeName, NodeView, Uid


@dataclass(frozen=True, slots=True)
class AgentAccount:
    """The service account that the agents run as."""

    namespace: str
    name: str

    @property
    def username(self) -> str:
        """As the API server spells it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@dataclass(frozen=True, slots=True)
class Claims:
    """What the API server says about a token that is valid for our audience."""

    username: str
    node_name: str | None = None
    node_uid: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None


@dataclass(frozen=True, slots=True)
class PodState:
    """What is asked of the pod that a token is bound to."""

    uid: str
    node_name: str | None
    is_terminating: bool = False
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """An agent, known by its token: it runs in that pod on that node."""

    node: NodeName
    node_uid: Uid
    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class Denial:
    """Why the caller is not heard at all."""

    message: str
    status: HTTPStatus = HTTPStatus.FORBIDDEN
    reason: Reason = Reason.GRANT_REFUSED


def identify_caller(claims: Claims | None, account: AgentAccount) -> Caller | Denial:
    """The agent that the claims are about. A token that is bound to no pod and node is refused."""
    if claims is None:
        return Denial("the token is not valid here", HTTPStatus.UNAUTHORIZED)
    if claims.username != account.username:
        return Denial("only the agents' service account is served")
    if not (claims.pod_name and claims.pod_uid and claims.node_name and claims.node_uid):
        return Denial("the token is not bound to a pod on a node")
    return Caller(NodeName(claims.node_name), Uid(claims.node_uid), claims.pod_name, claims.pod_uid)


def check_node(caller: Caller, node: NodeView | None) -> Denial | None:
    """A rebuilt node has another UID: tokens of the old one are worth nothing.

    Our watch may also be behind: then the node that the token names is not seen yet.
    """
    if node is None or node.uid != caller.node_uid:
        return Denial("the token's node is not known here", reason=Reason.NOT_KNOWN_YET)
    if node.is_deleted:
        return Denial("the token's node is gone")
    return None


def check_pod(caller: Caller, pod: PodState | None) -> Denial | None:
    """The pod must still be there, and be the same one, on the token's node."""
    if pod is None or pod.uid != caller.pod_uid or pod.node_name != caller.node:
        return Denial("the token's pod is gone")
    if pod.is_terminating or pod.is_finished:
        return Denial("the token's pod is ending")
    return None


def find_entry(caller: Caller, cache_node: CacheNodeView | None, uid: Uid) -> EntrySpec | None:
    """The entry of the caller's own CacheNode, or None: absent and forbidden look the same."""
    if cache_node is None or cache_node.spec.node_uid != caller.node_uid:
        return None
    return cache_node.spec.find_entry(uid)


def refuse_entry() -> WireError:
    """The one answer for every entry that is not the caller's, whether it exists or not.

    An entry that our watch has not told of yet looks the same, so the agent may ask again soon.
    """
    return WireError(reason=Reason.NOT_KNOWN_YET, message="no such entry on this node is known")


def judge_proposal(
    source: SourceManifest, content: ContentManifest, pinned_digest: str | None
) -> WireError | None:
    """Why the content cannot be that of the source, or None."""
    difference = describe_difference(source, content) or _describe_pieces(content)
    if difference is not None:
        return _mismatch(f"the proposed content is not that of the source: {difference}")
    if pinned_digest is not None and pinned_digest != content.digest:
        return _mismatch(f"spec.digest is {pinned_digest}, the bytes read are {content.digest}")
    return None


def judge_adoption(proposed: ContentManifest, adopted: ContentManifest) -> WireError | None:
    """Why the proposal is not what has been adopted, or None."""
    if proposed.digest == adopted.digest:
        return None
    return _mismatch(f"{adopted.digest} was adopted before, the bytes read are {proposed.digest}")


def _describe_pieces(content: ContentManifest) -> str | None:
    for file in content.files:
        wanted = -(-file.size_bytes // PIECE_BYTES)
        if file.pieces and len(file.pieces) != wanted:
            return f"{file.path!r} has {len(file.pieces)} pieces, its size makes {wanted}"
    return None


def _mismatch(message: str) -> WireError:
    return WireError(reason=Reason.DIGEST_MISMATCH, message=message[:512])
