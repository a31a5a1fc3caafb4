"""Inputs made of other inputs: changed, cut, doubled, joined, and blown up."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Bytes of an input at most, but for those that are blown up.
LONGEST = 4096
_BLOWN_UP = 200_000


class Mutator:
    """Makes inputs.

    :param chance: where randomness comes from.
    :param tokens: what is put in, beside random bytes.
    """

    def __init__(self, chance: random.Random, tokens: Sequence[bytes]) -> None:
        self._chance = chance
        self._tokens = [
            *tokens,
            b"\0",
            b"\xff",
            b"\x7f",
            b"\x80",
            b"0",
            b"-1",
            b"9" * 30,
            b"\xff" * 9 + b"\x01",
        ]

    def made(self, corpus: Sequence[bytes]) -> bytes:
        """Make an input of those that are there."""
        data = bytearray(self._chance.choice(corpus))
        for _ in range(self._chance.choice((1, 1, 2, 3, 6))):
            self._changed(data, corpus)
        if self._chance.random() < 0.02:
            return self._blown_up(bytes(data))
        return bytes(data[:LONGEST])

    def _changed(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        chance = self._chance
        at = chance.randrange(len(data) + 1)
        length = chance.choice((0, 1, 1, 2, 4, 8, 32))
        kind = chance.randrange(7)
        if kind == 0:
            data[at : at + length] = chance.choice(self._tokens)
        elif kind == 1:
            data[at:at] = chance.choice(self._tokens)
        elif kind == 2:
            data[at : at + length] = chance.randbytes(length)
        elif kind == 3:
            del data[at : at + length]
        elif kind == 4:
            data[at:at] = data[at : at + length] * chance.choice((1, 2, 3, 16))
        elif kind == 5:
            other = chance.choice(corpus)
            start = chance.randrange(len(other) + 1)
            data[at:] = other[start:]
        elif data:
            data[at % len(data)] ^= 1 << chance.randrange(8)

    def _blown_up(self, data: bytes) -> bytes:
        at = self._chance.randrange(len(data) + 1)
        piece = self._chance.choice([data[at : at + self._chance.randrange(1, 9)], *self._tokens]) or b"["
        return data[:at] + piece * (self._chance.choice((100, 5000, _BLOWN_UP)) // len(piece) + 1) + data[at:]
