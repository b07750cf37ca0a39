"""A serving process: it loads each version of its volume, and answers by the one a key goes to.

    python both_versions.py FOLDER < commands > answers

Threads answer requests all the time. Each line of commands is answered by one line of JSON: `load`
loads what is new and lets go of what leaves, `split N` tells who takes N keys, `end` ends it.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections import Counter
from hashlib import sha256

import modelcache

THREADS = 4


class Server:
    def __init__(self, folder: str) -> None:
        self.attachment = modelcache.attach(root=folder, timeout=60)
        self.loaded: dict[str, str] = {}
        self.answered = 0
        self.errors: Counter[str] = Counter()
        self.canaries: set[str] = set()
        self.stop = threading.Event()
        self.load()

    def load(self) -> None:
        for name, version in self.attachment.versions().items():
            if version.is_leaving:
                self.loaded.pop(name, None)
                version.close()
            elif name not in self.loaded:
                with version.safetensors() as weights:
                    data = b"".join(bytes(weights.raw(one)) for one in sorted(weights))
                self.loaded[name] = sha256(data).hexdigest()

    def answer(self, key: str) -> str:
        """The name of the version that took the request."""
        loaded = self.loaded
        version = self.attachment.choose_version(key, among=loaded)
        assert loaded[version.name]
        return version.name

    def serve(self, number: int) -> None:
        turn = 0
        while not self.stop.is_set():
            turn += 1
            try:
                self.answer(f"{number}-{turn}")
            except Exception as error:  # noqa: BLE001 - each is a request that failed
                self.errors[repr(error)] += 1
            self.answered += 1
            self.stop.wait(0.001)

    def split(self, count: int) -> dict:
        """Who takes the keys; whether those that the canary had before stayed there."""
        taken = {f"key-{n}": self.answer(f"key-{n}") for n in range(count)}
        own = self.attachment.version().name
        canaries = {key for key, name in taken.items() if name != own}
        before, self.canaries = self.canaries, canaries
        return {
            "counts": Counter(taken.values()),
            "isMonotone": before <= canaries or canaries <= before,
        }

    def tell(self) -> dict:
        return {
            "loaded": self.loaded,
            "weights": dict(self.attachment.weights()),
            "answered": self.answered,
            "errors": self.errors,
            "misses": self.attachment.misses,
            "fallbacks": self.attachment.fallbacks,
        }


def main(folder: str) -> None:
    warnings.simplefilter("ignore")
    server = Server(folder)
    threads = [threading.Thread(target=server.serve, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        command, *rest = line.split()
        said = {}
        if command == "load":
            server.load()
        elif command == "split":
            said = server.split(int(rest[0]))
        elif command == "end":
            break
        print(json.dumps(server.tell() | said), flush=True)
    server.stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps(server.tell()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
