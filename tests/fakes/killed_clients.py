"""Attaches in children of this process, of which many are killed in the middle of it.

    python killed_clients.py VOLUME COUNT SEED

A process of its own, so that it has no threads when it forks.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import warnings

import modelcache

AT_ONCE = 8


def live(volume: str, seed: int) -> None:
    """All that a client does, again and again."""
    chance = random.Random(seed)
    while True:
        with modelcache.attach(root=volume) as attachment:
            attachment.weights()
            version = attachment.version()
            if chance.random() < 0.5:
                version.index()
            with version.safetensors() as weights:
                for name in weights:
                    weights.raw(name)[:1] = b"!"
            if chance.random() < 0.3:
                return


def main(volume: str, count: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    chance = random.Random(seed)
    running: list[int] = []
    ends = {"killed": 0, "ended": 0}
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                live(volume, seed * count + number)
            finally:
                os._exit(0)
        running.append(pid)
        time.sleep(chance.random() * 0.01)
        while len(running) >= AT_ONCE or (number == count - 1 and running):
            victim = running.pop(chance.randrange(len(running)))
            os.kill(victim, signal.SIGKILL)
            _pid, status = os.waitpid(victim, 0)
            ends["killed" if os.WIFSIGNALED(status) else "ended"] += 1
    print(ends["killed"], ends["ended"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
