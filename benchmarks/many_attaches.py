"""Many simulated attaches under each simple policy: seconds, attaches a second, peak memory.

`make nightly`, or `python benchmarks/many_attaches.py 100000`. The trace is synthetic and streamed.
"""

from __future__ import annotations

import resource
import sys
import time

from modelcache_agent.decide.policies import find_policy
from modelcache_simulator.catalogue import Relation, draw_sizes, load_catalogue
from modelcache_simulator.replay import NodePlan, replay
from modelcache_simulator.sessions import follow_sessions
from modelcache_simulator.synthetic import Shape, make_requests

MODELS = 1000
POLICIES = ("lru", "fifo", "lfu", "gdsf", "value")


def main() -> int:
    attaches = int(sys.argv[1])
    each = attaches // len(POLICIES)
    catalogue = load_catalogue(None)
    names = {f"m{number:04d}": MODELS - number for number in range(MODELS)}
    sizes = draw_sizes(names, catalogue.sizes, Relation.INDEPENDENT, seed=0)
    plan = NodePlan({"host": sum(sizes.values()) // 3}, sizes, catalogue.costs)
    shape = Shape(models=MODELS, requests=each, mean_seconds=10, shift_seconds=7 * 86_400.0)
    for policy in POLICIES:
        begun = time.perf_counter()
        # A gap of no idleness: every request is an attach unless the model is in use.
        events = follow_sessions(make_requests(shape, seed=0), idle_seconds=0.0)
        seen = replay(events, plan, find_policy(policy)).summarise()
        seconds = time.perf_counter() - begun
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{policy:<6} {seen.attaches} attaches in {seconds:.1f} s "
            f"({seen.attaches / seconds:.0f} a second), peak {memory:.0f} MiB",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
