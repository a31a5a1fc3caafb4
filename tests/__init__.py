"""Tests of the package; helpers that many of them share lie in ``tests.support``."""

import pytest

# Failures inside helpers show the values that were compared, as those of tests do.
pytest.register_assert_rewrite("tests.support")
