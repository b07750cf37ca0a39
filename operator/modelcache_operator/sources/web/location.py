"""What an `https://` URI names: pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from modelcache_api.keys import describe_unsafe_path
from modelcache_api.web_address import WEB_ADDRESS, quote_path, unquote_path
from modelcache_operator.sources.origin import Origin, origin_of

_ADDRESS: Final = re.compile(WEB_ADDRESS)


@dataclass(frozen=True, slots=True)
class WebLocation:
    """One file or a folder of a server. `folder_url` ends with a slash.

    `file_name` is None for a folder.
    """

    origin: Origin
    folder_url: str
    file_name: str | None

    def url_of(self, path: str) -> str:
        """The address of a file by its path below the folder."""
        return f"{self.folder_url}{quote_path(path)}"


def parse_web_uri(uri: str) -> WebLocation:
    """What follows the last slash is the file; a slash at the end makes it a folder.

    Raises:
        ValueError: it is not such a URI, or could be read in more than one way.
    """
    origin = origin_of(uri) if _ADDRESS.fullmatch(uri) else None
    if origin is None:
        raise ValueError(
            "source.uri must be https://host/path with the host in lower case, without user, query "
            f"and needless escapes: {uri[:200]!r}"
        )
    folder_url, _, name = uri.rpartition("/")
    _, _, folder = folder_url.partition("://")
    try:
        path = unquote_path("/".join(part for part in (folder.partition("/")[2], name) if part))
    except ValueError:
        raise ValueError(f"source.uri is not escaped as UTF-8: {uri[:200]!r}") from None
    why = describe_unsafe_path(path) if path else None
    if why is not None or "//" in uri.partition("://")[2]:
        raise ValueError(f"source.uri must have no empty, . or .. part: {uri[:200]!r}")
    file_name = path.rpartition("/")[2] if name else None
    return WebLocation(origin, f"{folder_url}/", file_name)
