"""A stand-in for the hub: its real routes, headers and refusals, for the hub's real client.

Large files are redirected to a second server, the CDN, on another port: it wants a signature, knows
no tokens and refuses whoever brings one. Nothing here is the hub's own code or service.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Self
from urllib.parse import quote, unquote

from fakes.hub_http import Asked, LoopbackServer, Told, ranged
from fakes.hub_repositories import Blob, Repository

_KEY = b"the key of the CDN"


class Cdn(LoopbackServer):
    """Serves bodies by their sha256 to whoever has a signature that is still good."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(self._serve)
        self.clock = clock
        self.lifetime_seconds = 3600.0
        self.generation = 0
        self.bodies: dict[str, bytes] = {}

    def sign(self, blob: Blob) -> str:
        self.bodies.setdefault(blob.sha256, blob.body)
        expires = int(self.clock() + self.lifetime_seconds)
        signature = self._signature(blob.sha256, expires)
        query = f"Expires={expires}&Policy=e30_&Signature={signature}&Key-Pair-Id=K1"
        return f"{self.url}/repos/{blob.sha256}?{query}"

    def end_all(self) -> None:
        """All signatures given out so far are worth nothing any more."""
        self.generation += 1

    def _signature(self, name: str, expires: int) -> str:
        text = f"{name} {expires} {self.generation}".encode()
        return hmac.new(_KEY, text, "sha256").hexdigest()

    def _serve(self, asked: Asked) -> Told:
        name = asked.path.rpartition("/")[2]
        expires = int(asked.query.get("Expires", "0"))
        if "authorization" in asked.headers:
            return _xml(400, "InvalidArgument")
        is_signed = asked.query.get("Signature") == self._signature(name, expires)
        if not is_signed or self.clock() > expires:
            return _xml(403, "AccessDenied")
        # 64 hex characters that are not the file's sha256, as the real one has.
        etag = f'"{hashlib.sha256(name.encode()).hexdigest()}"'
        if asked.headers.get("if-match", etag) != etag:
            return _xml(412, "PreconditionFailed")
        return ranged(asked, self.bodies[name], {"ETag": etag})


