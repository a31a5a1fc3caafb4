"""Hive's own replication suite, re-enacted: see README.md."""

import pytest

# A scenario that fails says what it found.
pytest.register_assert_rewrite(__name__)
