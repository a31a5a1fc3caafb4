"""Sets the number of examples of tests with random input.

With ``HIVE_FEDERATION_EXAMPLES=1000`` each of Hypothesis' tests tries so many examples, and each test that
draws from seeds of its own so many seeds.
"""

from __future__ import annotations

import os

from hypothesis import settings

_ASKED = int(os.environ.get("HIVE_FEDERATION_EXAMPLES", "0"))
#: The number of examples of a test that sets none.
DEFAULT = _ASKED or settings.default.max_examples


def examples(count: int) -> settings:
    """Decorates a test of Hypothesis: ``count`` examples, unless the environment sets another number."""
    return settings(max_examples=_ASKED or count)


def seeds(count: int) -> range:
    """Seeds of a test that draws by itself: ``count`` of them, unless the environment sets more."""
    return range(max(count, _ASKED))
