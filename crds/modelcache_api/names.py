"""Every string that leaves a process, with who writes and who reads it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

GROUP: Final = "modelcache.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

KIND_MODEL_VERSION: Final = "ModelVersion"
KIND_MODEL_CACHE: Final = "ModelCache"
KIND_CACHE_NODE: Final = "CacheNode"
KIND_MODEL_CACHE_QUOTA: Final = "ModelCacheQuota"
PLURAL_MODEL_VERSION: Final = "modelversions"
PLURAL_MODEL_CACHE: Final = "modelcaches"
PLURAL_CACHE_NODE: Final = "cachenodes"
PLURAL_MODEL_CACHE_QUOTA: Final = "modelcachequotas"

# Prefix of the labels that say "these bytes are verified here". Written by the node's agent on its
# own Node, removed by the operator when the agent is silent, read by the scheduler.
NODE_LABEL_PREFIX: Final = "cache.modelcache.io/"

# On ConfigMaps of the operator's namespace. Written and read by the operator.
LABEL_MANIFEST_OF: Final = "modelcache.io/model-version-uid"
LABEL_MANIFEST_KIND: Final = "modelcache.io/manifest"
ANNOTATION_MANIFEST_DIGEST: Final = "modelcache.io/manifest-digest"
# On the authority's Secret. Set by an administrator who wants a new authority, removed by the
# operator when it has begun.
ANNOTATION_ROTATE: Final = "modelcache.io/rotate"
# On the authority's ConfigMap: since when exactly this bundle is published. The operator's own.
ANNOTATION_BUNDLE_SINCE: Final = "modelcache.io/bundle-since"
# On CacheNodes, by the UID of a ModelVersion: when somebody asked to let the node's copy go.
# Written by people, through `kubectl modelcache evict`; read by the node's agent.
ANNOTATION_PREFIX_EVICT: Final = "evict.modelcache.io/"
# On the operator's Deployment: values that switch something off, separated by blanks. Written by
# the chart, read by `kubectl modelcache checklist`.
ANNOTATION_SWITCHED_OFF: Final = "modelcache.io/switched-off"
# On the Leases that agents renew, so that the operator lists only those.
LABEL_AGENT_LEASE: Final = "modelcache.io/agent"

# On pods. The label, written by users, is the only opt-in: it names a ModelCache of the pod's own
# namespace. Read by injection, the operator's pod watch and the agents' volumes.
LABEL_CACHE: Final = "modelcache.io/cache"
# Labels or annotations on pods, written by users, read by injection and the operator.
LABEL_TRACK: Final = "modelcache.io/track"
LABEL_PLACEMENT: Final = "modelcache.io/placement"
PLACEMENT_REQUIRED: Final = "required"
ANNOTATION_WAIT: Final = "modelcache.io/wait"
# Annotations on pods, written by users, read by injection: where the pod's server is sent its first
# request, and which. Without the first there is no warm-up.
ANNOTATION_WARM_UP: Final = "modelcache.io/warmup"
ANNOTATION_WARM_UP_BODY: Final = "modelcache.io/warmup-body"
ANNOTATION_WARM_UP_TOKENS: Final = "modelcache.io/warmup-tokens"
ANNOTATION_WARM_UP_DEADLINE: Final = "modelcache.io/warmup-deadline"
# Marks of what injection has done, so that it is done once; and what the user's own settings kept
# it from doing. Written by injection, read by injection and by people.
ANNOTATION_INJECTED: Final = "modelcache.io/injected"
ANNOTATION_INJECTED_AFFINITY: Final = "modelcache.io/injected-affinity"
ANNOTATION_NOT_INJECTED: Final = "modelcache.io/not-injected"
# Scheduling gate of pods that wait for a node with their model. Added by injection, lifted by the
# operator.
GATE_PLACEMENT: Final = "modelcache.io/placement"
# Taint that provisioners may give to fresh nodes. Lifted by the operator.
TAINT_AGENT_NOT_READY: Final = "modelcache.io/agent-not-ready"

# What injection adds to a pod, by name.
VOLUME_NAME: Final = "modelcache"
WAIT_CONTAINER: Final = "modelcache-wait"
# Its readiness is its pod's; how it fails, the operator reads in the pod's status.
WARM_UP_CONTAINER: Final = "modelcache-warmup"
MOUNT_PATH: Final = "/mnt/models"
# Environment of containers that read models. The last two are the Hugging Face libraries' own.
ENV_MODEL_PATH: Final = "MODELCACHE_PATH"
# On a laptop: a plain folder stands in for the volume. Set by developers, read by the library.
ENV_DEVELOPMENT_FOLDER: Final = "MODELCACHE_DEVELOPMENT_FOLDER"
ENV_HUB_CACHE: Final = "HF_HUB_CACHE"
ENV_HUB_OFFLINE: Final = "HF_HUB_OFFLINE"

# Field managers of server-side apply; one writer per field.
MANAGER_OPERATOR: Final = "modelcache-operator"
MANAGER_OPERATOR_STATUS: Final = "modelcache-operator-status"
MANAGER_OPERATOR_ROUTES: Final = "modelcache-operator-routes"
MANAGER_AGENT: Final = "modelcache-agent"
MANAGER_AGENT_LABELS: Final = "modelcache-agent-labels"
# What people change by `kubectl modelcache`, in their own name.
MANAGER_COMMAND_LINE: Final = "kubectl-modelcache"

GRANT_AUDIENCE: Final = "modelcache-grant"
PATH_GRANTS: Final = "/v1/grants"
PATH_PROPOSALS: Final = "/v1/proposals"
# Below it, by UID and number in the source manifest: small files that only the operator may read.
PATH_FILES: Final = "/v1/files"
PATH_CERTIFICATES: Final = "/v1/certificates"
PATH_SLOTS: Final = "/v1/slots"
# The same for single pods: what a name stands for, and grants and small files of that version.
PATH_POD_VERSIONS: Final = "/v1/pod/versions"
PATH_POD_GRANTS: Final = "/v1/pod/grants"
PATH_POD_FILES: Final = "/v1/pod/files"
# Between agents: files of a version by its uid, and how far a node is with it.
PATH_PEER_ENTRIES: Final = "/v1/entries/"
# Headers between agents.
HEADER_TICKET: Final = "ModelCache-Ticket"
HEADER_SOURCE: Final = "ModelCache-Source"

CA_CONFIG_MAP: Final = "modelcache-ca"
CA_CONFIG_KEY: Final = "ca.crt"
CA_SECRET: Final = "modelcache-operator-ca"  # noqa: S105 - an object's name
LEADER_LEASE: Final = "modelcache-operator-leader"
AGENT_LEASE_PREFIX: Final = "modelcache-agent-"

# Keys of a credentials Secret, as the tools of store and hub spell them. Written by users, read by
# the operator.
SECRET_ACCESS_KEY_ID: Final = "AWS_ACCESS_KEY_ID"  # noqa: S105 - a key's name
SECRET_SECRET_ACCESS_KEY: Final = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a key's name
SECRET_SESSION_TOKEN: Final = "AWS_SESSION_TOKEN"  # noqa: S105 - a key's name
SECRET_HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 - a key's name

ENV_PREFIX_OPERATOR: Final = "MODELCACHE_OPERATOR_"
ENV_PREFIX_AGENT: Final = "MODELCACHE_AGENT_"

# First part of the names of the agent's metrics. Written by agents, read by Prometheus.
METRIC_PREFIX_AGENT: Final = "modelcache_agent_"


# The pod's volume. The driver's name stands in the pod's spec, the CSIDriver object and the
# kubelet's folders.
CSI_DRIVER: Final = "csi.modelcache.io"
# In the volumeAttributes of a pod's volume. Written by users or the injection, read by the node's
# agent: the ModelCache's name. A namespace may be given, but only the pod's own is ever granted.
VOLUME_ATTRIBUTE_CACHE: Final = "modelcache.io/cache"
VOLUME_ATTRIBUTE_NAMESPACE: Final = "modelcache.io/namespace"
# Which of its versions: stable, unless it says canary.
VOLUME_ATTRIBUTE_TRACK: Final = "modelcache.io/track"
# What the kubelet adds to them (podInfoOnMount); it overrides what the pod's spec says there.
KUBELET_POD_NAME: Final = "csi.storage.k8s.io/pod.name"
KUBELET_POD_NAMESPACE: Final = "csi.storage.k8s.io/pod.namespace"
KUBELET_POD_UID: Final = "csi.storage.k8s.io/pod.uid"
KUBELET_SERVICE_ACCOUNT: Final = "csi.storage.k8s.io/serviceAccount.name"
KUBELET_EPHEMERAL: Final = "csi.storage.k8s.io/ephemeral"
# What a pod sees in its volume. Written by the node's agent.
VOLUME_MODEL_FOLDER: Final = "model"
VOLUME_HUB_FOLDER: Final = "hub"
VOLUME_VERSIONS_FOLDER: Final = "versions"
VOLUME_STATUS_FILE: Final = "status.json"
VOLUME_SOCKET: Final = "agent.sock"


class Condition(StrEnum):
    """Condition types; the first three as kstatus reads them."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    # Of ModelVersions: the source is what it was when resolved. Unknown while it does not answer.
    SOURCE_CURRENT = "SourceCurrent"
    # Of CacheNodes, and only while it is true: the store's file system, or one of the kubelet's, is
    # too full for new copies.
    DISK_PRESSURE = "DiskPressure"
    # Of CacheNodes, and only while it is true: it is to lock models in memory, and cannot.
    HOST_TIER_UNFIT = "HostTierUnfit"
    # Of CacheNodes, and only while it is true: other nodes got wrong bytes from this one.
    PEER_SUSPECTED = "PeerSuspected"
    # Of ModelCaches with a canary: all of its copies that are wanted are verified.
    CANARY_RESIDENT = "CanaryResident"
    # The same: the weight is where it is to be, or on the way there.
    ROLLOUT_PROGRESSING = "RolloutProgressing"
    # Of ModelCaches with rollout.httpRouteRef: the route splits by the weight in force. Unknown
    # while the API server fails for it.
    TRAFFIC_ROUTED = "TrafficRouted"


