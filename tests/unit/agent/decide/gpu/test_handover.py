"""Which pod gets descriptors."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.gpu.handover import Pod, device_uuids, refuse_handover
from modelcache_agent.decide.gpu.room import Key
from modelcache_api.names import Reason

CARD = "GPU-01020304-0506-0708-090a-0b0c0d0e0f00"
KEY = Key("models", "uid-1")


@pytest.mark.parametrize(
    ("namespace", "given", "reason"),
    [
        pytest.param("models", {CARD}, None, id="the pod's own card"),
        pytest.param("models", {"GPU-2", CARD}, None, id="one of several cards"),
        pytest.param("models", {f"{CARD}::4"}, None, id="a share of the card"),
        pytest.param("models", {f"{CARD}0"}, Reason.GPU_NOT_GIVEN, id="a longer name"),
        pytest.param("models", {"MIG-1"}, Reason.GPU_NOT_GIVEN, id="an instance of it"),
        pytest.param("models", set(), Reason.GPU_NOT_GIVEN, id="no device"),
        pytest.param("models", None, Reason.GPU_NOT_GIVEN, id="the kubelet does not say"),
        pytest.param("other", {CARD}, Reason.VOLUME_REFUSED, id="another namespace"),
    ],
)
def test_descriptors_go_to_pods_of_the_namespace_that_have_the_card(namespace, given, reason):
    ids = None if given is None else frozenset(given)
    refusal = refuse_handover(Pod(namespace, "reader", "uid"), KEY, CARD, ids)
    assert (refusal and refusal.reason) == reason


def test_shares_of_a_card_are_the_card():
    assert device_uuids(["GPU-1::0", "GPU-1::7", "MIG-2"]) == {"GPU-1", "MIG-2"}
