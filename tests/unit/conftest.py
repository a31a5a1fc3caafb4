"""Fixtures of the unit tests."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def nothing_masked() -> None:
    """Let each module begin without the secrets of others, which Airflow masks until the process ends."""
    masker = sys.modules.get("airflow.sdk._shared.secrets_masker")
    if masker is not None:
        masker.reset_secrets_masker()
