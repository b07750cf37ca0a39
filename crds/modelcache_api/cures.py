"""What to do about each reason, in one sentence. docs/reasons.md repeats it; a test compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from modelcache_api.names import Reason

NOTHING: Final = "nothing to do"
_ENDS: Final = "it ends by itself"

CURES: Final[Mapping[Reason, str]] = {
    Reason.RESOLVING: f"{_ENDS}; if it stays, look at the operator's log",
    Reason.RESOLVED: NOTHING,
    Reason.WAITING: f"{_ENDS} when the transfers ahead are done",
    Reason.QUEUED: f"{_ENDS}; if it is always so, raise the limit in the chart's limits",
    Reason.DOWNLOADING: _ENDS,
    Reason.VERIFYING: _ENDS,
    Reason.CACHED: NOTHING,
    Reason.LOADING: f"{_ENDS}; if it stays, give the tier more capacity, or lower copies "
    "or spec.tier",
    Reason.HOST_TIER_UNFIT: "give the profile a host capacity, or cure what the message names, and "
    "restart the agent",
    Reason.HOST_TIER_BYPASSED: "raise the host capacity, place fewer models of the tier on the "
    "node, or wait for readers",
    Reason.HOST_MEMORY_LOW: "lower the host capacity, or move other pods",
    Reason.SOURCE_NOT_FOUND: "correct the URI in a new ModelVersion, or upload the files",
    Reason.SOURCE_GATED: "accept the repository's conditions with the account of the token",
    Reason.REVISION_NOT_FOUND: "name a branch, tag or commit that exists, in a new ModelVersion",
    Reason.SOURCE_GONE: "restore the source's files, or create a ModelVersion of another source",
    Reason.SOURCE_CHANGED: "create a new ModelVersion for the new bytes, or restore the old ones",
    Reason.SOURCE_NOT_ALLOWED: "ask the administrator for a rule of the source policy",
    Reason.SOURCE_INVALID: "create a ModelVersion with the corrected source",
    Reason.SOURCE_ERROR: "it is tried again; look up the store's error code in the message",
    Reason.AUTH_FAILED: "correct the Secret, or the permissions of its account",
    Reason.SECRET_NOT_FOUND: "create the Secret, or correct credentialsSecretRef",
    Reason.SECRET_INVALID: "add the key that the message names to the Secret",
    Reason.CA_BUNDLE_INVALID: "correct the object or key that caBundleRef names",
    Reason.CREDENTIALS_EXPIRED: "renew the token in the Secret",
    Reason.CLOCK_SKEW: "correct the clock of the side that is wrong",
    Reason.ENDPOINT_UNREACHABLE: "check endpoint, DNS, NetworkPolicies and firewalls",
    Reason.TLS_FAILED: "give the CA through caBundleRef, or correct the endpoint",
    Reason.THROTTLED: "it is tried again when the store allows; upgrade agents if they are older",
    Reason.WRONG_ADDRESSING: "set source.addressing as the message says",
    Reason.TOO_MANY_FILES: "narrow the prefix with include and exclude, or split the model",
    Reason.UNSAFE_KEY: "rename the object, or leave it out with exclude",
    Reason.DIGEST_MISMATCH: "create a new ModelVersion if the source was replaced on purpose",
    Reason.NOT_A_MODEL: "upload the real file and create a new ModelVersion",
    Reason.NEVER_FITS: "give nodes more capacity, select other nodes, or leave files out",
    Reason.INSUFFICIENT_SPACE: "free space, delete a ModelCache, lower copies or add nodes",
    Reason.QUOTA_EXCEEDED: "lower copies, delete a ModelCache, or ask the administrator for a "
    "larger ModelCacheQuota",
    Reason.WITHIN_QUOTA: NOTHING,
    Reason.DISK_PRESSURE: "free space on the node's disk, or give the cache a disk of its own",
    Reason.TRANSFER_STALLED: "it is tried again; look at the network and the store",
    Reason.TRANSFER_FAILED: "it is tried again; mend the store or the proxy before it if it stays",
    Reason.GRANT_REFUSED: "check the agent's service account if it stays",
    Reason.NOT_KNOWN_YET: f"{_ENDS}; if it stays, compare the operator replicas' logs",
    Reason.OPERATOR_UNREACHABLE: "check the operator's Deployment, Service and NetworkPolicies",
    Reason.STORE_ERROR: "check the node's disk",
    Reason.DAMAGED: "it is repaired by itself; if it comes again, check the disk and memory",
    Reason.EVICTED: "add capacity if the copy is wanted; a pod that asks for it brings it back",
    Reason.TOO_MANY_MODELS: "spread the models over more nodes",
    Reason.VOLUME_REFUSED: "create a ModelCache in the pod's own namespace",
    Reason.NODE_LOST: "check the node and its agent's pod",
    Reason.AGENT_ALIVE: NOTHING,
    Reason.PEER_SUSPECTED: "check the node's disk and memory; if they are sound, its security",
    Reason.NO_AGENT: "check node selector and tolerations of the agents' DaemonSet",
    Reason.AGENTS_NOT_RUNNING: "check the agents' DaemonSet and its namespace's Pod Security level",
    Reason.NO_ELIGIBLE_NODE: "correct the placement or the nodes",
    Reason.MODEL_CACHE_NOT_FOUND: "create the ModelCache, or correct the name",
    Reason.MODEL_VERSION_NOT_FOUND: "create the ModelVersion, or correct the name",
    Reason.MODEL_VERSION_NOT_READY: "cure the ModelVersion's own reason",
    Reason.DEGRADED: "cure the reason that the message names; enough copies serve meanwhile",
    Reason.TENSORS_NOT_FOUND: "correct the globs of spec.load.include in a new ModelVersion",
    Reason.GPU_UNAVAILABLE: "cure what the message says of the driver or the card; "
    "the agent looks again by itself",
    Reason.GPU_OUT_OF_MEMORY: "lower the GPU capacity, or end what else uses the card",
    Reason.GPU_UNSUITED: "keep its weights as safetensors; pods read it from host memory or disk",
    Reason.GPU_NOT_GIVEN: "ask for the card in the pod's resources, and give the agent "
    "pod-resources",
    Reason.CANARY_LOADING: f"{_ENDS}; if it stays, look at the canary's entries in the CacheNodes",
    Reason.CANARY_RESIDENT: NOTHING,
    Reason.CANARY_DOES_NOT_FIT: "free space, add capacity, or set rollout.residency to "
    "Proportional",
    Reason.CANARY_PODS_NOT_READY: "look at the pods with the label "
    "modelcache.io/track: canary, and restart those with another version; behind an HTTPRoute run "
    "at least one",
    Reason.CANARY_WARM_UP_FAILED: "look at the log of the pod's container modelcache-warmup, and "
    "at its annotations modelcache.io/warmup",
    Reason.CANARY_EXPIRED: "promote the canary, remove it, or change its weight to begin anew",
    Reason.STABLE_NOT_READY: "cure the reason of the condition Ready",
    Reason.STEP_TAKEN: NOTHING,
    Reason.WEIGHT_REACHED: NOTHING,
    Reason.ROLLOUT_UNDER_WAY: "promote or remove the canary; then they are placed",
    Reason.PROMOTED: NOTHING,
    Reason.HELD: NOTHING,
    Reason.HOLD_ENDED: NOTHING,
    Reason.ROUTE_WEIGHTS_SET: NOTHING,
    Reason.ROUTE_PENDING: _ENDS,
    Reason.ROUTE_UNKNOWN: f"{_ENDS}; if it stays, see why the API server fails for HTTPRoutes: "
    "webhooks, mostly",
    Reason.ROUTES_NOT_ENABLED: "ask the administrator for rollouts.httpRoutes in the chart",
    Reason.GATEWAY_API_MISSING: "install the Gateway API's CRDs, or remove rollout.httpRouteRef",
    Reason.ROUTE_NOT_FOUND: "create the HTTPRoute, or correct rollout.httpRouteRef.name",
    Reason.ROUTE_BACKEND_MISSING: "give one rule of the HTTPRoute both Services as backends, or "
    "correct rollout.httpRouteRef",
    Reason.ROUTE_UNSUITED: "take the other backends out of that rule, or set their weight to 0",
    Reason.ROUTE_CLAIMED: "let one ModelCache name these backends",
    Reason.ROUTE_CHANGED: "it is tried again; if it stays, see who changes the HTTPRoute",
    Reason.ROUTE_CONTESTED: "tell whoever sets the weights to leave them alone",
    Reason.ROUTE_REFUSED: "give the operator the right that the message names, or correct what "
    "admission refuses",
    Reason.GATE_FAILED: "look at what the query measures; change the canary to begin anew",
    Reason.GATE_NO_DATA: "let the query give a number, or set rollout.gate.firstStep to Free",
    Reason.GATE_UNREACHABLE: "check the Prometheus server, its address, CA and token in the chart",
    Reason.GATE_QUERY_INVALID: "correct rollout.gate.query so that it gives one number",
    Reason.GATE_NOT_CONFIGURED: "ask the administrator for rollouts.prometheus.url in the chart",
}


def find_cure(reason: str, message: str = "") -> str:
    """What to do: about a reason that the message names, if there is one, else about this one.

    An unknown reason, of a newer release, has none.
    """
    named = (word.strip(":;,.()") for word in message.split())
    inner = (Reason(word) for word in named if word in _WORDS and word != reason)
    chosen = next((found for found in inner if CURES[found] != NOTHING), None)
    if chosen is None and reason in _WORDS:
        chosen = Reason(reason)
    return "see docs/reasons.md" if chosen is None else CURES[chosen]


_WORDS: Final = frozenset(reason.value for reason in Reason)