class Track(StrEnum):
    """The versions of a ModelCache by what they are for. Value of the pod label."""

    STABLE = "stable"
    CANARY = "canary"


class Scheme(StrEnum):
    """Schemes of a ModelVersion's source. Written by users, read by the operator."""

    S3 = "s3"
    HUB = "hf"
    HTTPS = "https"
    HTTP = "http"

    @property
    def prefix(self) -> str:
        """What a URI of the scheme begins with."""
        return f"{self}://"


class Tier(StrEnum):
    """Where an agent can hold a version, the slowest first; in lower case, labels' values."""

    DISK = "Disk"
    HOST = "Host"
    GPU = "GPU"

    @property
    def speed(self) -> int:
        """Higher for a faster tier. What a tier holds, the slower ones hold too."""
        return _SPEEDS[self]

    @property
    def label_value(self) -> str:
        """What a node label says of a version whose fastest tier this is."""
        return self.value.lower()


# Asked for each copy on each node that a placement looks at.
_SPEEDS: Final = {tier: speed for speed, tier in enumerate(Tier)}


class Priority(StrEnum):
    """Who goes first and who gives way, the lowest first. Written by users into ModelCaches."""

    LOW = "Low"
    NORMAL = "Normal"
    HIGH = "High"

    @property
    def rank(self) -> int:
        """Higher for what goes first."""
        return _RANKS[self]


