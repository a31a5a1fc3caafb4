"""Writes this package's errors as text, and restores their types from another process's log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_hive_federation import errors
from airflow_hive_federation.errors import HiveFederationError, SparkJobError

#: Beginning of the line in which a job reports its result or its error.
RESULT_MARK = "HIVE_FEDERATION_RESULT "

#: Greatest number of failed files that a combined error names.
_NAMED_FAILURES = 100

_REMEDY = "Look further up in the job's log; Spark's own settings are those of the connection and of `conf`."


def error_to_json(error: HiveFederationError) -> dict[str, Any]:
    """Return an error's class, text and facts as JSON values; facts of other types become text."""
    facts = json.loads(json.dumps(error.facts, default=str))
    return {"type": type(error).__name__, "message": error.message, "remedy": error.remedy, "facts": facts}


def error_from_json(values: Mapping[str, Any]) -> HiveFederationError:
    """Return the error that :func:`error_to_json` wrote; an unknown class becomes a SparkJobError."""
    kind = getattr(errors, str(values.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, HiveFederationError)):
        kind = SparkJobError
    facts = {str(key): value for key, value in (values.get("facts") or {}).items()}
    for reserved in ("message", "remedy", "self"):
        facts.pop(reserved, None)
    return kind(str(values.get("message", "")), remedy=str(values.get("remedy", "")), **facts)


def result_line(result: Mapping[str, Any]) -> str:
    """Return the line that reports a job's result."""
    return RESULT_MARK + json.dumps({"result": result}, sort_keys=True)


def error_line(error: HiveFederationError) -> str:
    """Return the line that reports a job's error."""
    return RESULT_MARK + json.dumps({"error": error_to_json(error)}, sort_keys=True)


def read_result(text: str) -> dict[str, Any]:
    """Return the result from a text that holds a line of :func:`result_line` or :func:`error_line`.

    :raises HiveFederationError: the line reports this error.
    :raises SparkJobError: the text holds no such line, or a damaged one.
    """
    start = text.rfind(RESULT_MARK)
    try:
        report, _ = json.JSONDecoder().raw_decode(text, start + len(RESULT_MARK)) if start >= 0 else ({}, 0)
    except ValueError as error:
        raise SparkJobError("The job's result line is damaged.", remedy=_REMEDY) from error
    if "error" in report:
        raise error_from_json(report["error"])
    if "result" not in report:
        raise SparkJobError("The job reported no result.", remedy=_REMEDY)
    result: dict[str, Any] = report["result"]
    return result


def combined(failures: Sequence[HiveFederationError]) -> HiveFederationError:
    """Return one error for all failed files: the first of the gravest kind, with the number of the others."""
    first = min(failures, key=_gravity)
    if len(failures) == 1:
        return first
    kinds = sorted({type(failure).__name__ for failure in failures})
    facts = {
        **first.facts,
        "failures": len(failures),
        "failed_paths": [str(failure.facts.get("path", "")) for failure in failures[:_NAMED_FAILURES]],
    }
    others = len(failures) - 1
    message = (
        f"{first.message} ({others} more {'file' if others == 1 else 'files'} failed: {', '.join(kinds)}.)"
    )
    return type(first)(message, remedy=first.remedy, **facts)


def from_spark(error: Exception) -> HiveFederationError:
    """Return the error that a task has reported, or else a SparkJobError with Spark's innermost cause."""
    text = str(error)
    if RESULT_MARK in text:
        try:
            read_result(text)
        except HiveFederationError as reported:
            return reported
    return SparkJobError(f"Spark: {_innermost(text)}", remedy=_REMEDY)


def _gravity(error: HiveFederationError) -> int:
    # Errors that a retry cannot fix come first.
    return int(error.retryable)


def _innermost(text: str) -> str:
    """Return the last line of a Python traceback, else the last cause, else the first line of the text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    python = [line for line in raised if not re.match(r"(java|scala|org|py4j)\.", line)]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return next(iter([*python[-1:], *causes[-1:], *lines[:1]]), "no message")
