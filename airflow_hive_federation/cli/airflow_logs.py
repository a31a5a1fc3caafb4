"""Airflow's logging, made fit for a command: it would write to stdout, where results belong."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from airflow_hive_federation.cli.story import Story, is_count

_WARNINGS = frozenset({"warning", "error", "critical"})


def retell(story: Story) -> None:
    """Let a story tell the counts that our hooks log, and what is warned of; nothing else is shown.

    Of spark-submit's many lines only the counts are for a user; the others are in the error if it fails.
    """
    import structlog

    # Importing it configures Airflow's logging, which must not happen after ours.
    from airflow.providers.common.compat.sdk import redact

    def tell(_logger: Any, level: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        text = str(redact(str(entry.get("event", ""))))
        if is_count(text) or level in _WARNINGS:
            story.hear(text)
        raise structlog.DropEvent

    structlog.configure(processors=[tell], cache_logger_on_first_use=False)
    logging.getLogger("airflow.task").handlers.clear()
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s", force=True
    )
