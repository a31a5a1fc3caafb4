"""A process of the fuzzer tries inputs of one target within bounds of memory, and notes each before."""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import mmap
import random
import resource
import struct
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.mutations import Mutator
from tests.fuzz.targets import Target, target
from tests.support.process_memory import peak_memory_bytes

#: Of addresses (allocators take more than they use), and of memory in use.
ADDRESS_BYTES, MEMORY_BYTES = 8 << 30, 1 << 30
NOTE_BYTES = 1 << 22
#: Bytes of an input that is kept for further ones, at most.
KEPT_BYTES = 1 << 16
_HEAD = struct.Struct("!QI")


class Note:
    """The number of an input, and the input, where the parent finds them when this process is gone."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        if write:
            path.write_bytes(bytes(NOTE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), NOTE_BYTES)

    def write(self, number: int, data: bytes) -> None:
        self._map[: _HEAD.size] = _HEAD.pack(number, len(data))
        self._map[_HEAD.size : _HEAD.size + len(data)] = data

    def read(self) -> tuple[int, bytes]:
        number, length = _HEAD.unpack(self._map[: _HEAD.size])
        return number, bytes(self._map[_HEAD.size : _HEAD.size + length])


class Lines:
    """The lines of a target's modules that were reached."""

    def __init__(self, modules: Any) -> None:
        self._files = {sys.modules[name].__file__ for name in modules}
        self._seen: set[tuple[str, int]] = set()
        self._fresh = 0

    def reached(self, target: Target, data: bytes) -> tuple[int, Exception | None]:
        """Try an input; return how many lines are new, and the error if there was one.

        Tracing takes most of the time of a long input, and one that is not kept needs none.
        """
        self._fresh = 0
        if self._files and len(data) < KEPT_BYTES:
            sys.settrace(self._call)
        try:
            target.run(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
            return self._fresh, error
        finally:
            sys.settrace(None)
        return self._fresh, None

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and place not in self._seen:
            self._seen.add(place)
            self._fresh += 1
        return self._line


def main(argv: list[str]) -> int:
    """Try the wanted number of inputs, or until the time is over; 1 at the first finding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--note", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--inputs", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--memory-bytes", type=int, default=MEMORY_BYTES)
    parser.add_argument("--input", type=Path, help="try this one and no other")
    asked = parser.parse_args(argv)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    fuzzed, note = target(asked.target), Note(asked.note, write=True)
    lines = Lines(fuzzed.TRACED)
    corpus = list(fuzzed.SEEDS)
    mutator = Mutator(random.Random(asked.seed), fuzzed.TOKENS)
    until = time.monotonic() + asked.seconds
    number = 0
    while number < asked.inputs and time.monotonic() < until:
        # The seeds themselves first.
        if asked.input:
            data = asked.input.read_bytes()
        else:
            data = fuzzed.SEEDS[number] if number < len(fuzzed.SEEDS) else mutator.made(corpus)
        number += 1
        note.write(number, data)
        fresh, error = lines.reached(fuzzed, data)
        if not _is_in_order(fuzzed, error, asked.memory_bytes):
            print(json.dumps({"inputs": number, "kept": len(corpus), "digest": _digest(data)}), flush=True)
            return 1
        if fresh:
            corpus.append(data)
        if asked.input:
            break
    print(
        json.dumps({"inputs": number, "kept": len(corpus), "megabytes": peak_memory_bytes() >> 20}),
        flush=True,
    )
    return 0


def _is_in_order(target: Target, error: Exception | None, memory_bytes: int) -> bool:
    if error is not None and not isinstance(error, target.ALLOWED):
        traceback.print_exception(error)
        return False
    if peak_memory_bytes() > memory_bytes:
        print(f"{peak_memory_bytes()} bytes of memory are in use", file=sys.stderr)
        return False
    return True


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
