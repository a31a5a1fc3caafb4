"""Matches records against an expression, in a process of its own: what it takes too long for, it gives up.

Only a signal stops Python's ``re``, and signals belong to the main thread of a process, which the package has
not to itself elsewhere. The source of this file is all that the process runs, so it imports nothing of the
package.
"""

import contextlib
import json
import re
import resource
import signal
import sys
from typing import Any

#: Bytes of addresses: an expression may keep hundreds of bytes for each character that it may come back to.
_MEMORY_BYTES = 4 << 30


class _Late(Exception):  # noqa: N818 - an order to stop
    pass


def _late(*_: object) -> None:
    raise _Late


def _groups(expression: "re.Pattern[str]", text: str, limit_s: float) -> Any:
    """Return the groups; ``None`` if nothing matches, and the reason if that cannot be found out."""
    try:
        try:
            # Of the processor's time, not the clock's: a busy machine makes no record a bad one.
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
    """Read a question as JSON, write the answer as JSON."""
    asked = json.load(sys.stdin)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.signal(signal.SIGVTALRM, _late)
    expression = re.compile(asked["regex"], re.DOTALL)
    found: list[Any] = []
    given_up = 0
    for text in asked["texts"]:
        if given_up >= asked["give_up_after"]:
            found.append(f"not tried: the expression took too long for {given_up} records before it")
            continue
        found.append(_groups(expression, text, asked["limit_s"]))
        given_up += isinstance(found[-1], str)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
