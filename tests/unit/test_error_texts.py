"""The text of an error: its message, a full stop, and the remedy."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError, divided


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("It is gone", "It is gone."),
        ("It is gone.", "It is gone."),
        ("line 1: no 'SELEC'", "line 1: no 'SELEC'."),
        ('no "b"', 'no "b".'),
        ("it failed (3)", "it failed (3)."),
        ("found <EOF>", "found <EOF>."),
        ("Is it there?", "Is it there?"),
        ("", ""),
    ],
)
def test_a_message_ends_before_its_remedy(message: str, shown: str) -> None:
    error = ConfigurationError(message, remedy="Look.")
    assert str(error) == f"{shown} Remedy: Look."
    assert divided(str(error)) == (shown, "Look.")
    assert str(ConfigurationError(message)) == message