_RANKS: Final = {priority: rank for rank, priority in enumerate(Priority)}


class Retention(StrEnum):
    """Whether copies may be given up for others. Written by users into ModelCaches."""

    CACHED = "Cached"
    PINNED = "Pinned"


class EntryOrigin(StrEnum):
    """Why a node should hold a version. Written by the operator into CacheNodes."""

    PLACEMENT = "Placement"
    # A pod that landed there reads it: for the pod's life, where nothing placed needs the room.
    DEMAND = "Demand"
    # It has left the spec: its bytes stay for a while, and are never fetched.
    HOLD = "Hold"


class EntryState(StrEnum):
    """How far an agent is with one entry of its CacheNode. Written by the agent."""

    PENDING = "Pending"
    DOWNLOADING = "Downloading"
    VERIFYING = "Verifying"
    CACHED = "Cached"
    FAILED = "Failed"
    EVICTED = "Evicted"


class VolumeState(StrEnum):
    """How far a pod's volume is. Written by the agent, read by `modelcache-agent wait`."""

    WAITING = "Waiting"
    DOWNLOADING = "Downloading"
    VERIFYING = "Verifying"
    READY = "Ready"
    FAILED = "Failed"
    REFUSED = "Refused"


class SocketReason(StrEnum):
    """Why a volume's socket refuses. Told to the client and counted; told in docs/client.md."""

    MESSAGE_TOO_LARGE = "MessageTooLarge"
    MALFORMED_MESSAGE = "MalformedMessage"
    UNKNOWN_MESSAGE = "UnknownMessage"
    NO_HELLO = "NoHello"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    TOO_SLOW = "TooSlow"
    TOO_MANY_CONNECTIONS = "TooManyConnections"
    TOO_MANY_REQUESTS = "TooManyRequests"
    CONTROL_ONLY = "ControlOnly"
    NOT_COMPLETE = "NotComplete"
    INDEX_TOO_LARGE = "IndexTooLarge"
    NOT_ON_DEVICE = "NotOnDevice"
    STORE_ERROR = "StoreError"


