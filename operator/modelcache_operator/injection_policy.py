"""Injection as MutatingAdmissionPolicies: the rules of `injection.py` in CEL. Pure.

For clusters that serve admissionregistration.k8s.io/v1 MutatingAdmissionPolicy (1.36 on): no
process of ours stands in the way of a pod. Two policies: one needs nothing but the pod; the other
is evaluated once for each ModelCache of the pod's namespace, and looks its own up by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from modelcache_api import names
from modelcache_operator.desired.affinity import build_preferred_terms
from modelcache_operator.injection import (
    CONTAINER_LISTS,
    DEFAULT_TRACK,
    ENVIRONMENT,
    INJECTED,
    MIRROR_ANNOTATION,
    OS_LABEL,
    PREFERRED,
    WINDOWS,
    InjectionSettings,
    build_mount,
    build_volume,
    build_wait_container,
)
from modelcache_operator.json_patch import escape_key

Raw = dict[str, Any]

API_VERSION: Final = "admissionregistration.k8s.io/v1"
VOLUME_POLICY: Final = "modelcache-injection"
PLACEMENT_POLICY: Final = "modelcache-placement"


class Cel(str):
    """An expression, where plain text would be a literal."""

    __slots__ = ()


def to_cel(value: Any) -> str:
    """A JSON value as a CEL literal. Members of maps are `dyn`, since they differ in type."""
    match value:
        case Cel():
            return str(value)
        case Mapping():
            members = (f"{json.dumps(key)}: dyn({to_cel(one)})" for key, one in value.items())
            return "{" + ", ".join(members) + "}"
        case list():
            return "[" + ", ".join(to_cel(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=True)


def build_policies(settings: InjectionSettings, system_namespace: str) -> list[Raw]:
    """Both policies with their bindings, as documents to apply."""
    return [
        _policy(VOLUME_POLICY, system_namespace, _volume_spec(settings)),
        _binding(VOLUME_POLICY, {}),
        _policy(PLACEMENT_POLICY, system_namespace, _placement_spec()),
        _binding(
            PLACEMENT_POLICY,
            {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}},
        ),
    ]


def _policy(name: str, system_namespace: str, spec: Raw) -> Raw:
    matching = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": exclude_namespace(system_namespace),
        "objectSelector": SELECT_LABELLED,
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        # Another hook may have brought the label only after our first look; what has been through
        # it is recognised by its annotation.
        "spec": {"matchConstraints": matching, "reinvocationPolicy": "IfNeeded", **spec},
    }


def _binding(name: str, spec: Raw) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, **spec},
    }


SELECT_LABELLED: Final[Raw] = {
    "matchExpressions": [{"key": names.LABEL_CACHE, "operator": "Exists"}]
}


def exclude_namespace(name: str) -> Raw:
    """A namespace selector for all but that one."""
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [name]}]}


def _quote(text: str) -> str:
    return json.dumps(text)


def _member(container: str, key: str) -> str:
    """A member that may be missing, of a map that is there; empty text without it."""
    return f'{container}[?{_quote(key)}].orValue("")'


_ANNOTATIONS: Final = "object.metadata.?annotations.orValue({})"
_LABELS: Final = "object.metadata.labels"


def _conditions(mark: str) -> list[Raw]:
    """Which pods are meant; `mark` is the annotation of those that have been through it."""
    wanted = {
        "names-a-cache": f'{_member(_LABELS, names.LABEL_CACHE)} != ""',
        "not-windows": (
            f'object.spec.?os.name.orValue("") != {_quote(WINDOWS)} && '
            f'object.spec.?nodeSelector[?{_quote(OS_LABEL)}].orValue("") != {_quote(WINDOWS)}'
        ),
        "not-a-mirror": f"!({_quote(MIRROR_ANNOTATION)} in {_ANNOTATIONS})",
        "not-yet": f"!({_quote(mark)} in {_ANNOTATIONS})",
    }
    return [{"name": name, "expression": text} for name, text in wanted.items()]


def _variables(texts: Mapping[str, str]) -> list[Raw]:
    return [{"name": name, "expression": text} for name, text in texts.items()]


def _mutation(pieces: Iterable[str]) -> list[Raw]:
    expression = " +\n".join(pieces)
    return [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]


def _add(path: str, value: Any) -> str:
    """One operation; `path` is a literal unless it is an expression."""
    where = path if isinstance(path, Cel) else _quote(path)
    return f'JSONPatch{{op: "add", path: {where}, value: {to_cel(value)}}}'


def _when(condition: str, *operations: str) -> str:
    return f"({condition} ? [{', '.join(operations)}] : [])"


# --- volume, mounts, environment, wait ----------------------------------------------------------

_OWN_PATHS: Final = f"[{_quote(names.MOUNT_PATH)}, {_quote(names.MOUNT_PATH + '/')}]"
_IS_OURS: Final = f"(m.name == {_quote(names.VOLUME_NAME)} && m.mountPath in {_OWN_PATHS})"
_IS_AT_OUR_PATH: Final = (
    f"(m.mountPath == {_quote(names.MOUNT_PATH)} || "
    f"m.mountPath.startsWith({_quote(names.MOUNT_PATH + '/')}))"
)
_MOUNTS: Final = "c.?volumeMounts.orValue([])"
_ENV: Final = "c.?env.orValue([])"
_READS: Final = f"!{_MOUNTS}.exists(m, {_IS_AT_OUR_PATH} && !{_IS_OURS})"
_LACKS_MOUNT: Final = f"!{_MOUNTS}.exists(m, {_IS_OURS})"


def _has_other(name: str) -> str:
    value = _quote(ENVIRONMENT[name])
    return f'{_ENV}.exists(e, e.name == {_quote(name)} && e.?value.orValue("") != {value})'


def _lacks_variable(name: str) -> str:
    absent = f"!{_ENV}.exists(e, e.name == {_quote(name)})"
    if name == names.ENV_HUB_OFFLINE:
        return f"({absent} && !{_has_other(names.ENV_HUB_CACHE)})"
    return absent


def _volume_spec(settings: InjectionSettings) -> Raw:
    return {
        "failurePolicy": "Fail",
        "matchConditions": _conditions(names.ANNOTATION_INJECTED),
        "variables": _variables(_volume_variables()),
        "mutations": _mutation(_volume_operations(settings)),
    }


def _volume_variables() -> dict[str, str]:
    name = _quote(names.VOLUME_NAME)
    wait = f'{_member("variables.annotations", names.ANNOTATION_WAIT)} != "false"'
    no_volume = _quote(f"volume {names.VOLUME_NAME}")
    no_wait = _quote(f"container {names.WAIT_CONTAINER}")
    refusals = [
        f"(variables.wait && variables.waitIsTaken ? [{no_wait}] : [])",
        f'variables.all.filter(c, !({_READS})).map(c, "mount in " + c.name)',
        *(
            f"variables.all.filter(c, {_READS} && {_has_other(one)})"
            f".map(c, {_quote(one + ' in ')} + c.name)"
            for one in ENVIRONMENT
        ),
    ]
    return {
        "annotations": _ANNOTATIONS,
        "initContainers": "object.spec.?initContainers.orValue([])",
        "all": "object.spec.containers + variables.initContainers",
        "volumes": "object.spec.?volumes.orValue([])",
        # By index, so that the long rule is told once.
        "containersRead": f"object.spec.containers.map(c, {_READS})",
        "initContainersRead": f"variables.initContainers.map(c, {_READS})",
        "hasVolume": f"variables.volumes.exists(v, v.name == {name})",
        "isOurs": (
            f"variables.volumes.all(v, v.name != {name} || "
            f'v.?csi.driver.orValue("") == {_quote(names.CSI_DRIVER)})'
        ),
        "wait": wait,
        "waitIsTaken": f"variables.all.exists(c, c.name == {_quote(names.WAIT_CONTAINER)})",
        "refused": f"variables.isOurs ? ({' + '.join(refusals)}) : [{no_volume}]",
    }


def _volume_operations(settings: InjectionSettings) -> Iterable[str]:
    cache = Cel(f"{_LABELS}[{_quote(names.LABEL_CACHE)}]")
    lacks = "variables.isOurs && !variables.hasVolume"
    yield _when(f"{lacks} && size(variables.volumes) == 0", _add("/spec/volumes", []))
    yield _when(lacks, _add("/spec/volumes/-", build_volume(cache)))
    for field_name in CONTAINER_LISTS:
        yield from _equip(field_name)
    waits = "variables.isOurs && variables.wait && !variables.waitIsTaken"
    yield _when(f"{waits} && size(variables.initContainers) == 0", _add("/spec/initContainers", []))
    yield _when(waits, _add("/spec/initContainers/0", build_wait_container(settings)))
    yield from _annotate({names.ANNOTATION_INJECTED: INJECTED})
    path = f"/metadata/annotations/{escape_key(names.ANNOTATION_NOT_INJECTED)}"
    yield _when("size(variables.refused) > 0", _add(path, Cel('variables.refused.join(", ")')))


def _equip(field_name: str) -> Iterable[str]:
    """Mounts and variables of one list of containers, by index."""

    def each(condition: str, below: str, value: Any) -> str:
        path = Cel(f'"/spec/{field_name}/" + string(i) + "/{below}"')
        source = f"object.spec.?{field_name}.orValue([])"
        wanted = f"variables.isOurs && variables.{field_name}Read[i] && {condition}"
        return f"{source}.transformList(i, c, {wanted}, {_add(path, value)})"

    yield each(f"size({_MOUNTS}) == 0", "volumeMounts", [])
    yield each(_LACKS_MOUNT, "volumeMounts/-", build_mount())
    yield each(f"size({_ENV}) == 0", "env", [])
    for name, value in ENVIRONMENT.items():
        yield each(_lacks_variable(name), "env/-", {"name": name, "value": value})


def _annotate(marks: Mapping[str, Any]) -> Iterable[str]:
    yield _when(f"size({_ANNOTATIONS}) == 0", _add("/metadata/annotations", {}))
    for key, value in marks.items():
        yield f"[{_add(f'/metadata/annotations/{escape_key(key)}', value)}]"


# --- affinity and gate --------------------------------------------------------------------------


def _placement_spec() -> Raw:
    mine = f"params.metadata.name == {_member(_LABELS, names.LABEL_CACHE)}"
    conditions = _conditions(names.ANNOTATION_INJECTED_AFFINITY)
    return {
        # The pod would start as well without it, only perhaps elsewhere.
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.API_VERSION, "kind": names.KIND_MODEL_CACHE},
        "matchConditions": [{"name": "its-cache", "expression": mine}, *conditions],
        "variables": _variables(_placement_variables()),
        "mutations": _mutation(_placement_operations()),
    }


def _placement_variables() -> dict[str, str]:
    track = f'{_LABELS}[?{_quote(names.LABEL_TRACK)}].orValue("")'
    required = _quote(names.PLACEMENT_REQUIRED)
    wish = f"{_LABELS}[?{_quote(names.LABEL_PLACEMENT)}]"
    noted = f"{_ANNOTATIONS}[?{_quote(names.LABEL_PLACEMENT)}]"
    count = "params.?status.copies.{}.orValue(0)".format
    return {
        "track": f'{track} == "" ? {_quote(DEFAULT_TRACK)} : {track}',
        "keys": (
            "params.?status.tracks.orValue([])"
            '.filter(t, t.name == variables.track && t.?nodeLabelKey.orValue("") != "")'
            ".map(t, string(t.nodeLabelKey))"
        ),
        "isGated": (
            f'({wish}.orValue("") != "" ? {wish} : {noted}).orValue("") == {required} && '
            f"{count('placed')} > {count('failed')} && "
            'object.spec.?nodeName.orValue("") == "" && '
            "!object.spec.?schedulingGates.orValue([])"
            f".exists(g, g.name == {_quote(names.GATE_PLACEMENT)})"
        ),
    }


def _placement_operations() -> Iterable[str]:
    known = "size(variables.keys) > 0"
    parents = ("affinity", "nodeAffinity", PREFERRED)
    for depth in range(1, len(parents) + 1):
        present = f"object.spec.?{'.'.join(parents[:depth])}.hasValue()"
        empty: Any = [] if depth == len(parents) else {}
        path = "/spec/" + "/".join(parents[:depth])
        yield _when(f"{known} && !{present}", _add(path, empty))
    terms = build_preferred_terms(Cel("variables.keys[0]"))
    yield _when(known, *(_add(f"/spec/{'/'.join(parents)}/-", term) for term in terms))
    gate = {"name": names.GATE_PLACEMENT}
    has_gates = "object.spec.?schedulingGates.hasValue()"
    yield _when(f"variables.isGated && !{has_gates}", _add("/spec/schedulingGates", []))
    yield _when("variables.isGated", _add("/spec/schedulingGates/-", gate))
    mark = Cel('variables.keys.join("")')
    yield from _annotate({names.ANNOTATION_INJECTED_AFFINITY: mark})
