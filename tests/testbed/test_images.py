"""Images without a registry: what is written, and what of this machine goes into a build."""

import io
import json
import tarfile

import pytest

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.images import base, build
from modelcache_testbed.images.archive import SmallImage

IMAGE = SmallImage(
    "example/tool:1", {"bin/tool": b"#!"}, ("/bin/tool",), links={"bin/alias": "tool"}
)


def members(archive):
    with tarfile.open(archive) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened if entry.isfile()}


def blob(files, descriptor):
    return files[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]


def test_a_small_image_is_whole(tmp_path):
    IMAGE.write(tmp_path / "image.tar")
    files = members(tmp_path / "image.tar")
    entry = json.loads(files["index.json"])["manifests"][0]
    manifest = json.loads(blob(files, entry))
    config = json.loads(blob(files, manifest["config"]))
    layer = blob(files, manifest["layers"][0])
    with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
        assert opened.getmember("bin/tool").mode == 0o755
        assert opened.getmember("bin/alias").linkname == "tool"
    assert entry["annotations"]["io.containerd.image.name"] == "example/tool:1"
    assert config["config"]["Entrypoint"] == ["/bin/tool"]
    assert len(layer) == manifest["layers"][0]["size"]


def test_the_same_image_is_the_same_bytes(tmp_path):
    IMAGE.write(tmp_path / "a.tar")
    IMAGE.write(tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_only_settings_of_pip_that_hold_in_a_build_go_into_the_base(monkeypatch):
    monkeypatch.setattr(base, "_from_pip", lambda: {"cert": "/home/me/ca.pem", "timeout": "60"})
    settings = base._pip_settings({"PIP_FIND_LINKS": "/wheels", "PIP_RETRIES": "9", "HOME": "/"})
    assert settings == {"cert": f"/{base._AUTHORITIES}", "timeout": "60", "retries": "9"}


def test_images_that_were_not_built_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MODELCACHE_CACHE_DIR", str(tmp_path))
    with pytest.raises(TestbedError, match="not built yet: operator, agent; run `make images`"):
        build.built_archives()


@pytest.mark.parametrize("name", build.NAMES)
class TestDockerfile:
    def text(self, name):
        return (build._ROOT / f"Dockerfile.{name}").read_text()

    def test_it_has_the_base_as_its_one_source(self, name):
        text = self.text(name)
        assert f"ARG BASE={build.BASE}\n" in text
        sources = [line.split()[1] for line in text.splitlines() if line.startswith("FROM ")]
        assert set(sources) == {"${BASE}", "scratch"}

    def test_it_installs_what_is_locked_and_checked(self, name):
        installs = [line for line in self.text(name).splitlines() if "pip install" in line]
        assert installs
        assert all("--require-hashes" in line or "--no-index" in line for line in installs)

    def test_it_copies_nothing_that_the_context_leaves_out(self, name):
        allowed = {
            line[1:]
            for line in (build._ROOT / ".dockerignore").read_text().splitlines()
            if line.startswith("!")
        }
        copied = [
            source
            for line in self.text(name).splitlines()
            if line.startswith("COPY ") and "--from" not in line
            for source in line.split()[1:-1]
        ]
        assert copied
        assert {source.split("/")[0] for source in copied} <= allowed
