"""What kubectl asks when TAB is pressed: `kubectl_complete-modelcache WORDS...`, on PATH.

kubectl passes the words after the plugin's name, the last of them the one that is being written,
and reads one candidate a line, the last line being a number of its own completion library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from modelcache_cli.__main__ import PROGRAM, app

# The candidates are all there is; or the shell completes names of files.
_NO_FILES: Final = ":4"
_FILES: Final = ":0"


def complete(words: Sequence[str]) -> str:
    """The candidates for the last word, and what they stand for."""
    *before, begun = words or ("",)
    command, given = _descend(typer.main.get_command(app), before)
    context = command.make_context(PROGRAM, [], resilient_parsing=True)
    option = _find_option(command, given[-1]) if given else None
    if option is not None and not option.is_flag:
        candidates = option.shell_complete(context, begun)
        return _tell(candidates, _NO_FILES if candidates else _FILES)
    if begun.startswith("-") or hasattr(command, "commands"):
        return _tell(command.shell_complete(context, begun), _NO_FILES)
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    turn = len(list(_list_positional(command, given)))
    candidates = arguments[turn].shell_complete(context, begun) if turn < len(arguments) else ()
    return _tell(candidates, _NO_FILES)


def _descend(command: Any, words: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The innermost command that the words name, and the words behind its name."""
    for number, word in enumerate(words):
        inner = (getattr(command, "commands", None) or {}).get(word)
        if inner is not None:
            return _descend(inner, words[number + 1 :])
    return command, words


def _find_option(command: Any, word: str) -> Any:
    options = (one for one in command.params if one.param_type_name == "option")
    return next((one for one in options if word in one.opts), None)


def _list_positional(command: Any, given: Sequence[str]) -> Iterator[str]:
    """The words that are neither options nor their values."""
    is_value = False
    for word in given:
        if is_value:
            is_value = False
        elif word.startswith("-"):
            option = _find_option(command, word)
            is_value = option is not None and not option.is_flag
        else:
            yield word


def _tell(candidates: Sequence[Any], directive: str) -> str:
    lines = (f"{one.value}\t{one.help}" if one.help else one.value for one in candidates)
    return "".join(f"{line}\n" for line in lines) + f"{directive}\n"


def main() -> None:
    """Entry point."""
    sys.stdout.write(complete(sys.argv[1:]))


if __name__ == "__main__":
    main()
