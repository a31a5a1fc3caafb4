"""A process that has the code of a worker loaded, and forks for each call of it.

A test ends the workers in the middle of their work; each of them would otherwise import the package anew.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Runs the worker with arguments, and returns the exit code of its process, which is negative for a signal.
Run = Callable[[Sequence[str]], int]


@contextmanager
def forking(module: str) -> Iterator[Run]:
    """Start the process.

    :param module: the module whose function ``worker`` takes the arguments of a call.
    """
    with subprocess.Popen(
        [sys.executable, "-m", __name__, module],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def run(arguments: Sequence[str]) -> int:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(list(arguments)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, "the process has died"
            return int(line)

        yield run


def serve(module: str) -> None:
    """Fork for each line of the input, a list of arguments, until it ends; print the exit code of each."""
    worker = importlib.import_module(module).worker
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                worker(json.loads(line))
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
