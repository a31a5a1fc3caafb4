"""Brings the permanent functions of the target to the state of an increment's dump."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import Manifest
from airflow_hive_federation.replication.replica.functions import (
    converge_functions,
    function_claim,
    function_items,
    target_function,
)
from airflow_hive_federation.replication.replica.layout import TargetLayout

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class TargetFunctions:
    """The functions of the target database.

    :param client: client of the target.
    """

    def __init__(
        self, client: MetastoreClient, layout: TargetLayout, directory: DumpDirectory, manifest: Manifest
    ) -> None:
        self._client = client
        self._layout = layout
        self._policy = layout.policy
        self._database = layout.policy.target_database
        self._directory = directory
        self._manifest = manifest

    def copy_items(self) -> Iterator[CopyItem]:
        """Yield the jars and files that may be missing on the target, or may differ there."""
        for function in self._to_copy():
            yield from function_items(function, self._layout)

    def converge(self) -> None:
        """Create, alter and drop functions until the target has those of the dump."""
        functions = [target_function(function, self._layout) for function in self._functions()]
        converge_functions(self._client, self._database, functions, kept=self._kept())

    def _functions(self) -> list[types.Function]:
        return list(self._directory.functions())

    def _to_copy(self) -> list[types.Function]:
        if self._manifest.functions_changed or not self._manifest.is_increment:
            return self._functions()
        present = {
            function.functionName: function_claim(function)
            for function in self._client.get_functions(self._database)
        }
        return [
            function
            for function in self._functions()
            if present.get(function.functionName) != function_claim(target_function(function, self._layout))
        ]

    def _kept(self) -> list[str]:
        """Return the functions that stay although the source lists none of their names.

        No event records their drop, and no verification demands it; an adopted database had functions of its
        own before.
        """
        gone = set(self._manifest.functions_gone)
        present = [str(function.functionName) for function in self._client.get_functions(self._database)]
        if not self._manifest.repair_plan.database:
            return [name for name in present if name not in gone]
        if not self._policy.into_existing:
            return []
        previous = DumpDirectory(self._manifest.previous, self._policy.storage_options)
        replicated_before = {function.functionName for function in previous.functions()}
        return [name for name in present if name not in replicated_before]
