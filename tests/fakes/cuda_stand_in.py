"""The stand-in driver: compiled with the machine's C compiler, loaded by the real bindings.

The bindings look libcuda.so.1 and libnvidia-ml.so.1 up as any program does, so a process that is
started with LD_LIBRARY_PATH finds the stand-ins. Scenes run in such processes, and never in that
of the tests.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "cuda_driver"
LIBRARIES = {"libcuda.so.1": "libcuda.c", "libnvidia-ml.so.1": "libnvml.c"}


def compile_stand_in(folder: Path) -> Path:
    """The folder with both libraries. A missing compiler fails the test: nothing is skipped."""
    compiler = shutil.which("cc")
    assert compiler, "the tests of the GPU tier need a C compiler: install gcc"
    for name, source in LIBRARIES.items():
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{name}"]
        subprocess.run(
            [compiler, *flags, "-o", folder / name, SOURCES / source, "-lpthread", "-ldl"],
            check=True,
        )
    return folder


def break_libraries(folder: Path) -> Path:
    """The folder with libraries that cannot be loaded, whatever the machine itself has."""
    for name in LIBRARIES:
        (folder / name).write_bytes(b"")
    return folder


def environment_with(libraries: Path, *, cuda: str = "", nvml: str = "") -> dict[str, str]:
    """Of a process whose driver is there. `cuda` and `nvml` script the stand-ins."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries),
        "PYTHONPATH": str(HERE.parent),
        "STANDIN_CUDA": cuda,
        "STANDIN_NVML": nvml,
    }


def play(libraries: Path, scene: str, *arguments: object, **scripts: str):
    """What a scene of `cuda_scenes.py` returns."""
    environment = environment_with(libraries, **scripts)
    done = subprocess.run(
        [sys.executable, "-m", "fakes.cuda_scenes", scene, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def live_objects() -> dict[str, int]:
    """What this process has not given back to the stand-in, by kind."""
    counts = (ctypes.c_longlong * 6)()
    ctypes.CDLL("libcuda.so.1").standin_live(counts)
    kinds = ("memory", "mappings", "addresses", "pins", "streams", "contexts")
    return dict(zip(kinds, counts, strict=True))
