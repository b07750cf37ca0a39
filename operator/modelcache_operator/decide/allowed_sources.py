"""Which sources the administrator allows: pure, over names and addresses already resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from modelcache_api.egress import Danger, find_danger
from modelcache_api.names import Scheme

_WEB_PORTS: Final = {Scheme.HTTP.value: ":80", Scheme.HTTPS.value: ":443"}


class AllowRule(BaseModel):
    """One permission. A source is covered if its namespace, URI and endpoint all match."""

    # A misspelt field would silently allow more than was meant.
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid"
    )

    namespaces: tuple[str, ...] = ("*",)
    # What is read without TLS, an administrator has to say.
    uri_prefixes: tuple[str, ...] = tuple(
        scheme.prefix for scheme in Scheme if scheme is not Scheme.HTTP
    )
    endpoints: tuple[str, ...] = ("*",)
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class AllowList:
    """The administrator's rules. Without any, all endpoints but loopback are allowed."""

    rules: tuple[AllowRule, ...] = (AllowRule(),)


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What a version wants to read from where. `host` may carry a port."""

    namespace: str
    uri: str
    host: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What connections for a source may lead to, once its names are resolved."""

    may_reach_loopback: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and what would help."""

    message: str


def parse_allow_list(document: object) -> AllowList:
    """The rules of a parsed YAML or JSON file; an empty file means the default.

    Raises:
        ValueError: it is not a list of rules.
    """
    if document is None:
        return AllowList()
    if not isinstance(document, list):
        raise ValueError("the allow-list must be a list of rules")  # noqa: TRY004 - one error
    return AllowList(tuple(AllowRule.model_validate(item) for item in document))


def decide_reach(allow_list: AllowList, request: SourceRequest) -> Reach | Refusal:
    """Whether any rule covers the source, and what its connections may then lead to."""
    covering = [rule for rule in allow_list.rules if _covers(rule, request)]
    if not covering:
        return Refusal(
            f"no rule of the administrator's allow-list covers {request.uri[:200]!r} at "
            f"{request.host!r} for namespace {request.namespace!r}: ask for one"
        )
    return Reach(may_reach_loopback=any(rule.loopback for rule in covering))


def describe_refused_address(address: str, reach: Reach) -> str | None:
    """Why no connection may lead to the address, or None. Unparsable addresses are refused."""
    danger = find_danger(address)
    if danger is Danger.NOT_AN_ADDRESS:
        return f"{address[:80]!r} is not an address"
    if danger is Danger.METADATA:
        return (
            f"{address} is a link-local or metadata address; these are always refused: "
            "name the server's own address in source.endpoint or source.uri"
        )
    if danger is Danger.NO_HOST:
        return f"{address} is not the address of a host: correct source.endpoint or source.uri"
    if danger is Danger.LOOPBACK and not reach.may_reach_loopback:
        return (
            f"{address} is a loopback address; these are refused unless a rule of the "
            "administrator's allow-list with `loopback: true` covers the source"
        )
    return None


def _covers(rule: AllowRule, request: SourceRequest) -> bool:
    host = request.host.lower()
    without_port = host.rpartition(":")[0] if _has_port(host) else host
    return (
        _matches_any(request.namespace, rule.namespaces)
        and any(is_below(request.uri, prefix) for prefix in rule.uri_prefixes)
        and any(_matches_any(form, rule.endpoints) for form in (host, without_port))
    )


def _matches_any(text: str, globs: Sequence[str]) -> bool:
    # Brackets are those of IPv6 addresses, not sets of characters.
    return any(fnmatchcase(text, glob.replace("[", "[[]")) for glob in globs)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]") and ":" in host


def is_below(uri: str, prefix: str) -> bool:
    """`s3://b/exp` covers `s3://b/exp` and `s3://b/exp/x`, and not `s3://b/exp2`.

    `hf://org/name` covers all revisions of that repository; `https://host` all of that server, and
    nothing at another port.
    """
    uri, prefix = _one_spelling(uri), _one_spelling(prefix)
    folder = prefix if prefix.endswith("/") else f"{prefix}/"
    if uri.startswith(folder) or uri.rstrip("/") == prefix.rstrip("/"):
        return True
    return prefix.startswith(Scheme.HUB.prefix) and uri.startswith(f"{prefix}@")


def _one_spelling(uri: str) -> str:
    """A web server's address with its host in lower case and without the scheme's own port."""
    scheme, _, rest = uri.partition("://")
    port = _WEB_PORTS.get(scheme.lower())
    if port is None:
        return uri
    authority, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{authority.lower().removesuffix(port)}{slash}{path}"
