"""The policy that gives a pod its volume: the rules of `injection.py` in CEL. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from modelcache_api import names
from modelcache_operator.admission_cel import (
    ANNOTATIONS,
    LABELS,
    Cel,
    Raw,
    add,
    annotate,
    build_conditions,
    build_mutation,
    build_variables,
    member,
    quote,
    when,
)
from modelcache_operator.injection import (
    INJECTED,
    InjectionSettings,
    build_mount,
    build_volume,
    build_wait_container,
    build_warm_up_container,
)
from modelcache_operator.injection_rules import (
    CONTAINER_LISTS,
    ENVIRONMENT,
    WARM_UP_ENVIRONMENT,
)
from modelcache_operator.json_patch import escape_key

_OWN_PATHS: Final = f"[{quote(names.MOUNT_PATH)}, {quote(names.MOUNT_PATH + '/')}]"
_IS_OURS: Final = f"(m.name == {quote(names.VOLUME_NAME)} && m.mountPath in {_OWN_PATHS})"
_IS_AT_OUR_PATH: Final = (
    f"(m.mountPath == {quote(names.MOUNT_PATH)} || "
    f"m.mountPath.startsWith({quote(names.MOUNT_PATH + '/')}))"
)
_MOUNTS: Final = "c.?volumeMounts.orValue([])"
_ENV: Final = "c.?env.orValue([])"
_READS: Final = f"!{_MOUNTS}.exists(m, {_IS_AT_OUR_PATH} && !{_IS_OURS})"
_LACKS_MOUNT: Final = f"!{_MOUNTS}.exists(m, {_IS_OURS})"


def _has_other(name: str) -> str:
    value = quote(ENVIRONMENT[name])
    return f'{_ENV}.exists(e, e.name == {quote(name)} && e.?value.orValue("") != {value})'


def _lacks_variable(name: str) -> str:
    absent = f"!{_ENV}.exists(e, e.name == {quote(name)})"
    if name == names.ENV_HUB_OFFLINE:
        return f"({absent} && !{_has_other(names.ENV_HUB_CACHE)})"
    return absent


def build_volume_spec(settings: InjectionSettings) -> Raw:
    """What is the volume policy's own of its spec."""
    return {
        "failurePolicy": "Fail",
        "matchConditions": build_conditions(names.ANNOTATION_INJECTED),
        "variables": build_variables(_volume_variables()),
        "mutations": build_mutation(_volume_operations(settings)),
    }


def _volume_variables() -> dict[str, str]:
    name = quote(names.VOLUME_NAME)
    wait = f'{member("variables.annotations", names.ANNOTATION_WAIT)} != "false"'
    no_volume = quote(f"volume {names.VOLUME_NAME}")
    no_wait = quote(f"container {names.WAIT_CONTAINER}")
    no_warm_up = quote(f"container {names.WARM_UP_CONTAINER}")
    refusals = [
        f"(variables.wait && variables.waitIsTaken ? [{no_wait}] : [])",
        f"(variables.warmUp && variables.warmUpIsTaken ? [{no_warm_up}] : [])",
        f'variables.all.filter(c, !({_READS})).map(c, "mount in " + c.name)',
        *(
            f"variables.all.filter(c, {_READS} && {_has_other(one)})"
            f".map(c, {quote(one + ' in ')} + c.name)"
            for one in ENVIRONMENT
        ),
    ]
    return {
        "annotations": ANNOTATIONS,
        "initContainers": "object.spec.?initContainers.orValue([])",
        "all": "object.spec.containers + variables.initContainers",
        "volumes": "object.spec.?volumes.orValue([])",
        # By index, so that the long rule is told once.
        "containersRead": f"object.spec.containers.map(c, {_READS})",
        "initContainersRead": f"variables.initContainers.map(c, {_READS})",
        "hasVolume": f"variables.volumes.exists(v, v.name == {name})",
        "isOurs": (
            f"variables.volumes.all(v, v.name != {name} || "
            f'v.?csi.driver.orValue("") == {quote(names.CSI_DRIVER)})'
        ),
        "wait": wait,
        "waitIsTaken": f"variables.all.exists(c, c.name == {quote(names.WAIT_CONTAINER)})",
        "warmUp": f'{member("variables.annotations", names.ANNOTATION_WARM_UP)} != ""',
        "warmUpIsTaken": f"variables.all.exists(c, c.name == {quote(names.WARM_UP_CONTAINER)})",
        "refused": f"variables.isOurs ? ({' + '.join(refusals)}) : [{no_volume}]",
    }


def _volume_operations(settings: InjectionSettings) -> Iterable[str]:
    cache = Cel(f"{LABELS}[{quote(names.LABEL_CACHE)}]")
    lacks = "variables.isOurs && !variables.hasVolume"
    yield when(f"{lacks} && size(variables.volumes) == 0", add("/spec/volumes", []))
    canary = f"{member(LABELS, names.LABEL_TRACK)} == {quote(names.Track.CANARY)}"
    tried = build_volume(cache, names.Track.CANARY.value)
    yield when(f"{lacks} && !({canary})", add("/spec/volumes/-", build_volume(cache)))
    yield when(f"{lacks} && {canary}", add("/spec/volumes/-", tried))
    for field_name in CONTAINER_LISTS:
        yield from _equip(field_name)
    waits = "variables.isOurs && variables.wait && !variables.waitIsTaken"
    warms = "variables.isOurs && variables.warmUp && !variables.warmUpIsTaken"
    adds = f"({waits} || {warms})"
    yield when(f"{adds} && size(variables.initContainers) == 0", add("/spec/initContainers", []))
    yield when(waits, add("/spec/initContainers/0", build_wait_container(settings)))
    said = {n: Cel(member("variables.annotations", key)) for n, key in WARM_UP_ENVIRONMENT.items()}
    yield when(warms, add("/spec/initContainers/-", build_warm_up_container(settings, said)))
    yield from annotate({names.ANNOTATION_INJECTED: INJECTED})
    path = f"/metadata/annotations/{escape_key(names.ANNOTATION_NOT_INJECTED)}"
    yield when("size(variables.refused) > 0", add(path, Cel('variables.refused.join(", ")')))


def _equip(field_name: str) -> Iterable[str]:
    """Mounts and variables of one list of containers, by index."""

    def each(condition: str, below: str, value: Any) -> str:
        path = Cel(f'"/spec/{field_name}/" + string(i) + "/{below}"')
        source = f"object.spec.?{field_name}.orValue([])"
        wanted = f"variables.isOurs && variables.{field_name}Read[i] && {condition}"
        return f"{source}.transformList(i, c, {wanted}, {add(path, value)})"

    yield each(f"size({_MOUNTS}) == 0", "volumeMounts", [])
    yield each(_LACKS_MOUNT, "volumeMounts/-", build_mount())
    yield each(f"size({_ENV}) == 0", "env", [])
    for name, value in ENVIRONMENT.items():
        yield each(_lacks_variable(name), "env/-", {"name": name, "value": value})
