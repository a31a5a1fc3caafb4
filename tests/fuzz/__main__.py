"""``make fuzz``: each target for some minutes; ``ARGS="--targets events types --minutes 10"``.

A finding's input is kept in ``build/fuzz``, and ``ARGS="--targets events --input FILE"`` tries it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.targets import NAMES
from tests.fuzz.watching import Finding, watched

BUILD = Path(__file__).parents[2] / "build" / "fuzz"


def main(argv: list[str]) -> int:
    """Run the targets one after the other; 1 if any has a finding."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--targets", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**8)
    parser.add_argument("--input", type=Path, help="try this input alone")
    asked = parser.parse_args(argv)
    BUILD.mkdir(parents=True, exist_ok=True)
    bad = 0
    for name in asked.targets:
        more = ["--input", str(asked.input)] if asked.input else ["--seconds", str(asked.minutes * 60)]
        print(f"{name}: seed {asked.seed}", flush=True)
        result = watched(name, asked.seed, BUILD, more)
        if isinstance(result, Finding):
            bad += 1
            place = BUILD / f"{name}-{asked.seed}-{result.number}"
            place.write_bytes(result.data)
            print(f"{result.summary}\n{result.errors}\nIts input is {place}", flush=True)
        else:
            print(f"  {result}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
