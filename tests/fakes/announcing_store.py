"""A stand-in for a store whose listings announce checksums, as AWS does, in front of SeaweedFS.

SeaweedFS computes, keeps and states checksums, but its listings say nothing of them. Only those
words are added; every value is the real store's.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from urllib.parse import parse_qs, urlsplit

from fakes.fault_proxy import FaultProxy
from modelcache_testbed.bucket import Bucket

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_FIELD = "Checksum"


class AnnouncingStore(FaultProxy):
    """`with AnnouncingStore(bucket) as store:` its `endpoint` lists and serves the bucket."""

    def __init__(self, bucket: Bucket) -> None:
        host, _, port = bucket.store.endpoint.removeprefix("http://").partition(":")
        super().__init__((host, int(port)))
        self.bucket = bucket

    def edit(self, target: str, body: bytes) -> bytes:
        if "list-type" not in parse_qs(urlsplit(target).query):
            return body
        ET.register_namespace("", _NAMESPACE)
        document = ET.fromstring(body)
        for row in document.iter(f"{{{_NAMESPACE}}}Contents"):
            self._announce(row, row.findtext(f"{{{_NAMESPACE}}}Key"))
        return ET.tostring(document)

    def _announce(self, row: ET.Element, key: str) -> None:
        head = self.bucket.client.head_object(
            Bucket=self.bucket.name, Key=key, ChecksumMode="ENABLED"
        )
        kind = head.get("ChecksumType", "FULL_OBJECT")
        for name in head:
            if name.startswith(_FIELD) and name != "ChecksumType":
                ET.SubElement(row, "ChecksumAlgorithm").text = name.removeprefix(_FIELD)
                ET.SubElement(row, "ChecksumType").text = kind
