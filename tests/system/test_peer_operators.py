"""Agents that read from each other, and what becomes of the operators that tell them to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.fault_proxy import Fault, FaultProxy
from fakes.service_door import ServiceDoor
from fakes.world import World
from modelcache_testbed.system import NAMESPACE, Program, System

pytestmark = pytest.mark.cluster

AGENTS = 4
MODEL_BYTES = 40_000_000
QUICK = "--lease-list-interval=1s"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/modelcache-operator-leader"


class Replicas:
    """Two operators behind one door, and agents that know the door alone."""

    def __init__(self, world: World, door: ServiceDoor) -> None:
        self.world = world
        self.door = door

    @property
    def operators(self) -> dict[str, Program]:
        return self.world.system.operators

    def add_agents(self, *names: str, age: str = "new", extra: tuple[str, ...] = ()) -> None:
        for name in names:
            node = self.world.add_node(name, agent=False, labels={"agent": age})
            url = f"--operator-url=https://127.0.0.1:{self.door.port}"
            self.world.system.add_agent(node, capacity="1Gi", extra=(url, *extra))

    def leader(self) -> str:
        found = self.world.cluster.api.find(LEASE) or {"spec": {}}
        return str(found["spec"].get("holderIdentity") or "")

    def await_leader(self, *, other_than: str = "") -> str:
        self.world.wait(
            lambda: self.leader() in self.operators.keys() - {other_than}, "a leader", seconds=60
        )
        return self.leader()

    def switch_on(self) -> None:
        """Both operators anew, with peers, unless that is so; return when all agents may serve."""
        for name, operator in tuple(self.operators.items()):
            if "--peers=false" not in operator.argv:
                continue
            operator.stop()
            argv = tuple("--peers=true" if a == "--peers=false" else a for a in operator.argv)
            self.operators[name] = Program(name, argv, operator.folder, operator.environment)
            self.operators[name].start()
        self.await_leader()
        able = [node for node in self.world.nodes if not node.endswith("-old")]
        self.world.wait(lambda: all(can_serve(self.world, node) for node in able), "certificates")


def grants_port(operator: Program) -> int:
    (bind,) = (a for a in operator.argv if a.startswith("--grants-bind="))
    return int(bind.rpartition(":")[2])


@pytest.fixture(scope="module")
def replicas(cluster, seaweed, tmp_path_factory) -> Iterator[Replicas]:
    """Both as an older release has them: nothing is said of peers."""
    system = System(cluster, tmp_path_factory.mktemp("replicas"))
    system.install()
    world = World(cluster, seaweed, system, "replicas")
    off = (QUICK, "--peers=false")
    operators = [
        system.add_operator("operator-0", extra=off),
        system.add_operator("operator-1", extra=off, primary=False),
    ]
    with ServiceDoor([grants_port(operator) for operator in operators]) as door:
        try:
            replicas = Replicas(world, door)
            replicas.add_agents(*(f"n{number}" for number in range(AGENTS)))
            yield replicas
        finally:
            world.close()


@pytest.fixture(scope="module")
def team(replicas: Replicas) -> str:
    return replicas.world.add_namespace("team")


@pytest.fixture
def store(replicas: Replicas) -> Iterator[FaultProxy]:
    host, _, port = replicas.world.store.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def model_bytes_served(store: FaultProxy) -> int:
    return sum(count for path, count in store.body_bytes.items() if "list-type" not in path)


def begin(world: World, team: str, seed: int, store: FaultProxy, **placement) -> dict[str, str]:
    name = f"m{seed}"
    expected = world.put_model(name, size_bytes=MODEL_BYTES, seed=seed)
    world.apply_version(team, name, name, endpoint=store.endpoint)
    world.apply_cache(team, name, name, **placement)
    return expected


def holders(world: World, expected: dict[str, str]) -> list[str]:
    return [node for node in world.nodes if expected in world.trees(node).values()]


def test_a_fleet_that_is_switched_on_bit_by_bit_always_gets_its_models(replicas, team, store):
    """New agents under an old operator, then an old agent among new ones."""
    world = replicas.world
    replicas.await_leader()
    expected = begin(world, team, 80, store, copies=AGENTS)
    world.wait_ready(team, "m80", copies=AGENTS, seconds=120)
    assert holders(world, expected) == world.nodes
    assert model_bytes_served(store) >= 0.99 * AGENTS * MODEL_BYTES, "each for itself"
    replicas.switch_on()
    replicas.add_agents("old", age="old", extra=("--peers=false",))
    store.reset_counts()
    expected = begin(world, team, 81, store, copies=AGENTS + 1)
    world.wait_ready(team, "m81", copies=AGENTS + 1, seconds=120)
    assert holders(world, expected) == world.nodes
    assert model_bytes_served(store) <= 2.3 * MODEL_BYTES, "one for the old, one for all others"
    assert not can_serve(world, world.nodes[-1])


def can_serve(world: World, node: str) -> bool:
    return "peer" in (world.cache_node(node) or {}).get("status", {})


def test_a_leader_that_is_killed_in_the_middle_of_a_cold_start_costs_at_most_a_second_copy(
    replicas, team, store
):
    world = replicas.world
    replicas.switch_on()
    leader = replicas.await_leader()
    store.script("model.safetensors", Fault(trickle=(256 * 1024, 0.03)))
    new = {"world": world.name, "agent": "new"}
    expected = begin(world, team, 82, store, copies=AGENTS, nodeSelector=new)
    world.wait(lambda: model_bytes_served(store) > MODEL_BYTES // 3, "a third of the source read")
    replicas.operators[leader].kill()
    assert replicas.await_leader(other_than=leader) != leader
    world.wait_ready(team, "m82", copies=AGENTS, seconds=120)
    assert model_bytes_served(store) <= 2 * MODEL_BYTES
    assert len(holders(world, expected)) == AGENTS
    replicas.operators[leader].start()
