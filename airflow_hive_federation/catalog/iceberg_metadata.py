"""Separates the errors of one Iceberg table's metadata from those of its catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import InvalidObjectError


@contextmanager
def metadata_checked(subject: str) -> Iterator[None]:
    """Translate the errors that concern one table's metadata, and nothing else of its catalog.

    The texts of pydantic's errors repeat parts of what they refuse. An answer of a REST catalog may contain
    credentials of the store, so only the places and the reasons are shown.

    :raises InvalidObjectError: the metadata cannot be read; ``reason`` says why, as a clause with the remedy.
    """
    from pydantic import ValidationError as RefusedValue
    from pyiceberg.exceptions import ValidationError

    try:
        yield
        return
    except FileNotFoundError:
        why, remedy = "its metadata file is missing", "restore the file, or drop the table at its catalog"
    except (ValidationError, RefusedValue, UnicodeDecodeError) as error:
        refused = error if isinstance(error, RefusedValue) else next(iter(error.args), None)
        if isinstance(refused, RefusedValue):
            first, *_ = refused.errors(include_url=False, include_input=False, include_context=False)
            place = ".".join(map(str, first["loc"]))
            detail = f"{place}: {first['msg']}" if place else str(first["msg"])
        else:
            # A text of pyiceberg may end with all of the metadata.
            detail = "no text" if isinstance(error, UnicodeDecodeError) else str(error).partition(": {")[0]
        why = f"pyiceberg cannot read its metadata ({detail})"
        remedy = "upgrade pyiceberg, or mend the table at its catalog"
    raise InvalidObjectError(
        f"Iceberg, {subject}: {why}.",
        remedy=f"{remedy[0].upper()}{remedy[1:]}.",
        reason=f"{why}; {remedy}",
    )
