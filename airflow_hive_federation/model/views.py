"""Rewrites views of the source for the target, whether Hive, Spark, Trino or Presto created them.

Hive executes ``viewExpandedText``, in which it has added every database's name, and keeps the user's text
beside it. Spark keeps the user's text, and in parameters ``view.catalogAndNamespace.*`` the database of names
without one (``CatalogTable.viewCatalogAndNamespace``). Trino and Presto keep encoded JSON in
``viewOriginalText`` (``io.trino.plugin.hive.ViewReaderUtil``).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Protocol

from airflow_hive_federation.errors import DumpCorruptError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.view_text import (
    NamesRead,
    Renaming,
    SqlContext,
    UnreadableViewError,
    names_read,
    normal_form,
    rewritten,
)

_NAMESPACE = "view.catalogAndNamespace."
#: The parameter of Spark 2 for the same database.
_DEFAULT_DATABASE = "view.default.database"
_DOUBLE_QUOTES = "view.sqlConfig.spark.sql.ansi.doubleQuotedIdentifiers"
_SPARKS_CATALOG = "spark_catalog"
#: A clause that uses a string as a name (``IDENTIFIER('db.t')``).
_NAME_OF_STRING = re.compile(r"\bidentifier\s*\(", re.IGNORECASE)
_TRINOS = "presto_view"
_TRINO_BEGIN, _TRINO_END = "/* Presto View: ", " */"


class View(Protocol):
    """The fields of a wire ``Table`` that define a view."""

    tableName: str | None
    parameters: dict[str, str] | None
    viewOriginalText: str | None
    viewExpandedText: str | None


def reason_to_leave_out(view: View, renaming: Renaming) -> str | None:
    """Return the reason why a view stays out of the replica; ``None`` if it can be rewritten.

    :param view: wire ``Table`` of the source.
    """
    try:
        _Rewriting(view, renaming).check()
    except UnreadableViewError as error:
        return str(error)
    return None


def rewrite_view(view: View, renaming: Renaming) -> None:
    """Replace names by those of the target in a view's texts and parameters.

    :param view: wire ``Table``; changed in place.
    :raises DumpCorruptError: if the view cannot be rewritten; a dump never has such a view.
    """
    try:
        rename_in_view(view, renaming)
    except UnreadableViewError as error:
        raise DumpCorruptError(
            f"View {view.tableName} cannot be given the names of the target: {error}.",
            remedy="Dump again with this version of the package.",
            table=view.tableName,
        ) from error


def rename_in_view(view: View, renaming: Renaming) -> None:
    """Replace names in a view's texts and parameters.

    :param view: wire ``Table``; changed in place, or not at all.
    :raises UnreadableViewError: if its text cannot be rewritten for certain.
    """
    result = _Rewriting(view, renaming).result()
    view.viewExpandedText, view.viewOriginalText, view.parameters = result


def read_by_view(view: View) -> NamesRead:
    """Return the names that a view's text reads.

    :param view: wire ``Table``.
    :raises UnreadableViewError: if the names cannot be found for certain.
    """
    return _Rewriting(view, Renaming(source_database="", target_database="")).names()


def text_claim(view: View) -> str:
    """Return the text that engines execute, in a form without differences in quotes, case and blanks.

    Failover and failback copy a view to the target and back, and may change its quotes.

    :param view: wire ``Table``.
    """
    if not _is_trinos(view):
        return normal_form(view.viewExpandedText or "", "hive")
    try:
        definition = _decoded(view.viewOriginalText or "")
    except UnreadableViewError:
        return str(view.viewOriginalText)
    return json.dumps(
        {**definition, "originalSql": normal_form(str(definition.get("originalSql")), "trino")},
        sort_keys=True,
    )


class _Rewriting:
    """The rewriting of one view: its texts and parameters with the target's names."""

    def __init__(self, view: View, renaming: Renaming) -> None:
        self._renaming = renaming
        self._is_trinos = _is_trinos(view)
        self._parameters: Mapping[str, str] = view.parameters or {}
        self._is_sparks = f"{_NAMESPACE}numParts" in self._parameters or _DEFAULT_DATABASE in self._parameters
        self._expanded: str | None = view.viewExpandedText
        self._original: str | None = view.viewOriginalText

    def check(self) -> None:
        """Rewrite only the text that may be unreadable, because each cycle checks each view."""
        if not self._renaming.changes_nothing and not (self._is_trinos or self._is_sparks):
            rewritten(self._expanded or "", self._renaming, SqlContext(dialect="hive"))
        else:
            self.result()

    def names(self) -> NamesRead:
        if self._is_trinos:
            definition = _decoded(self._original or "")
            sql, catalog, schema = (
                str(definition.get(key) or "") for key in ("originalSql", "catalog", "schema")
            )
            context = SqlContext(
                dialect="trino",
                catalogs=frozenset({catalog.lower()} - {""}),
                database=schema.lower() or None,
            )
            return names_read(sql, context)
        if not self._is_sparks:
            return names_read(self._expanded or "", SqlContext(dialect="hive"))
        self._check_spark(self._expanded or "")
        return names_read(self._expanded or "", self._sparks_context())

    def result(self) -> tuple[str | None, str | None, dict[str, str]]:
        parameters = dict(self._parameters)
        if self._renaming.changes_nothing:
            return self._expanded, self._original, parameters
        if self._is_trinos:
            return self._expanded, self._of_trino(self._original or ""), parameters
        if self._is_sparks:
            return self._of_spark()
        return (*self._of_hive(), parameters)

    # -- Hive ------------------------------------------------------------------------------------------

    def _of_hive(self) -> tuple[str | None, str | None]:
        """Return both texts; Hive removes quotes in the original text, which it never executes."""
        context = SqlContext(dialect="hive")
        expanded = rewritten(self._expanded or "", self._renaming, context)
        if self._original is None or self._original == self._expanded:
            return expanded, self._original and expanded
        try:
            return expanded, rewritten(self._original, self._renaming, context)
        except UnreadableViewError:
            return expanded, expanded

    # -- Spark -----------------------------------------------------------------------------------------

    def _of_spark(self) -> tuple[str | None, str | None, dict[str, str]]:
        parameters = dict(self._parameters)
        context = self._sparks_context()
        rewritten_texts: dict[str | None, str | None] = {}
        # Spark writes the same text into both fields, so that the set mostly has one text.
        for text in {self._expanded, self._original}:
            self._check_spark(text or "")
            rewritten_texts[text] = text and rewritten(text, self._renaming, context)
        if context.database == self._renaming.source_database:
            key = _DEFAULT_DATABASE if _DEFAULT_DATABASE in parameters else f"{_NAMESPACE}part.1"
            parameters[key] = self._renaming.target_database
        return rewritten_texts[self._expanded], rewritten_texts[self._original], parameters

    def _sparks_context(self) -> SqlContext:
        where = self._namespace()
        is_sparks = where[0].lower() == _SPARKS_CATALOG
        database = where[1] if is_sparks and len(where) == 2 else ""
        return SqlContext(
            dialect="spark",
            catalogs=frozenset({_SPARKS_CATALOG}),
            database=database.lower(),
            # Names of two parts belong to the catalog that was current as well.
            elsewhere="" if is_sparks else where[0].lower(),
        )

    def _namespace(self) -> list[str]:
        """Return the catalog and database of names without them."""
        if f"{_NAMESPACE}numParts" not in self._parameters:
            return [_SPARKS_CATALOG, self._parameters[_DEFAULT_DATABASE]]
        try:
            count = int(self._parameters[f"{_NAMESPACE}numParts"])
            return [self._parameters[f"{_NAMESPACE}part.{number}"] for number in range(count)] or [""]
        except (ValueError, KeyError) as error:
            raise UnreadableViewError(
                f"its parameters {_NAMESPACE}* are incomplete; create the view anew in Spark"
            ) from error

    def _check_spark(self, text: str) -> None:
        if self._parameters.get(_DOUBLE_QUOTES, "").lower() == "true" and '"' in text:
            raise UnreadableViewError(
                "its text was written with spark.sql.ansi.doubleQuotedIdentifiers and has double quotes; "
                "create the view anew with back-quotes"
            )
        if _NAME_OF_STRING.search(text):
            raise UnreadableViewError(
                "its text makes names of strings (IDENTIFIER); create the view anew with the names themselves"
            )

    # -- Trino -----------------------------------------------------------------------------------------

    def _of_trino(self, text: str) -> str:
        definition = _decoded(text)
        sql, catalog, schema = (definition.get(key) for key in ("originalSql", "catalog", "schema"))
        if not isinstance(sql, str):
            raise UnreadableViewError("its encoded definition has no originalSql; create the view anew")
        ours = self._renaming.source_database
        home = isinstance(catalog, str) and isinstance(schema, str) and schema.lower() == ours
        catalogs = frozenset({catalog.lower()} if home and isinstance(catalog, str) else ())
        # If the view was created in a session of another catalog, its catalog's name for our metastore is
        # unknown here.
        context = SqlContext(
            dialect="trino",
            catalogs=catalogs,
            database=ours if home else "",
        )
        new_sql = rewritten(sql, self._renaming, context)
        if new_sql != sql and not home:
            raise UnreadableViewError(
                f"it was made in a session of {catalog}.{schema}, whose names of two parts may be of another "
                "metastore; create the view anew in a session of its own schema"
            )
        changed = {**definition, "originalSql": new_sql}
        if home:
            changed["schema"] = self._renaming.target_database
        if isinstance(path := definition.get("path"), list):
            changed["path"] = [self._path_element(element, catalog) for element in path]
        return text if changed == definition else _encoded(changed)

    def _path_element(self, element: object, catalog: object) -> object:
        """Return an element of the path in which Trino looks for functions, with the target's schema."""
        if not isinstance(element, dict) or element.get("catalogName") != catalog:
            return element
        if str(element.get("schemaName", "")).lower() != self._renaming.source_database:
            return element
        return {**element, "schemaName": self._renaming.target_database}


def _is_trinos(view: View) -> bool:
    return str((view.parameters or {}).get(_TRINOS, "")).lower() == "true"


def _decoded(text: str) -> dict[str, object]:
    inside = text.removeprefix(_TRINO_BEGIN).removesuffix(_TRINO_END)
    try:
        definition = bounded_json.loads(base64.b64decode(inside, validate=True).decode())
    except (binascii.Error, ValueError) as error:
        raise UnreadableViewError(
            "its text is not a view as Trino encodes it (a materialized view is not replicated)"
        ) from error
    if not isinstance(definition, dict):
        raise UnreadableViewError("its encoded definition is no JSON object; create the view anew")
    return definition


def _encoded(definition: Mapping[str, object]) -> str:
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
    return f"{_TRINO_BEGIN}{base64.b64encode(text.encode()).decode()}{_TRINO_END}"