class HubServer(LoopbackServer):
    """The hub's own host. `tokens` are those it knows, whatever they may see."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(self._serve)
        self.cdn = Cdn(clock)
        self.repositories: dict[str, Repository] = {}
        self.renamed: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.page_files = 1000
        self.prefix = ""
        self.next_page_host: str | None = None

    def __enter__(self) -> Self:
        self.cdn.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.cdn.__exit__(*error)

    def add(self, name: str, files: dict[str, bytes], **about) -> Repository:
        """A repository with one commit on `main`. `admitted` tokens are known ones."""
        repository = self.repositories[name] = Repository(name, **about)
        repository.commit(files)
        self.tokens |= repository.admitted
        return repository

    def asked(self, method: str = "", part: str = "") -> list[Asked]:
        return [one for one in self.requests if method in one.method and part in one.path]

    def _serve(self, asked: Asked) -> Told:
        if not asked.raw_path.startswith(f"{self.prefix}/"):
            return Told(404, b"not here")
        path = asked.raw_path[len(self.prefix) :]
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self.tokens:
            return _refuse(401, "", "Invalid credentials in Authorization header")
        for old, new in self.renamed.items():
            for place in (f"/api/models/{old}/", f"/{old}/resolve/"):
                if path.startswith(place):
                    # The query is lost on the way, which is the worst that may happen.
                    return Told(307, headers={"Location": path.replace(old, new, 1)})
        return self._route(asked, path, token)

    def _route(self, asked: Asked, path: str, token: str) -> Told:
        if path.startswith("/api/resolve-cache/models/"):
            return self._cached(asked, path.removeprefix("/api/resolve-cache/models/"), token)
        if path.startswith("/api/models/"):
            return self._api(asked, path.removeprefix("/api/models/"), token)
        name, found, rest = path.removeprefix("/").partition("/resolve/")
        if not found:
            return Told(404, b"<html>no such page</html>", {"Content-Type": "text/html"})
        return self._resolve(name, rest, token)

    def _find(self, name: str, token: str) -> Repository | Told:
        repository = self.repositories.get(name)
        if repository is None or (repository.is_private and token not in repository.admitted):
            if token:
                return _refuse(404, "RepoNotFound", "Repository not found")
            return _refuse(401, "RepoNotFound", "Invalid username or password.")
        if repository.is_disabled:
            return _refuse(403, "", "Access to this resource is disabled.")
        return repository

    def _api(self, asked: Asked, path: str, token: str) -> Told:
        for route, answer in (("/revision/", self._info), ("/tree/", self._tree)):
            name, found, revision = path.partition(route)
            if not found:
                continue
            repository = self._find(name, token)
            if isinstance(repository, Told):
                return repository
            commit = repository.find_commit(unquote(revision))
            if commit is None:
                return _refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return answer(asked, repository, commit)
        return Told(404, b"{}")

    def _info(self, asked: Asked, repository: Repository, commit: str) -> Told:
        names = [{"rfilename": path} for path in repository.commits[commit]]
        if asked.query.get("blobs") in ("true", "True"):
            listed = repository.tree(commit)
            names = [{**row, "rfilename": row["path"]} for row in listed if row["type"] == "file"]
        about = {
            "id": repository.name,
            "modelId": repository.name,
            "sha": commit,
            "private": repository.is_private,
            "gated": "manual" if repository.is_gated else False,
            "disabled": False,
            "tags": [],
            "siblings": names,
        }
        return _json(about)

    def _tree(self, asked: Asked, repository: Repository, commit: str) -> Told:
        entries = repository.tree(commit)
        if asked.query.get("recursive") not in ("true", "True", "1"):
            entries = [entry for entry in entries if "/" not in entry["path"]]
        start = int(asked.query.get("cursor", "0"))
        end = start + self.page_files
        headers = {}
        if end < len(entries):
            host = self.next_page_host or self.url
            more = f"{host}{asked.raw_path}?recursive=true&expand=false&limit=1000&cursor={end}"
            headers["Link"] = f'<{more}>; rel="next"'
        return _json(entries[start:end], headers)

    def _resolve(self, name: str, rest: str, token: str) -> Told:
        found = self._open(name, rest, token)
        if isinstance(found, Told):
            return found
        commit, path, blob = found
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not blob.is_large:
            cached = f"{self.prefix}/api/resolve-cache/models/{name}/{commit}/{quote(path)}"
            location = (
                f"{cached}?{quote(f'/{name}/resolve/{rest}', safe='')}=&etag=%22{blob.oid}%22"
            )
            return Told(307, headers={**headers, "Location": location})
        linked = {"X-Linked-Size": str(blob.size), "X-Linked-Etag": f'"{blob.sha256}"'}
        location = self.cdn.sign(blob)
        body = f"Found. Redirecting to {location}".encode()
        return Told(302, body, {**headers, **linked, "Location": location, "Vary": "Origin"})

    def _cached(self, asked: Asked, path: str, token: str) -> Told:
        parts = path.split("/")
        where = next(index for index, part in enumerate(parts) if len(part) == 40)
        found = self._open("/".join(parts[:where]), "/".join(parts[where:]), token)
        if isinstance(found, Told):
            return found
        commit, _, blob = found
        return ranged(asked, blob.body, {"ETag": f'"{blob.oid}"', "X-Repo-Commit": commit})

    def _open(self, name: str, rest: str, token: str) -> tuple[str, str, Blob] | Told:
        """(commit, path, blob) of `<revision>/<path>`, for whoever may read it."""
        revision, _, path = rest.partition("/")
        repository = self._find(name, token)
        if isinstance(repository, Told):
            return repository
        if repository.is_gated and token not in repository.admitted:
            message = f"Access to model {name} is restricted."
            return _refuse(403 if token else 401, "GatedRepo", message)
        commit = repository.find_commit(unquote(revision))
        if commit is None:
            return _refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        blob = repository.commits[commit].get(unquote(path))
        if blob is None:
            return _refuse(404, "EntryNotFound", "Entry not found")
        return commit, unquote(path), blob


def _json(document: object, headers: dict[str, str] | None = None) -> Told:
    body = json.dumps(document).encode()
    return Told(200, body, {"Content-Type": "application/json", **(headers or {})})


def _refuse(status: int, code: str, message: str) -> Told:
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return Told(status, json.dumps({"error": message}).encode(), headers)


def _xml(status: int, code: str) -> Told:
    return Told(status, f"<Error><Code>{code}</Code></Error>".encode())
