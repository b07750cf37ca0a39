"""The one table of pods on which policy, webhook and command line must agree.

Each row: a pod, what the ModelCache `m` is known to be, and what a person would expect.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from modelcache_operator.injection import KnownCache

KEY = "cache.modelcache.io/minilm-0123456789abcdef"
CANARY_KEY = "cache.modelcache.io/minilm-fedcba9876543210"
WARM = KnownCache({"stable": KEY, "canary": CANARY_KEY}, is_warm=True)
COLD = KnownCache({"stable": KEY}, is_warm=False)
FETCHING = KnownCache({}, is_warm=True)
# ModelCaches of the test's namespace, by name. `unknown` is in none.
CACHES = {"m": WARM, "cold": COLD, "fetching": FETCHING, "new": KnownCache()}

LABEL = "modelcache.io/cache"
PLACEMENT = "modelcache.io/placement"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Row:
    """`lacks` are words that must stand in the annotation not-injected, in that order."""

    id: str
    pod: dict[str, Any]
    is_injected: bool = True
    has_volume: bool = True
    has_wait: bool = True
    has_warm_up: bool = False
    keys: tuple[str, ...] = (KEY,)
    is_gated: bool = False
    lacks: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def make_pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    containers: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "p",
        "labels": labels if labels is not None else {LABEL: "m"},
    }
    if annotations is not None:
        metadata["annotations"] = annotations
    spec["containers"] = containers or [make_container()]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def make_container(name: str = "app", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "app:1", **more}


def mount(path: str, name: str = "data", **more: Any) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **more}


def env(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def expression(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


DATA = {"name": "data", "emptyDir": {}}
OWN_VOLUME = {
    "name": "modelcache",
    "csi": {
        "driver": "csi.modelcache.io",
        "readOnly": True,
        "volumeAttributes": {LABEL: "m", "more": "mine"},
    },
}
TERM = {"weight": 7, "preference": expression("pool", "a")}
ZONES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [expression("pool", "a"), expression("pool", "b")]
    }
}
POD_TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
]
UNTOUCHED: dict[str, Any] = {
    "is_injected": False,
    "has_volume": False,
    "has_wait": False,
    "keys": (),
}
INJECTED = {"modelcache.io/injected": "true", "modelcache.io/injected-affinity": KEY}


def affinity(**node: Any) -> dict[str, Any]:
    return {"nodeAffinity": node}


_PLAIN = [
    Row("plain", make_pod()),
    Row(
        "two labels and annotations",
        make_pod(labels={LABEL: "m", "a": "b"}, annotations={"c": "d"}),
    ),
    Row("several containers", make_pod(containers=[make_container("a"), make_container("b")])),
    Row("init containers", make_pod(initContainers=[make_container("i"), make_container("j")])),
    Row(
        "a sidecar among the init containers",
        make_pod(initContainers=[make_container("proxy", restartPolicy="Always")]),
    ),
    Row(
        "volumes of its own",
        make_pod(volumes=[DATA], containers=[make_container(volumeMounts=[mount("/data")])]),
    ),
    Row(
        "subPath and subPathExpr",
        make_pod(
            volumes=[DATA],
            containers=[
                make_container(
                    env=env(POD="p"),
                    volumeMounts=[
                        mount("/a", subPath="x"),
                        mount("/b", subPathExpr="$(POD)"),
                        mount("/c", readOnly=True, recursiveReadOnly="Disabled"),
                    ],
                )
            ],
        ),
    ),
    Row("host network", make_pod(hostNetwork=True)),
    Row(
        "a claim and a projected volume",
        make_pod(
            volumes=[
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
                {
                    "name": "all",
                    "projected": {
                        "sources": [
                            {
                                "downwardAPI": {
                                    "items": [
                                        {"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}
                                    ]
                                }
                            }
                        ]
                    },
                },
            ]
        ),
    ),
    Row(
        "security context, priority and grace are kept",
        make_pod(
            securityContext={"runAsUser": 1000, "fsGroup": 2000, "runAsNonRoot": True},
            terminationGracePeriodSeconds=5,
            tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
            topologySpreadConstraints=SPREAD,
        ),
    ),
    Row(
        "devices, ports and probes are kept",
        make_pod(
            containers=[
                make_container(
                    ports=[{"containerPort": 8000}],
                    resources={"limits": {"nvidia.com/gpu": "1", "cpu": "2", "memory": "1Gi"}},
                    readinessProbe={"httpGet": {"path": "/", "port": 8000}},
                    args=["serve", "--model", "/mnt/models/model"],
                )
            ]
        ),
    ),
    Row("linux by os", make_pod(os={"name": "linux"})),
    Row(
        "linux by node selector", make_pod(nodeSelector={"kubernetes.io/os": "linux", "pool": "b"})
    ),
    Row("bound by hand", make_pod(nodeName="n-1")),
]

_CLASHES = [
    Row(
        "a foreign volume of our name",
        make_pod(
            volumes=[{"name": "modelcache", "emptyDir": {}}],
            containers=[make_container(volumeMounts=[mount("/x", "modelcache")])],
        ),
        has_volume=False,
        has_wait=False,
        lacks=("volume modelcache",),
    ),
    Row("its own volume of our driver", make_pod(volumes=[OWN_VOLUME])),
    Row(
        "its own volume and mount",
        make_pod(
            volumes=[OWN_VOLUME],
            containers=[
                make_container(volumeMounts=[mount("/mnt/models/", "modelcache", readOnly=True)])
            ],
        ),
    ),
    Row(
        "a foreign driver under our name",
        make_pod(
            volumes=[{"name": "modelcache", "csi": {"driver": "other.example", "readOnly": True}}]
        ),
        has_volume=False,
        has_wait=False,
        lacks=("volume modelcache",),
    ),
    Row(
        "another mount at our path in one of two containers",
        make_pod(
            volumes=[DATA],
            containers=[
                make_container("a", volumeMounts=[mount("/mnt/models")]),
                make_container("b"),
            ],
        ),
        lacks=("mount in a",),
    ),
    Row(
        "another mount below our path",
        make_pod(
            volumes=[DATA],
            containers=[make_container(volumeMounts=[mount("/mnt/models/lora")])],
            initContainers=[make_container("i", volumeMounts=[mount("/mnt/models/")])],
        ),
        lacks=("mount in app", "mount in i"),
    ),
    Row(
        "mounts that only look like ours",
        make_pod(
            volumes=[DATA],
            containers=[
                make_container(
                    volumeMounts=[mount("/mnt/models2"), mount("/mnt"), mount("/srv/mnt/models")]
                )
            ],
        ),
    ),
    Row(
        "our volume mounted elsewhere too",
        make_pod(
            volumes=[OWN_VOLUME],
            containers=[
                make_container(volumeMounts=[mount("/opt/m", "modelcache", subPath="model")])
            ],
        ),
    ),
    Row(
        "a hub cache of its own",
        make_pod(containers=[make_container(env=env(HF_HUB_CACHE="/data/hub"))]),
        lacks=("HF_HUB_CACHE in app",),
    ),
    Row(
        "online on purpose",
        make_pod(containers=[make_container(env=env(HF_HUB_OFFLINE="0", OTHER="x"))]),
        lacks=("HF_HUB_OFFLINE in app",),
    ),
    Row(
        "our very values set by hand",
        make_pod(
            containers=[make_container(env=env(HF_HUB_CACHE="/mnt/models/hub", HF_HUB_OFFLINE="1"))]
        ),
    ),
    Row(
        "our hub cache set by hand",
        make_pod(containers=[make_container(env=env(HF_HUB_CACHE="/mnt/models/hub"))]),
    ),
    Row(
        "a variable from a Secret and an empty one",
        make_pod(
            containers=[
                make_container(
                    "a",
                    env=[
                        {
                            "name": "MODELCACHE_PATH",
                            "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}},
                        }
                    ],
                ),
                make_container("b", env=[{"name": "HF_HUB_OFFLINE"}]),
            ],
            initContainers=[make_container("i", env=env(MODELCACHE_PATH="/else"))],
        ),
        lacks=("MODELCACHE_PATH in a", "MODELCACHE_PATH in i", "HF_HUB_OFFLINE in b"),
    ),
    Row(
        "variables from a ConfigMap",
        make_pod(containers=[make_container(envFrom=[{"configMapRef": {"name": "c"}}])]),
    ),
    Row(
        "a container with the wait's name",
        make_pod(containers=[make_container("modelcache-wait")]),
        has_wait=False,
        lacks=("container modelcache-wait",),
    ),
    Row(
        "an init container with the wait's name",
        make_pod(initContainers=[make_container("i"), make_container("modelcache-wait")]),
        has_wait=False,
        lacks=("container modelcache-wait",),
    ),
    Row(
        "all clashes at once",
        make_pod(
            volumes=[DATA],
            containers=[
                make_container(
                    "a", volumeMounts=[mount("/mnt/models")], env=env(HF_HUB_OFFLINE="0")
                ),
                make_container("modelcache-wait", env=env(HF_HUB_OFFLINE="0", HF_HUB_CACHE="/x")),
            ],
        ),
        has_wait=False,
        lacks=(
            "container modelcache-wait",
            "mount in a",
            "HF_HUB_CACHE in modelcache-wait",
            "HF_HUB_OFFLINE in modelcache-wait",
        ),
    ),
    Row("no wait, please", make_pod(annotations={"modelcache.io/wait": "false"}), has_wait=False),
    Row("wait, please", make_pod(annotations={"modelcache.io/wait": "true"})),
    Row(
        "no wait, and a container of its name",
        make_pod(
            annotations={"modelcache.io/wait": "false"},
            containers=[make_container("modelcache-wait")],
        ),
        has_wait=False,
    ),
]

_URL = "http://localhost:8000/v1/completions"
WARM_UP = {"modelcache.io/warmup": _URL}
_WARM_UP = [
    Row("a warm-up", make_pod(annotations=WARM_UP), has_warm_up=True),
    Row(
        "a warm-up of its own words, after the init containers",
        make_pod(
            annotations={
                **WARM_UP,
                "modelcache.io/warmup-body": '{"input": "{prompt}"}',
                "modelcache.io/warmup-tokens": "2048",
                "modelcache.io/warmup-deadline": "20m",
            },
            initContainers=[make_container("i")],
        ),
        has_warm_up=True,
    ),
    Row(
        "a warm-up without a wait",
        make_pod(annotations={**WARM_UP, "modelcache.io/wait": "false"}),
        has_wait=False,
        has_warm_up=True,
    ),
    Row("an empty warm-up", make_pod(annotations={"modelcache.io/warmup": ""})),
    Row(
        "a warm-up and a container of its name",
        make_pod(annotations=WARM_UP, containers=[make_container("modelcache-warmup")]),
        lacks=("container modelcache-warmup",),
    ),
    Row(
        "a warm-up and a foreign volume of our name",
        make_pod(annotations=WARM_UP, volumes=[{"name": "modelcache", "emptyDir": {}}]),
        has_volume=False,
        has_wait=False,
        lacks=("volume modelcache",),
    ),
]

_AFFINITY = [
    Row("an empty affinity", make_pod(affinity={})),
    Row("an empty node affinity", make_pod(affinity=affinity())),
    Row("a preferred term", make_pod(affinity=affinity(**{PREFERRED: [TERM]}))),
    Row(
        "a heavier preferred term",
        make_pod(affinity=affinity(**{PREFERRED: [TERM | {"weight": 100}, TERM]})),
    ),
    Row("C31: two required terms", make_pod(affinity=affinity(**ZONES))),
    Row("required and preferred", make_pod(affinity=affinity(**ZONES, **{PREFERRED: [TERM]}))),
    Row(
        "pod affinity and anti-affinity",
        make_pod(
            affinity={
                "podAffinity": {REQUIRED: [POD_TERM]},
                "podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": POD_TERM}]},
            }
        ),
    ),
    Row(
        "a DaemonSet's pod",
        make_pod(
            affinity=affinity(
                **{
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n"]}
                                ]
                            }
                        ]
                    }
                }
            )
        ),
    ),
    Row("C31: a node selector", make_pod(nodeSelector={"pool": "b"})),
    Row(
        "the canary's track",
        make_pod(labels={LABEL: "m", "modelcache.io/track": "canary"}),
        keys=(CANARY_KEY,),
    ),
    Row("the stable track by name", make_pod(labels={LABEL: "m", "modelcache.io/track": "stable"})),
    Row(
        "a track that is not there",
        make_pod(labels={LABEL: "m", "modelcache.io/track": "x"}),
        keys=(),
    ),
    Row("an empty track", make_pod(labels={LABEL: "m", "modelcache.io/track": ""})),
    Row("a cold ModelCache", make_pod(labels={LABEL: "cold"})),
    Row("a ModelCache of unknown content", make_pod(labels={LABEL: "fetching"}), keys=()),
    Row("a ModelCache without status", make_pod(labels={LABEL: "new"}), keys=()),
    Row("a ModelCache that does not exist", make_pod(labels={LABEL: "unknown"}), keys=()),
]

_REQUIRED = [
    Row("required by label", make_pod(labels={LABEL: "m", PLACEMENT: "required"}), is_gated=True),
    Row("required by annotation", make_pod(annotations={PLACEMENT: "required"}), is_gated=True),
    Row("preferred by label", make_pod(labels={LABEL: "m", PLACEMENT: "preferred"})),
    Row(
        "the label outweighs the annotation",
        make_pod(labels={LABEL: "m", PLACEMENT: "preferred"}, annotations={PLACEMENT: "required"}),
    ),
    Row("required of a cold ModelCache", make_pod(labels={LABEL: "cold", PLACEMENT: "required"})),
    Row(
        "required while it is being fetched",
        make_pod(labels={LABEL: "fetching", PLACEMENT: "required"}),
        keys=(),
        is_gated=True,
    ),
    Row("required of none", make_pod(labels={LABEL: "unknown", PLACEMENT: "required"}), keys=()),
    Row(
        "required with other gates",
        make_pod(
            labels={LABEL: "m", PLACEMENT: "required"}, schedulingGates=[{"name": "a.example/b"}]
        ),
        is_gated=True,
    ),
    Row(
        "required with our gate already",
        make_pod(
            labels={LABEL: "m", PLACEMENT: "required"},
            schedulingGates=[{"name": "modelcache.io/placement"}],
        ),
        is_gated=True,
    ),
    Row(
        "required and bound by hand",
        make_pod(labels={LABEL: "m", PLACEMENT: "required"}, nodeName="n-1"),
    ),
    Row(
        "required and two required terms",
        make_pod(labels={LABEL: "m", PLACEMENT: "required"}, affinity=affinity(**ZONES)),
        is_gated=True,
    ),
]

_LEFT_ALONE = [
    Row("no label", make_pod(labels={}), **UNTOUCHED),
    Row(
        "other labels",
        make_pod(labels={"modelcache.io/track": "stable", "cache": "m"}),
        **UNTOUCHED,
    ),
    Row(
        "an annotation in place of the label",
        make_pod(labels={}, annotations={LABEL: "m"}),
        **UNTOUCHED,
    ),
    Row("an empty label", make_pod(labels={LABEL: ""}), **UNTOUCHED),
    Row("Windows by os", make_pod(os={"name": "windows"}), **UNTOUCHED),
    Row(
        "Windows by node selector",
        make_pod(nodeSelector={"kubernetes.io/os": "windows"}),
        **UNTOUCHED,
    ),
    Row("injected already", make_pod(annotations=INJECTED), **UNTOUCHED),
    Row(
        "volume injected already, affinity not",
        make_pod(annotations={"modelcache.io/injected": "true"}),
        has_volume=False,
        has_wait=False,
    ),
    Row(
        "affinity injected already, volume not",
        make_pod(annotations={"modelcache.io/injected-affinity": ""}),
        keys=(),
    ),
]

ROWS = [*_PLAIN, *_CLASHES, *_WARM_UP, *_AFFINITY, *_REQUIRED, *_LEFT_ALONE]


def cache_of(row: Row) -> KnownCache | None:
    """What is known of the ModelCache that the row's pod names."""
    return CACHES.get(row.pod["metadata"]["labels"].get(LABEL, ""))


def copy_of(row: Row) -> dict[str, Any]:
    return copy.deepcopy(row.pod)
