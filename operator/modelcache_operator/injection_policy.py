"""Injection as MutatingAdmissionPolicies: the rules of `injection.py` in CEL. Pure.

For clusters that serve admissionregistration.k8s.io/v1 MutatingAdmissionPolicy (1.36 on): no
process of ours stands in the way of a pod. Two policies: one needs nothing but the pod; the other
is evaluated once for each ModelCache of the pod's namespace, and looks its own up by name.
"""

from __future__ import annotations

from typing import Final

from modelcache_api import names
from modelcache_operator.admission_cel import Raw
from modelcache_operator.admission_placement import build_placement_spec
from modelcache_operator.admission_volume import build_volume_spec
from modelcache_operator.injection import InjectionSettings

API_VERSION: Final = "admissionregistration.k8s.io/v1"
VOLUME_POLICY: Final = "modelcache-injection"
PLACEMENT_POLICY: Final = "modelcache-placement"


def build_policies(settings: InjectionSettings, system_namespace: str) -> list[Raw]:
    """Both policies with their bindings, as documents to apply."""
    return [
        _policy(VOLUME_POLICY, system_namespace, build_volume_spec(settings)),
        _binding(VOLUME_POLICY, {}),
        _policy(PLACEMENT_POLICY, system_namespace, build_placement_spec()),
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
