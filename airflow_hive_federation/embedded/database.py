"""Decides where a metastore keeps its data: in Derby inside of its own process, or in a PostgreSQL server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_hive_federation.embedded.derby import put_password
from airflow_hive_federation.embedded.derby import read_password as derbys_password
from airflow_hive_federation.embedded.postgresql import TEMPORARY, EmbeddedPostgresql, read_password
from airflow_hive_federation.embedded.postgresql_programs import driver_jars
from airflow_hive_federation.embedded.schema import put_database
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, flag, text
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.java import Java

DERBY = "derby"
POSTGRESQL = "postgresql"
KINDS = (DERBY, POSTGRESQL)

#: A kind, a running server, or ``None`` for the present one.
Wanted = str | EmbeddedPostgresql | None

_DERBY_DATA = "metastore_db"
_RECORD = "postgresql.json"
_OWN_SERVER = "postgresql"


@dataclass(frozen=True, kw_only=True)
class OpenDatabase:
    """The database of a metastore that is about to start.

    :param kind: ``derby`` or ``postgresql``.
    :param jdbc_url: the metastore's own URL of it.
    :param jdbc_port: its port; 0 if the metastore chooses a free one.
    :param jars: jars of its driver.
    :param server: the server that ends with the metastore; ``None`` if there is none.
    :param fresh: the directory had no database in PostgreSQL before.
    """

    kind: str
    jdbc_url: str
    jdbc_port: int
    password: str = field(repr=False)
    jars: Sequence[Path] = ()
    server: EmbeddedPostgresql | None = None
    fresh: bool = False

    def undo(self, directory: Path) -> None:
        """Undo what opening did, after a failed start."""
        if self.fresh:
            (directory / _RECORD).unlink(missing_ok=True)
        if self.server is not None:
            _end(self.server)


def _end(server: EmbeddedPostgresql) -> None:
    if server.created:
        server.remove()
    else:
        server.stop()


def open_database(
    java: Java, directory: Path, wanted: Wanted, *, name: str, port: int, temporary: bool
) -> OpenDatabase:
    """Create the database of a metastore, or continue that of its directory, and start its server.

    :param wanted: a kind; a server of several metastores; or ``None`` for the directory's own, else Derby.
    :param name: the name of a new database in a PostgreSQL server.
    :param port: the port of Derby's or PostgreSQL's server; 0 takes a free one.
    :param temporary: the directory is removed when the metastore stops.
    :raises ConfigurationError: if the directory has a database of the other kind or in another server, the
        kind is unknown, or as :meth:`EmbeddedPostgresql.start`.
    :raises JarDownloadError: as :meth:`EmbeddedPostgresql.start`.
    :raises MetastoreStartError: as :meth:`EmbeddedPostgresql.start`, or if Derby refuses the schema.
    """
    record = _record(directory)
    kind = _kind(directory, wanted, record)
    if kind == DERBY:
        put_database(java, directory / _DERBY_DATA)
        url = f"jdbc:derby:;databaseName={directory}/{_DERBY_DATA}"
        return OpenDatabase(kind=kind, jdbc_url=url, jdbc_port=port, password=put_password(directory))
    if record is not None:
        _refuse_other_server(directory, wanted, record)
    jars = driver_jars(java)
    place, server, own = _server(directory, wanted, record, name=name, port=port, temporary=temporary)
    try:
        password = server.password
        if record is None:
            write_atomically(directory / _RECORD, place.text(directory).encode())
    except BaseException:
        if own:
            _end(server)
        raise
    return OpenDatabase(
        kind=kind,
        jdbc_url=_postgresql_url(server.port, place.database),
        jdbc_port=server.port,
        password=password,
        jars=jars,
        server=server if own else None,
        fresh=record is None,
    )


def jdbc_url(directory: Path, port: int) -> str:
    """Return the URL at which other processes reach the database of a running metastore."""
    record = _record(directory)
    if record is None:
        return f"jdbc:derby://127.0.0.1:{port}/{directory}/{_DERBY_DATA}"
    return _postgresql_url(port, record.database)


def jdbc_password(directory: Path) -> str:
    """Return the password of a metastore's database.

    :raises ConfigurationError: if it cannot be read, by another user of the machine for instance.
    """
    record = _record(directory)
    return derbys_password(directory) if record is None else read_password(record.server)


def kind_of(directory: Path) -> str:
    """Return the kind of a metastore's database."""
    return DERBY if _record(directory) is None else POSTGRESQL


def server_directory(directory: Path) -> Path | None:
    """Return the directory of the PostgreSQL server that ends with a metastore; ``None`` if it has none."""
    record = _record(directory)
    return None if record is None or not record.own else record.server


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The place of a metastore's database: a server's directory, and whether it ends with the metastore."""

    server: Path
    database: str
    own: bool

    def text(self, directory: Path) -> str:
        # The directory may be moved together with a server inside of it.
        inside = self.server.parent == directory
        server = self.server.name if inside else str(self.server)
        return json.dumps({"server": server, "database": self.database, "own": self.own})


def _record(directory: Path) -> _Record | None:
    path = directory / _RECORD
    try:
        fields = Fields(bounded_json.loads(path.read_text("utf-8")))
        return _Record(
            server=directory / fields.needed("server", text),
            database=fields.needed("database", text),
            own=fields.needed("own", flag),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the place of the metastore's database cannot be read from {path}: {error}.",
            remedy="name another directory, or write the file again: JSON with the server's directory "
            "(server), the database's name (database), and whether it ends with the metastore (own).",
        ) from error


def _kind(directory: Path, wanted: Wanted, record: _Record | None) -> str:
    asked = POSTGRESQL if isinstance(wanted, EmbeddedPostgresql) else wanted
    if asked is not None and asked not in KINDS:
        raise ConfigurationError(
            f"{asked!r} is no database of an embedded metastore.", remedy=f"name one of: {', '.join(KINDS)}."
        )
    if record is not None:
        present: str | None = POSTGRESQL
    else:
        present = DERBY if (directory / _DERBY_DATA).is_dir() else None
    if present is not None and asked is not None and present != asked:
        raise ConfigurationError(
            f"the metastore of {directory} has its data in {present}, not in {asked}.",
            remedy="leave the database out, or name another directory.",
        )
    return present or asked or DERBY


def _refuse_other_server(directory: Path, wanted: Wanted, record: _Record) -> None:
    if isinstance(wanted, EmbeddedPostgresql):
        if record.server != wanted.directory:
            raise ConfigurationError(
                f"the database of {directory} is in the PostgreSQL server of {record.server}, not in that of "
                f"{wanted.directory}.",
                remedy="start that server, or name another directory.",
            )
    elif not record.own:
        raise ConfigurationError(
            f"the database of {directory} is in the PostgreSQL server of {record.server}, which has others.",
            remedy="start that server (EmbeddedPostgresql.start), and pass it as the metastore's database.",
        )


def _server(
    directory: Path, wanted: Wanted, record: _Record | None, *, name: str, port: int, temporary: bool
) -> tuple[_Record, EmbeddedPostgresql, bool]:
    """Return the database's place, its running server, and whether that ends with the metastore."""
    if isinstance(wanted, EmbeddedPostgresql):
        return record or _Record(server=wanted.directory, database=name, own=False), wanted, False
    home = directory / _OWN_SERVER if record is None else record.server
    server = EmbeddedPostgresql.start(directory=home, port=port, settings=TEMPORARY if temporary else None)
    return record or _Record(server=server.directory, database=name, own=True), server, True


def _postgresql_url(port: int, database: str) -> str:
    return f"jdbc:postgresql://127.0.0.1:{port}/{database}"
