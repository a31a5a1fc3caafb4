"""Maps each table of a dump to its directories and files on the target. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_hive_federation.acid.names import ACID_VERSION
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.metadata import locations
from airflow_hive_federation.replication.metadata.definitions import (
    definition_digest,
    target_table,
    with_honest_statistics,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.filesystem import join, join_below

#: Hidden directory beside the ACID directories; Hive's readers pass over names that begin with ``_``.
STAGE = "_hive_federation"


@dataclass(frozen=True, kw_only=True)
class TargetLayout:
    """Translates locations of the source into those of the target.

    :param policy: names the bases for external tables and functions.
    :param managed: URI of the directory of the target database's managed tables.
    """

    policy: ReplicationPolicy
    managed: str

    def directory(self, document: TableDocument, location: str, partition: str) -> str:
        """Return the URI of a table's or partition's directory on the target.

        :param document: the table's document in the dump.
        :param location: URI of the directory on the source.
        :param partition: name of the partition, empty for the table itself.
        """
        name = document.name
        if document.kind is TableKind.EXTERNAL:
            return locations.external_location(
                location,
                self.policy.external_base,
                table=name,
                prefix=self.policy.external_prefix,
                authority=self.policy.external_authority,
            )
        root = locations.managed_table_location(self.managed, name)
        if not partition:
            return root
        return locations.partition_location(location, document.location, root, partition)

    def file(self, document: TableDocument, file: VisibleFile) -> str:
        """Return the URI of a file on the target."""
        return join_below(self.directory(document, file.directory, file.partition), file.target_path)

    def item(self, document: TableDocument, file: VisibleFile, target: str | None = None) -> CopyItem:
        """Return the copy item of a file.

        :param target: URI to copy it to, if that is not :meth:`file`: in a hidden directory one level deeper.
        """
        inside = locations.relative_to(file.directory, document.location)
        below = inside.count("/") + 1 if inside else 0
        levels = file.path.count("/") + 1 + below
        # A streaming writer appends to its file; all other files of a transaction stay as they are.
        is_final = document.kind.transactional and not (file.filtered or file.side_file)
        return CopyItem(
            source=document.copied_uri(file),
            target=target or self.file(document, file),
            size_bytes=file.size_bytes,
            visible_write_ids=document.write_ids_text if file.filtered else None,
            kept=file.kept or None,
            source_levels=levels,
            target_levels=levels + bool(target),
            content=ACID_VERSION if file.empty_base else None,
            modified_ns=file.modified_ns if is_final else 0,
        )

    def table(self, document: TableDocument, parameters: Mapping[str, str]) -> types.Table:
        """Return the wire ``Table`` that the target gets.

        :param parameters: the policy's markers.
        """
        location = self.directory(document, document.location, "") if document.location else None
        target = target_table(
            document.table,
            database=self.policy.target_database,
            location=location,
            parameters=parameters,
            table_names=self.policy.table_names,
        )
        target.parameters = {**(target.parameters or {}), markers.DEFINITION: definition_digest(target)}
        return with_honest_statistics(target, document.write_ids)

    def resources(self, function: str, uris: Sequence[str]) -> list[str]:
        """Return the URIs of a function's jars and files on the target, in the same order.

        Those that have one file name get directories of their own.

        :param uris: their URIs on the source.
        :raises ConfigurationError: the function or a file has a name that leads elsewhere.
        """
        different = dict.fromkeys(uris)
        names = Counter(uri.rpartition("/")[2] for uri in different)
        places = {
            uri: self._resource(function, uri, number if names[uri.rpartition("/")[2]] > 1 else 0)
            for number, uri in enumerate(different, start=1)
        }
        return [places[uri] for uri in uris]

    def _resource(self, function: str, uri: str, number: int) -> str:
        name = uri.rpartition("/")[2]
        root = join(self.policy.functions_directory, self.policy.target_database)
        if "/" in function:
            raise ConfigurationError(
                f"{function!r} is no name of a function: its jars would be another one's.",
                remedy="Find out who wrote it into the metastore or the dump.",
                function=function,
            )
        directory = join_below(root, function)
        return join_below(join(directory, f"resource-{number}") if number else directory, name)


def final_uri(uri: str) -> str:
    """Return the final URI of a file that was copied to a hidden directory."""
    return uri.replace(f"/{STAGE}/", "/")
