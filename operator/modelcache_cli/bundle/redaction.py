"""What must not leave the cluster, taken out of objects and logs. Pure.

Secrets are never read in the first place. This is about what people and programs write elsewhere:
signed addresses in messages, tokens in arguments and environments, keys in logs. When in doubt it
is taken out: who helps can ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REDACTED: Final = "<redacted>"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# Names under which secrets stand; not those of what only points to one.
_WORDS: Final = (
    r"(?:secret|token|passw(?:or)?d|passphrase|signature|authorization|cookie|"
    r"api[-_]?key|account[-_]?key|access[-_]?key|private[-_]?key|session[-_]?key|"
    r"x-amz-[a-z-]+{more})"
)
_ANY: Final = _WORDS.format(more="|credential")
# In a sentence, "credentials:" comes before what is wrong with them.
_IN_PROSE: Final = _WORDS.format(more="")
_POINTERS: Final = r"(?:refs?|names?|namespace|file|path|dir|mode|ttl|seconds|uri)"
_SECRET_NAME: Final = re.compile(rf"(?i)^(?!.*{_POINTERS}$).*{_ANY}.*$")


# A quoted value goes to its closing quote, which has as many backslashes as the opening one: JSON
# within JSON has more, be that on an indented line below. What is not closed goes to the end of its
# line.
_QUOTED: Final = (
    rf"(?P<quote>\\*[\"'])(?!{REDACTED}|(?P=quote))"
    r"(?:(?:.|\n(?=[ \t]))+?(?<!\\)(?P=quote)|.+$)"
)
_VALUE: Final = rf"(?:{_QUOTED}|(?!\\*[\"']|{REDACTED}|-\s)[^\s\"']+)"
_HIDDEN: Final = rf"\g<kept>\g<quote>{REDACTED}\g<quote>"


def _named(words: str, sign: str, start: str = "") -> re.Pattern[str]:
    """A value behind such a name."""
    return re.compile(
        rf"(?im)(?P<kept>(?<![\w-]){start}[\w-]*{words}(?![\w-]*{_POINTERS}\b)[\w-]*{sign}\s*)"
        rf"{_VALUE}"
    )


_PATTERNS: Final = (
    # PEM blocks of keys, with line ends as they are or as JSON writes them; to the end, where cut.
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        REDACTED,
    ),
    # Who an address is called as, and its query: that is where signatures are.
    (
        re.compile(r"(?P<kept>\b[a-zA-Z][a-zA-Z0-9+.-]{0,15}://)[^/\s\"'<>?#]*@"),
        rf"\g<kept>{REDACTED}@",
    ),
    (
        re.compile(r"(?P<kept>\b[a-zA-Z][a-zA-Z0-9+.-]{0,15}://[^\s\"'?]*)\?[^\s\"'<>]+"),
        rf"\g<kept>?{REDACTED}",
    ),
    (re.compile(r"(?i)(?P<kept>\b(?:bearer|basic)\s+)[a-z0-9+/=_.~-]{6,}"), rf"\g<kept>{REDACTED}"),
    # JSON web tokens, keys of AWS, tokens of the hub and of code hosts.
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?"), REDACTED),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), REDACTED),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk)[_-][A-Za-z0-9_-]{10,}"), REDACTED),
    # With scheme and parameters, whatever those are: to the end of the line, or of JSON's text.
    (
        re.compile(
            rf"(?im)(?P<kept>\bauthorization\\*[\"']?\s*[=:]\s*)(?:{_QUOTED}"
            rf"|(?!\\*[\"']|{REDACTED}|\s)"
            r"(?:(?!(?<!\\)\\*[\"']\s*(?:[}\]]|,\s*\\*[\"'{\[]|$)).)+)"
        ),
        _HIDDEN,
    ),
    (_named(_ANY, r"(?:\\*[\"']\s*[=:]|=)"), _HIDDEN),
    (_named(_IN_PROSE, r"\s*[=:]"), _HIDDEN),
    # Arguments, in a line or in a list.
    (_named(_ANY, r"(?:(?:\s|\\+n)+(?:-\s+)?|\\*[\"']\s*,)", start="--"), _HIDDEN),
)


# A block of YAML: the value stands in the lines below, indented.
_BLOCK: Final = re.compile(
    rf"(?i)(?<![\w-])[\w-]*{_ANY}(?![\w-]*{_POINTERS}\b)[\w-]*\\*[\"']?\s*:\s*[|>][-+\d]*\s*$"
)
# As JSON writes the end of a line; JSON within JSON has more backslashes.
_FOLDED: Final = re.compile(r"(?<!\\)\\+n")


def redact_text(text: str) -> str:
    """The text without what looks like a secret."""
    text = "\n".join(_hide_folded_blocks(line) for line in _hide_blocks(text, "\n").split("\n"))
    for pattern, kept in _PATTERNS:
        text = pattern.sub(kept, text)
    return text


def _hide_folded_blocks(line: str) -> str:
    for end in sorted(set(_FOLDED.findall(line))):
        line = _hide_blocks(line, end)
    return line


def _hide_blocks(text: str, end: str) -> str:
    """Of a block its first line tells how far it is indented; it ends with what is less."""
    kept: list[str] = []
    depth: int | None = None
    for line in text.split(end):
        indent = len(line) - len(line.lstrip(" \t"))
        if depth is not None and (not line.strip() or indent >= max(depth, 1)):
            if line.strip() and not depth:
                kept.append(f"{line[:indent]}{REDACTED}")
                depth = indent
            continue
        # Most lines have neither sign, and are many.
        depth = 0 if ("|" in line or ">" in line) and _BLOCK.search(line) else None
        kept.append(line)
    return end.join(kept)


def redact_object(value: Any) -> Any:
    """An object of the API, or a part of one, likewise; the book-keeping of applies goes too."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, list | tuple):
        return [
            REDACTED if _is_secret_flag(before) and isinstance(item, str) else redact_object(item)
            for before, item in zip((None, *value), value, strict=False)
        ]
    if not isinstance(value, Mapping):
        return value
    is_secret = value.get("kind") == "Secret"
    # Of an environment's or a header's entry.
    names_secret = isinstance(value.get("name"), str) and is_secret_name(value["name"])
    kept = {}
    for key, item in value.items():
        if key in {"managedFields", _LAST_APPLIED}:
            continue
        hidden = (
            (is_secret and key in {"data", "stringData"})
            or (names_secret and key == "value")
            or (is_secret_name(str(key)) and isinstance(item, str | bytes | int))
        )
        kept[key] = REDACTED if hidden else redact_object(item)
    return kept


def _is_secret_flag(argument: Any) -> bool:
    """True of `--password`, whose value is the next argument."""
    if not isinstance(argument, str) or not argument.startswith("-") or "=" in argument:
        return False
    return is_secret_name(argument.lstrip("-"))


def is_secret_name(name: str) -> bool:
    """True of names such as `AWS_SECRET_ACCESS_KEY`, not of `credentialsSecretRef`."""
    return _SECRET_NAME.match(name) is not None
