"""Reads what the probes judge. What may not be read is None."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from cryptography import x509

from modelcache_api.names import (
    AGENT_LEASE_PREFIX,
    ANNOTATION_SWITCHED_OFF,
    CA_CONFIG_KEY,
    CA_CONFIG_MAP,
    CSI_DRIVER,
    LABEL_AGENT_LEASE,
    MANAGER_AGENT,
)
from modelcache_cli.checklist.values import Certificate, Clock, Observed, Right, Workload
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import Fleet, observe_fleet
from modelcache_kube import CONFIG_MAPS, LEASES, PODS, Forbidden, KubeClient, NotFound, Resource

Object = Mapping[str, Any]
_T = TypeVar("_T")

_OURS: Final = "app.kubernetes.io/name=modelcache"
_INJECTION: Final = "modelcache-injection"
OPERATOR: Final = "modelcache-operator"
_ADMISSION: Final = "admissionregistration.k8s.io"
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
VALIDATING_BINDINGS: Final = Resource(
    _ADMISSION,
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
MUTATING_BINDINGS: Final = Resource(
    _ADMISSION,
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)
MUTATING_WEBHOOKS: Final = Resource(
    _ADMISSION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
)
# Account, verb, group, resource with its subresource, and whether in the system's namespace alone:
# without one of these nothing works. The whole list is the chart's.
RIGHTS: Final = (
    ("modelcache-operator", "watch", "modelcache.io", "modelversions", False),
    ("modelcache-operator", "watch", "modelcache.io", "modelcaches", False),
    ("modelcache-operator", "patch", "modelcache.io", "cachenodes", False),
    ("modelcache-operator", "patch", "modelcache.io", "modelcaches/status", False),
    ("modelcache-operator", "get", "", "secrets", False),
    ("modelcache-operator", "patch", "", "nodes", False),
    ("modelcache-operator", "create", "authentication.k8s.io", "tokenreviews", False),
    ("modelcache-operator", "create", "", "configmaps", True),
    ("modelcache-operator", "patch", "coordination.k8s.io", "leases", True),
    ("modelcache-agent", "watch", "modelcache.io", "cachenodes", False),
    ("modelcache-agent", "patch", "modelcache.io", "cachenodes/status", False),
    ("modelcache-agent", "patch", "", "nodes", False),
    ("modelcache-agent", "patch", "coordination.k8s.io", "leases", True),
)


async def observe(kube: KubeClient, system: str, now: datetime) -> Observed:
    """Everything but what must be asked for: Prometheus, and a model that is tried."""
    driver = await _unless_forbidden(_read_driver(kube))
    fleet, trouble = await _read_fleet(kube)
    return Observed(
        now=now,
        fleet=fleet,
        fleet_trouble=trouble,
        rights=await _unless_forbidden(_review_rights(kube, system)),
        workloads=await _unless_forbidden(_read_workloads(kube, system)),
        guards=await _unless_forbidden(_read_guards(kube)),
        injection=await _unless_forbidden(_find_injection(kube)),
        csi_driver=driver,
        drivers=await _unless_forbidden(_read_csi_nodes(kube)),
        clocks=await _unless_forbidden(_read_clocks(kube, system)),
        certificates=await _unless_forbidden(_read_certificates(kube, system)),
        switched_off=await _unless_forbidden(_read_switched_off(kube, system)) or frozenset(),
    )


async def _unless_forbidden(work: Awaitable[_T]) -> _T | None:
    try:
        return await work
    except Forbidden:
        return None


async def _read_fleet(kube: KubeClient) -> tuple[Fleet | None, str]:
    """What an object of another release says costs no other probe, and is told apart."""
    try:
        return await observe_fleet(kube, None), ""
    except Forbidden:
        return None, ""
    except CliError as error:
        return None, str(error)


async def _get(kube: KubeClient, resource: Resource, name: str) -> Object | None:
    """None where the cluster does not serve the kind at all, too."""
    try:
        return await kube.get(resource, name)
    except NotFound:
        return None


async def _review_rights(kube: KubeClient, system: str) -> tuple[Right, ...]:
    return tuple([await _review(kube, system, *right) for right in RIGHTS])


async def _review(
    kube: KubeClient, system: str, account: str, verb: str, group: str, resource: str, inside: bool
) -> Right:
    kind, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind}
    attributes |= {"subresource": subresource} if subresource else {}
    attributes |= {"namespace": system} if inside else {}
    # The groups are those that the API server gives to every service account.
    spec = {
        "user": f"system:serviceaccount:{system}:{account}",
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{system}",
            "system:authenticated",
        ],
        "resourceAttributes": attributes,
    }
    answer = await kube.create(ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
    allowed = bool((answer.get("status") or {}).get("allowed"))
    return Right(account, verb, resource, allowed)


async def _read_workloads(kube: KubeClient, system: str) -> tuple[Workload, ...]:
    pods = (await kube.list(PODS, system, label_selector=_OURS)).items
    found = []
    for resource in (DEPLOYMENTS, DAEMON_SETS):
        listed = (await kube.list(resource, system, label_selector=_OURS)).items
        found += [see_workload(resource.kind, raw, pods) for raw in listed]
    return tuple(found)


def see_workload(kind: str, raw: Object, pods: Iterable[Object]) -> Workload:
    """How many of its pods should be and are ready. Pure."""
    name, status = raw["metadata"]["name"], raw.get("status") or {}
    if kind == DAEMON_SETS.kind:
        desired, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        desired, ready = raw["spec"].get("replicas", 1), status.get("readyReplicas", 0)
    ours = (pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-"))
    trouble = next((told for pod in ours for told in _list_troubles(pod)), "")
    return Workload(kind, name, desired, ready, trouble)


def _list_troubles(pod: Object) -> Iterator[str]:
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = (container.get("lastState") or {}).get("terminated") or {}
        said = ended.get("message") or waiting.get("message") or ""
        if waiting and waiting.get("reason") != "ContainerCreating":
            yield f"{waiting.get('reason')} {said}".strip()
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')} {condition.get('message', '')}".strip()


async def _read_switched_off(kube: KubeClient, system: str) -> frozenset[str]:
    found = await kube.get(DEPLOYMENTS, OPERATOR, system)
    annotations = (found or {"metadata": {}})["metadata"].get("annotations") or {}
    return frozenset(annotations.get(ANNOTATION_SWITCHED_OFF, "").split())


async def _read_guards(kube: KubeClient) -> frozenset[str]:
    bound = (await kube.list(VALIDATING_BINDINGS)).items
    return frozenset(one["spec"]["policyName"] for one in bound)


async def _find_injection(kube: KubeClient) -> str:
    if await _get(kube, MUTATING_BINDINGS, _INJECTION) is not None:
        return "a MutatingAdmissionPolicy"
    if await _get(kube, MUTATING_WEBHOOKS, _INJECTION) is not None:
        return "the webhook"
    return ""


async def _read_driver(kube: KubeClient) -> bool:
    return await kube.get(CSI_DRIVERS, CSI_DRIVER) is not None


async def _read_csi_nodes(kube: KubeClient) -> frozenset[str]:
    return frozenset(
        one["metadata"]["name"]
        for one in (await kube.list(CSI_NODES)).items
        if any(d.get("name") == CSI_DRIVER for d in one["spec"].get("drivers") or ())
    )


async def _read_clocks(kube: KubeClient, system: str) -> tuple[Clock, ...]:
    leases = (await kube.list(LEASES, system, label_selector=LABEL_AGENT_LEASE)).items
    found = (see_clock(raw) for raw in leases)
    return tuple(one for one in found if one is not None)


def see_clock(lease: Object) -> Clock | None:
    """The agent's own time in its Lease, against when the API server wrote it there. Pure.

    So neither the age of the Lease nor this machine's clock plays a part. The server tells whole
    seconds.
    """
    told = (lease.get("spec") or {}).get("renewTime")
    writes = [
        entry["time"]
        for entry in lease["metadata"].get("managedFields") or ()
        if entry.get("manager") == MANAGER_AGENT and entry.get("time")
    ]
    if not told or not writes:
        return None
    node = lease["metadata"]["name"].removeprefix(AGENT_LEASE_PREFIX)
    return Clock(node, datetime.fromisoformat(told) - datetime.fromisoformat(max(writes)))


async def _read_certificates(kube: KubeClient, system: str) -> tuple[Certificate, ...]:
    webhook = await _get(kube, MUTATING_WEBHOOKS, _INJECTION)
    bundle = await kube.get(CONFIG_MAPS, CA_CONFIG_MAP, system)
    if bundle is None:
        return ()
    texts = [("the operator's authority", str((bundle.get("data") or {}).get(CA_CONFIG_KEY, "")))]
    for hook in (webhook or {}).get("webhooks") or ():
        encoded = (hook.get("clientConfig") or {}).get("caBundle") or ""
        texts.append(("the webhook's CA", _decode(encoded)))
    return tuple(see_certificate(name, text) for name, text in texts)


def see_certificate(name: str, bundle: str) -> Certificate:
    """The one that ends last: while an authority is rotated, the old one ends soon. Pure."""
    try:
        found = x509.load_pem_x509_certificates(bundle.encode())
    except ValueError:
        return Certificate(name, None)
    return Certificate(name, max(one.not_valid_after_utc for one in found))


def _decode(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return ""
