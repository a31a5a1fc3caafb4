"""Hive's own replication suite, re-enacted: see README.md."""

from pathlib import Path

import pytest

# A failing scenario shows its differences.
pytest.register_assert_rewrite(
    *(f"{__name__}.{path.stem}" for path in sorted(Path(__file__).parent.glob("[a-z]*.py")))
)
