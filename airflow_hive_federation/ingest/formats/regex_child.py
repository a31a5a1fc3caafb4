"""Matches records against an expression in a process of its own, and gives up a record that takes too long.

Only a signal stops Python's ``re``, and signals arrive in the main thread of a process, which the package
does not own elsewhere. The process runs the source of this file alone, so the file imports no module of the
package.
"""

import contextlib
import json
import re
import resource
import signal
import sys

#: Limits the address space in bytes: an expression may keep hundreds of bytes per character for backtracking.
_MEMORY_BYTES = 4 << 30


class _Late(Exception):  # noqa: N818 - an order to stop
    pass


def _late(*_: object) -> None:
    raise _Late


def _groups(expression: "re.Pattern[str]", text: str, limit_s: float) -> object:
    """Return the groups of a match; ``None`` for no match, or the reason why the match was given up."""
    try:
        try:
            # The limit counts processor time, not clock time: so a busy machine makes no record a bad one.
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
            match = expression.fullmatch(text)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Late:
        return f"the expression takes more than {limit_s:g} s for it"
    except (MemoryError, RecursionError):
        return "the expression takes too much memory for it"
    return None if match is None else match.groups()


def main() -> None:
    """Read an expression and texts as JSON, and write the groups of each text as JSON."""
    request = json.load(sys.stdin)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.signal(signal.SIGVTALRM, _late)
    expression = re.compile(request["regex"], re.DOTALL)
    results: list[object] = []
    given_up = 0
    for text in request["texts"]:
        if given_up >= request["give_up_after"]:
            results.append(f"not tried: the expression took too long for {given_up} records before it")
            continue
        results.append(_groups(expression, text, request["limit_s"]))
        given_up += isinstance(results[-1], str)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
