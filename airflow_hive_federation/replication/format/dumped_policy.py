"""Defines the policy of a replication as the manifest of a dump records it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields, JsonObject
from airflow_hive_federation.replication.policy import ReplicationPolicy

_TEXT = json_values.or_none(json_values.text)


@dataclass(frozen=True, kw_only=True)
class DumpedPolicy:
    """The policy by which a dump was written; other versions of this package may have other fields.

    :param external_base: URI of the directory for external tables on the target.
    :param external_prefix: URI of a directory of the source; locations below it land below the base.
    :param external_authority: the source's store is part of the path below the base.
    :param functions_directory: URI of the directory for the jars of functions.
    :param table_names: names on the target, by names on the source.
    :param settings: all fields as they were written.
    """

    source_database: str
    external_base: str | None = None
    external_prefix: str | None = None
    external_authority: bool = False
    functions_directory: str = ""
    table_names: Mapping[str, str] = field(default_factory=dict)
    settings: JsonObject = field(default_factory=dict)

    @classmethod
    def of(cls, policy: ReplicationPolicy) -> DumpedPolicy:
        """Return the record of a policy: its fields, and the directory of its functions."""
        return cls.from_json({**policy.to_json(), "functions_directory": policy.functions_directory})

    @classmethod
    def from_json(cls, value: object) -> DumpedPolicy:
        """Read a policy.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        dump_root = fields.optional("dump_root", json_values.text, default="")
        # Dumps of versions whose policies shared one directory lack ``functions_directory``.
        root = fields.optional("functions_root", _TEXT, default=None) or f"{dump_root.rstrip('/')}/functions"
        return cls(
            source_database=fields.needed("source_database", json_values.text),
            external_base=fields.optional("external_base", _TEXT, default=None),
            external_prefix=fields.optional("external_prefix", _TEXT, default=None),
            external_authority=fields.optional("external_authority", json_values.flag, default=False),
            functions_directory=fields.optional("functions_directory", _TEXT, default=None) or root,
            table_names=fields.optional(
                "table_names", json_values.map_of(json_values.text, json_values.text), default={}
            ),
            settings=json_values.json_object(value),
        )

    def to_json(self) -> JsonObject:
        return self.settings
