"""Pods of a canary's track: which are Ready, and which of them show the canary of now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from modelcache_api.names import Reason, Track
from modelcache_operator.decide.world import CacheNodeView, NodeName, PodView, Uid

FindCacheNode = Callable[[NodeName], CacheNodeView | None]


@dataclass(frozen=True, slots=True)
class CanaryPods:
    """Living pods of the canary's track; those that are being deleted take no traffic any more.

    `others` are those of `ready` of which no agent says that they show the canary: they show
    another version, or a volume that no agent knows of. `cold` are those whose warm-up has not
    succeeded, and `warm_up_failure` names a pod whose warm-up has failed, and how.
    """

    total: int = 0
    ready: int = 0
    others: int = 0
    cold: int = 0
    warm_up_failure: str | None = None

    @property
    def are_fit(self) -> bool:
        """True if each of them is Ready and shows the canary; also if there are none."""
        return self.ready - self.others == self.total

    @property
    def ends_by_itself(self) -> bool:
        """True if what keeps them from being fit may pass without help."""
        return self.warm_up_failure is None and not self.others

    def describe(self) -> tuple[Reason, str]:
        """Why they are not fit: the warm-up, the version, or simply not Ready."""
        ready = f"{self.ready} of {self.total} pods of the canary are Ready"
        if self.warm_up_failure is not None:
            message = f"{ready}; the warm-up of pod {self.warm_up_failure}"
            return Reason.CANARY_WARM_UP_FAILED, message
        cold = f", {self.cold} are being warmed up" if self.cold else ""
        others = (
            f", and {self.others} of these show another version, or none that an agent knows of: "
            "restart them, unless their node's agent is still to be upgraded"
            if self.others
            else ""
        )
        return Reason.CANARY_PODS_NOT_READY, ready + cold + others


def count_canary_pods(
    pods: Iterable[PodView], canary: Uid | None, find_cache_node: FindCacheNode
) -> CanaryPods:
    """The pods of one ModelCache, beside the version that is its canary now.

    The label says the track, and a pod keeps the version that it began with: only the agent of its
    node knows which that is.
    """
    living = [
        pod
        for pod in pods
        if pod.track == Track.CANARY and not pod.is_over and not pod.is_terminating
    ]
    ready = [pod for pod in living if pod.is_ready]
    failures = sorted((p.key.name, p.warm_up_failure) for p in living if p.warm_up_failure)
    return CanaryPods(
        total=len(living),
        ready=len(ready),
        others=sum(not _shows(pod, canary, find_cache_node) for pod in ready),
        cold=sum(pod.is_cold for pod in living),
        warm_up_failure=": ".join(failures[0]) if failures else None,
    )


def _shows(pod: PodView, canary: Uid | None, find_cache_node: FindCacheNode) -> bool:
    """Only the agent of the pod's own node is asked: another one cannot know, and could lie."""
    seen = find_cache_node(pod.node) if pod.node is not None else None
    told = seen.status.canary_pods if seen is not None else ()
    return any((row.uid, row.version) == (pod.uid, canary) for row in told)
