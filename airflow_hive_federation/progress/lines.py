"""Writes events into the lines that a process prints, and reads them in the process that started it."""

from __future__ import annotations

import json
import logging

from airflow_hive_federation.progress.events import Event
from airflow_hive_federation.progress.observers import RECORD_EVENT
from airflow_hive_federation.progress.reading import event_of

#: The text before the event in a line.
_MARK = " HIVE_FEDERATION_EVENT "


class EventFormatter(logging.Formatter):
    """Formats records for the output of a job: the words, then the event as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        event = getattr(record, RECORD_EVENT, None)
        return text if event is None else f"{text}{_MARK}{json.dumps(event.to_json())}"


def event_in(line: str) -> Event | None:
    """Return the event of a line; ``None`` for a line without one, or with a damaged one.

    Other programs print lines into the same output, so that no line may raise an error.
    """
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        return event_of(json.loads(text))
    except (ValueError, RecursionError):
        return None
