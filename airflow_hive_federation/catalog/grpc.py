"""The factory of metastores behind a gRPC gateway: its name is known, and refused until there is one."""

from __future__ import annotations

from typing import NoReturn

from airflow_hive_federation.catalog.factories import Factory, Opening
from airflow_hive_federation.errors import RemoteUnsupportedError


def _refuse(opening: Opening) -> NoReturn:
    raise RemoteUnsupportedError(
        f"Remote {opening.remote}: metastores behind gRPC cannot be reached yet.",
        remedy="Use VIA 'thrift', or 'ssh' where there is no direct way.",
        remote=opening.remote,
    )


GRPC = Factory(name="grpc", class_names=(), properties={}, prefixes=("",), open=_refuse)