class Reason(StrEnum):
    """One word per cause. Each has a heading with cause and cure in docs/reasons.md."""

    RESOLVING = "Resolving"
    RESOLVED = "Resolved"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_GATED = "SourceGated"
    SOURCE_GONE = "SourceGone"
    SOURCE_CHANGED = "SourceChanged"
    SOURCE_NOT_ALLOWED = "SourceNotAllowed"
    REVISION_NOT_FOUND = "RevisionNotFound"
    SOURCE_INVALID = "SourceInvalid"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason word
    SECRET_INVALID = "SecretInvalid"  # noqa: S105 - a reason word
    CA_BUNDLE_INVALID = "CABundleInvalid"
    AUTH_FAILED = "AuthFailed"
    CREDENTIALS_EXPIRED = "CredentialsExpired"
    CLOCK_SKEW = "ClockSkew"
    ENDPOINT_UNREACHABLE = "EndpointUnreachable"
    TLS_FAILED = "TLSFailed"
    THROTTLED = "Throttled"
    WRONG_ADDRESSING = "WrongAddressing"
    SOURCE_ERROR = "SourceError"
    DIGEST_MISMATCH = "DigestMismatch"
    NOT_A_MODEL = "NotAModel"
    TENSORS_NOT_FOUND = "TensorsNotFound"
    TOO_MANY_FILES = "TooManyFiles"
    UNSAFE_KEY = "UnsafeKey"
    NEVER_FITS = "NeverFits"
    INSUFFICIENT_SPACE = "InsufficientSpace"
    QUOTA_EXCEEDED = "QuotaExceeded"
    WITHIN_QUOTA = "WithinQuota"
    DISK_PRESSURE = "DiskPressure"
    WAITING = "Waiting"
    QUEUED = "Queued"
    DOWNLOADING = "Downloading"
    TRANSFER_STALLED = "TransferStalled"
    TRANSFER_FAILED = "TransferFailed"
    VERIFYING = "Verifying"
    CACHED = "Cached"
    LOADING = "Loading"
    HOST_TIER_UNFIT = "HostTierUnfit"
    HOST_TIER_BYPASSED = "HostTierBypassed"
    HOST_MEMORY_LOW = "HostMemoryLow"
    EVICTED = "Evicted"
    DEGRADED = "Degraded"
    GRANT_REFUSED = "GrantRefused"
    NOT_KNOWN_YET = "NotKnownYet"
    OPERATOR_UNREACHABLE = "OperatorUnreachable"
    STORE_ERROR = "StoreError"
    DAMAGED = "Damaged"
    TOO_MANY_MODELS = "TooManyModels"
    VOLUME_REFUSED = "VolumeRefused"
    GPU_UNAVAILABLE = "GpuUnavailable"
    GPU_OUT_OF_MEMORY = "GpuOutOfMemory"
    GPU_UNSUITED = "GpuUnsuited"
    GPU_NOT_GIVEN = "GpuNotGiven"
    NODE_LOST = "NodeLost"
    AGENT_ALIVE = "AgentAlive"
    PEER_SUSPECTED = "PeerSuspected"
    NO_AGENT = "NoAgent"
    AGENTS_NOT_RUNNING = "AgentsNotRunning"
    NO_ELIGIBLE_NODE = "NoEligibleNode"
    MODEL_CACHE_NOT_FOUND = "ModelCacheNotFound"
    MODEL_VERSION_NOT_FOUND = "ModelVersionNotFound"
    MODEL_VERSION_NOT_READY = "ModelVersionNotReady"
    ROLLOUT_UNDER_WAY = "RolloutUnderWay"
    CANARY_LOADING = "CanaryLoading"
    CANARY_RESIDENT = "CanaryResident"
    CANARY_DOES_NOT_FIT = "CanaryDoesNotFit"
    CANARY_PODS_NOT_READY = "CanaryPodsNotReady"
    CANARY_WARM_UP_FAILED = "CanaryWarmUpFailed"
    CANARY_EXPIRED = "CanaryExpired"
    STABLE_NOT_READY = "StableNotReady"
    STEP_TAKEN = "StepTaken"
    WEIGHT_REACHED = "WeightReached"
    PROMOTED = "Promoted"
    HELD = "Held"
    HOLD_ENDED = "HoldEnded"
    ROUTE_WEIGHTS_SET = "RouteWeightsSet"
    ROUTE_PENDING = "RoutePending"
    ROUTE_UNKNOWN = "RouteUnknown"
    ROUTES_NOT_ENABLED = "RoutesNotEnabled"
    GATEWAY_API_MISSING = "GatewayApiMissing"
    ROUTE_NOT_FOUND = "RouteNotFound"
    ROUTE_BACKEND_MISSING = "RouteBackendMissing"
    ROUTE_UNSUITED = "RouteUnsuited"
    ROUTE_CLAIMED = "RouteClaimed"
    ROUTE_CHANGED = "RouteChanged"
    ROUTE_CONTESTED = "RouteContested"
    ROUTE_REFUSED = "RouteRefused"
    GATE_FAILED = "GateFailed"
    GATE_NO_DATA = "GateNoData"
    GATE_UNREACHABLE = "GateUnreachable"
    GATE_QUERY_INVALID = "GateQueryInvalid"
    GATE_NOT_CONFIGURED = "GateNotConfigured"
