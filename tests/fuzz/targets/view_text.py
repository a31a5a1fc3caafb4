"""Texts of views in three dialects: rewritten, as they are, or left out with a reason."""

from __future__ import annotations

from airflow_hive_federation.model.view_text import (
    Renaming,
    SqlContext,
    UnreadableViewError,
    names_read,
    normal_form,
    rewritten,
)

ALLOWED = (UnreadableViewError,)
TRACED = (
    "airflow_hive_federation.model.view_text",
    "airflow_hive_federation.model.view_tree",
    "airflow_hive_federation.model.reference_scan",
)
INPUTS = 700
SEEDS = [
    b"\0SELECT `t`.`a` FROM `s`.`t` WHERE `t`.`b` IN (SELECT `x` FROM `s`.`u`)",
    b"\1WITH c AS (SELECT * FROM s.t) SELECT c.a, s.f(b) FROM c JOIN s.u ON c.a = u.a",
    b'\2SELECT "a", EXTRACT(YEAR FROM b) FROM hive.s.t TABLESAMPLE BERNOULLI (10) GROUP BY 1',
    b"\0SELECT explode(a) FROM s.t LATERAL VIEW explode(b) x AS y UNION ALL SELECT 1",
]
TOKENS = [
    *(
        b"s.",
        b" FROM ",
        b"(",
        b")",
        b",",
        b"SELECT ",
        b"'",
        b"`",
        b'"',
        b" JOIN ",
        b" t ",
        b"--",
        b"/*",
        b".",
    ),
    *(b" CASE WHEN ", b" END ", b" OVER (", b"[", b"]", b"::", b" WITH ", b"{{", b"IDENTIFIER('s.t')"),
]
_DIALECTS = ("hive", "spark", "trino")
_RENAMING = Renaming(source_database="s", target_database="far", tables={"t": "new t"})


def run(data: bytes) -> None:
    """Rewrite a text of the dialect that the first byte names."""
    dialect, text = _DIALECTS[(data[0] if data else 0) % 3], data[1:].decode("utf-8", "replace")
    context = SqlContext(
        dialect=dialect, catalogs=frozenset({"hive"}), database="s" if len(data) % 2 else None
    )
    normal_form(text, dialect)
    rewritten(text, _RENAMING, context)
    names_read(text, context)
