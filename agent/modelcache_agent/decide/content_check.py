"""Whether the bytes under a weights file's name are weights at all. Pure.

It sees the file through a small reader, so it needs neither the disk nor the whole file. Messages
name the kind that was found, because the server that loads the file later would only say that a
header is too large.
"""

from __future__ import annotations

import re
from typing import Final

from modelcache_api.safetensors_format import LENGTH_BYTES, MAX_HEADER_BYTES, header_length
from modelcache_api.safetensors_header import Read, describe_safetensors_fault
from modelcache_api.weights_names import SAFETENSORS, is_weights_name

SNIFF_BYTES: Final = 512
# These formats have a first word that every valid file carries.
_MAGIC: Final = {".gguf": (b"GGUF", b"FUGG")}

_LFS_POINTER: Final = re.compile(rb"\Aversion https?://[^\n]{1,200}/spec/v\d[^\n]{0,40}\n")
_HTML: Final = re.compile(
    rb"\A(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_XML: Final = re.compile(rb"\A(?:<\?xml[^>]{0,200}\?>\s*)?<([A-Za-z][\w:.-]{0,63})[\s/>]")
# Raw weights may begin with any bytes by chance; a document has no control characters.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_CHUNK_FRAME: Final = re.compile(rb"\A[0-9A-Fa-f]{1,16}(?:;chunk-signature=[0-9a-f]{1,64}|)\r\n")
_BOM: Final = b"\xef\xbb\xbf"


def describe_foreign_content(head: bytes) -> str | None:
    """What a weights file's first bytes are instead of weights, or None if nothing is known.

    `head` is the beginning of the file, at least SNIFF_BYTES of it or all.
    """
    text = head[:SNIFF_BYTES].removeprefix(_BOM).lstrip()
    if _LFS_POINTER.match(text):
        return "a Git LFS pointer, not the file it points to"
    if _HTML.match(text):
        return "an HTML page"
    found = _XML.match(text)
    if found is not None and not _CONTROL.search(text):
        name = found.group(1).decode("ascii", "replace")
        return "an S3 XML error body" if name == "Error" else f"an XML document <{name}>"
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip-compressed data"
    if _CHUNK_FRAME.match(head):
        return "a body with aws-chunked upload framing inside"
    return None


def header_bytes_needed(path: str, size_bytes: int, head: bytes) -> int:
    """How many of the file's first bytes `describe_content_fault` will look at, at most."""
    if not path.lower().endswith(SAFETENSORS) or size_bytes < LENGTH_BYTES:
        return min(size_bytes, SNIFF_BYTES)
    length = header_length(head)
    if length > MAX_HEADER_BYTES:
        return min(size_bytes, SNIFF_BYTES)
    return min(size_bytes, max(SNIFF_BYTES, LENGTH_BYTES + length))


def describe_content_fault(  # noqa: PLR0911 - a ladder of early returns
    path: str, size_bytes: int, read: Read
) -> str | None:
    """Why the file cannot be the weights its name promises, or None.

    One sentence without the path. Files whose names promise no weights are never refused.
    """
    if not is_weights_name(path):
        return None
    if size_bytes == 0:
        return "it is empty"
    head = read(0, min(size_bytes, SNIFF_BYTES))
    foreign = describe_foreign_content(head)
    if path.lower().endswith(SAFETENSORS):
        fault = describe_safetensors_fault(size_bytes, read)
        if fault is None:
            return None
        return fault if foreign is None else f"it is {foreign}"
    if foreign is not None:
        return f"it is {foreign}"
    for suffix, magics in _MAGIC.items():
        if path.lower().endswith(suffix) and not head.startswith(magics):
            return f"it does not begin as a {suffix} file does"
    return None
