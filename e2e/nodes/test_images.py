"""Our images, run by real nodes: what is in them, what is not, and a root that nobody can write."""

from __future__ import annotations

import secrets

import pytest

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.images.build import NAMES, built_archives, reference_of

pytestmark = pytest.mark.nodes

PYTHON = "/opt/modelcache/bin/python"
USERS = {"operator": 65532, "agent": 0}
UNWANTED_MODULES = ("pip", "setuptools", "wheel", "ensurepip", "torch")
UNWANTED_PROGRAMS = ("pip", "pip3", "apt-get", "dpkg", "gcc", "cc", "make", "curl", "wget", "perl")
# Files of the machine that built must not travel: neither settings of pip, nor what was copied.
UNWANTED_FILES = ("/etc/pip.conf", "/requirements.txt", "/wheel", "/source", "/strip.sh")

LOOK = f"""
import importlib.util, os, shutil
modules = [name for name in {UNWANTED_MODULES!r} if importlib.util.find_spec(name)]
programs = [name for name in {UNWANTED_PROGRAMS!r} if shutil.which(name)]
files = [name for name in {UNWANTED_FILES!r} if os.path.exists(name)]
assert not modules + programs + files, modules + programs + files
lines = open("/etc/ca-certificates.conf").read().split("\\n")
chosen = [line for line in lines if line and line[0] not in "#!"]
bundle = open("/etc/ssl/certs/ca-certificates.crt").read()
assert bundle.count("BEGIN CERTIFICATE") == len(chosen), "authorities of the machine that built"
print(os.getuid())
"""

WRITE = """
import pathlib, sys
try:
    pathlib.Path("/opt/modelcache/written").write_text("")
except OSError as error:
    print(error.strerror)
"""

# Names are imported on first use in more than one library; a stripped file would show only then.
IMPORT_ALL = """
import importlib, pkgutil, sys
for root in sys.argv[1:]:
    package = importlib.import_module(root)
    for module in pkgutil.walk_packages(package.__path__, root + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print("imported")
"""
PACKAGES = {
    "operator": ("modelcache_api", "modelcache_kube", "modelcache_operator"),
    "agent": ("modelcache_api", "modelcache_kube", "modelcache_agent"),
}


def build_pod(name, image, command, *, user):
    """A pod under `restricted`, as far as the image's own user allows it."""
    context = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": user != 0,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "securityContext": context,
        **command,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


@pytest.fixture(scope="module")
def loaded(own_nodes):
    try:
        archives = built_archives()
    except TestbedError as error:
        pytest.skip(str(error))
    for archive in archives:
        own_nodes.load_image(archive)
    return own_nodes


@pytest.fixture(scope="module")
def space(loaded):
    name = f"images-{secrets.token_hex(3)}"
    loaded.create_namespace(name)
    yield name
    loaded.delete_namespace(name)


@pytest.fixture
def run(loaded, space):
    def run_to_end(image, **command):
        """Run a container to its successful end and return what it printed."""
        pod = f"run-{secrets.token_hex(3)}"
        document = build_pod(pod, reference_of(image), command, user=USERS[image])
        loaded.apply([document], namespace=space)
        flags = (f"--namespace={space}", f"pod/{pod}", "--timeout=60s")
        try:
            loaded.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", *flags)
        except TestbedError as error:
            said = loaded.kubectl("logs", f"--namespace={space}", pod)
            raise AssertionError(f"{error}\n{said}") from None
        return loaded.kubectl("logs", f"--namespace={space}", pod)

    return run_to_end


@pytest.mark.parametrize(
    ("image", "arguments", "said"),
    [
        pytest.param("operator", ["--help"], "usage: modelcache-operator", id="operator"),
        pytest.param("agent", ["--help"], "usage: modelcache-agent", id="agent"),
        pytest.param("agent", ["csi", "--help"], "usage: ", id="volume driver"),
        pytest.param("agent", ["wait", "--help"], "usage: ", id="wait container"),
    ],
)
def test_the_program_starts_on_a_read_only_root(run, image, arguments, said):
    assert said in run(image, args=arguments)


@pytest.mark.parametrize("image", NAMES)
def test_nothing_is_in_it_that_the_program_does_not_need(run, image):
    assert run(image, command=[PYTHON, "-c", LOOK]).strip() == str(USERS[image])


@pytest.mark.parametrize("image", NAMES)
def test_every_module_can_be_imported(run, image):
    argv = [PYTHON, "-c", IMPORT_ALL, *PACKAGES[image]]
    assert run(image, command=argv).strip().endswith("imported")


@pytest.mark.parametrize("image", NAMES)
def test_the_root_cannot_be_written(run, image):
    said = run(image, command=[PYTHON, "-c", WRITE]).strip()
    assert said in {"Read-only file system", "Permission denied"}
