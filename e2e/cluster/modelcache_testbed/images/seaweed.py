"""The object store as an image, so that it can run inside a cluster of real nodes."""

from __future__ import annotations

from modelcache_testbed.images.archive import SmallImage
from modelcache_testbed.programs import weed

SEAWEED_IMAGE = "modelcache.io/testbed/seaweedfs:1"


def seaweed_image() -> SmallImage:
    """Return the image; its program is static and needs nothing but a folder for scratch files."""
    return SmallImage(
        SEAWEED_IMAGE,
        {"usr/bin/weed": weed().read_bytes()},
        ("/usr/bin/weed",),
        folders=("tmp", "data"),
    )
