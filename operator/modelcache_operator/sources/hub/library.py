"""The hub's own client, as far as we use it. All calls block and need a conversation in force."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final
from urllib.parse import urljoin

from huggingface_hub import HfApi, constants, get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.hf_api import RepoFile

from modelcache_api import names
from modelcache_operator.sources.hub.location import is_repository

_VERSION: Final = version("modelcache")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class OddAnswerError(Exception):
    """The answer is not that of a hub."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file as a commit's tree names it. `sha256` is None for what lies in git itself."""

    path: str
    size_bytes: int
    blob_id: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where the hub sends a reader of a file: another server, or itself (`url` as asked for)."""

    url: str
    size_bytes: int | None
    commit: str | None


def default_endpoint() -> str:
    """The library's own default: the public hub, or HF_ENDPOINT of the operator's environment."""
    return constants.ENDPOINT


class HubLibrary:
    """Calls as one identity. The token is a parameter of each: none is looked for anywhere."""

    def __init__(self, endpoint_url: str, token: str | None) -> None:
        self._endpoint = endpoint_url
        self._token: str | bool = token if token is not None else False
        self._api = HfApi(
            endpoint_url,
            self._token,
            library_name=names.MANAGER_OPERATOR,
            library_version=_VERSION,
        )

    def find_commit(self, repository: str, revision: str) -> tuple[str, str]:
        """The repository's name and the commit that the revision is, both as they are now.

        Raises:
            OddAnswerError: the answer names none.
        """
        try:
            found = self._api.model_info(repository, revision=revision)
        except _PARSING_ERRORS as error:
            raise OddAnswerError from error
        name, commit = found.id, found.sha
        if not isinstance(name, str) or not is_repository(name):
            raise OddAnswerError
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise OddAnswerError
        return name, commit

    def list_files(self, repository: str, commit: str) -> Iterator[ListedFile]:
        """All files of the commit, page by page.

        Raises:
            OddAnswerError: the answer is no such list.
        """
        try:
            for entry in self._api.list_repo_tree(repository, recursive=True, revision=commit):
                if isinstance(entry, RepoFile):
                    yield _read_entry(entry)
        except _PARSING_ERRORS as error:
            raise OddAnswerError from error

    def locate(self, repository: str, commit: str, path: str) -> Whereabouts:
        """Ask where the file is read, without reading it."""
        url = self.address(repository, commit, path)
        found = get_hf_file_metadata(url, token=self._token, endpoint=self._endpoint)
        return Whereabouts(urljoin(url, found.location), found.size, found.commit_hash)

    def address(self, repository: str, commit: str, path: str) -> str:
        """The hub's own address of the file."""
        return hf_hub_url(repository, path, revision=commit, endpoint=self._endpoint)

    def read(self, repository: str, commit: str, path: str) -> bytes:
        """The file's bytes; the connection bounds them."""
        headers = {} if self._token is False else {"Authorization": f"Bearer {self._token}"}
        return get_session().get(self.address(repository, commit, path), headers=headers).content

    def read_part(
        self, repository: str, commit: str, path: str, wanted: str
    ) -> tuple[int, str, bytes]:
        """Status, Content-Range and body of the answer to a Range; the connection bounds it."""
        headers = {"Range": wanted}
        if self._token is not False:
            headers["Authorization"] = f"Bearer {self._token}"
        answer = get_session().get(self.address(repository, commit, path), headers=headers)
        return answer.status_code, answer.headers.get("content-range", ""), answer.content


_PARSING_ERRORS: Final = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


def _read_entry(entry: RepoFile) -> ListedFile:
    """Nothing of it is believed before it is looked at: the library takes what it gets."""
    size = entry.lfs.size if entry.lfs is not None else entry.size
    sha256 = entry.lfs.sha256 if entry.lfs is not None else None
    is_sound = (
        isinstance(entry.path, str)
        and isinstance(size, int)
        and size >= 0
        and isinstance(entry.blob_id, str)
        and _COMMIT.fullmatch(entry.blob_id) is not None
        and (sha256 is None or (isinstance(sha256, str) and bool(_SHA256.fullmatch(sha256))))
    )
    if not is_sound:
        raise OddAnswerError
    return ListedFile(entry.path, size, entry.blob_id, sha256)
