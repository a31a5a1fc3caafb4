"""Decides where a metastore keeps its data: in Derby inside of its own process, or in a database server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_hive_federation.embedded.database_server import DatabaseServer
from airflow_hive_federation.embedded.derby import put_password
from airflow_hive_federation.embedded.derby import read_password as derbys_password
from airflow_hive_federation.embedded.jars import driver_jars
from airflow_hive_federation.embedded.mariadb import EmbeddedMariadb
from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql
from airflow_hive_federation.embedded.schema import put_database
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, flag, text
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.java import Java

DERBY = "derby"
#: The servers of metastores that keep their data outside of their process, by kind.
SERVERS: Mapping[str, type[DatabaseServer]] = {
    server.kind: server for server in (EmbeddedPostgresql, EmbeddedMariadb)
}
KINDS = (DERBY, *SERVERS)

#: A kind, a running server, or ``None`` for the present one.
Wanted = str | DatabaseServer | None

_DERBY_DATA = "metastore_db"


@dataclass(frozen=True, kw_only=True)
class OpenDatabase:
    """The database of a metastore that is about to start.

    :param kind: one of :data:`KINDS`.
    :param jdbc_url: the metastore's own URL of it.
    :param jdbc_port: its port; 0 if the metastore chooses a free one.
    :param jars: jars of its driver.
    :param server: the server that ends with the metastore; ``None`` if there is none.
    :param schema: as :attr:`DatabaseServer.schema`.
    :param record: the record of its place that opening has written; ``None`` if it had one, or needs none.
    """

    kind: str
    jdbc_url: str
    jdbc_port: int
    password: str = field(repr=False)
    jars: Sequence[Path] = ()
    server: DatabaseServer | None = None
    schema: Path | None = None
    record: Path | None = None

    def undo(self) -> None:
        """Undo what opening did, after a failed start."""
        if self.record is not None:
            self.record.unlink(missing_ok=True)
        if self.server is not None:
            _end(self.server)


def _end(server: DatabaseServer) -> None:
    if server.created:
        server.remove()
    else:
        server.stop()


def open_database(
    java: Java, directory: Path, wanted: Wanted, *, name: str, port: int, temporary: bool
) -> OpenDatabase:
    """Create the database of a metastore, or continue that of its directory, and start its server.

    :param wanted: a kind; a server of several metastores; or ``None`` for the directory's own, else Derby.
    :param name: the name of a new database in a server.
    :param port: the port of the database's server; 0 takes a free one.
    :param temporary: the directory is removed when the metastore stops.
    :raises ConfigurationError: if the directory has a database of another kind or in another server, the
        kind is unknown, or as :meth:`DatabaseServer.start`.
    :raises JarDownloadError: as :meth:`DatabaseServer.start`.
    :raises MetastoreStartError: as :meth:`DatabaseServer.start`, or if Derby refuses the schema.
    """
    record = _record(directory)
    kind = _kind(directory, wanted, record)
    if kind == DERBY:
        put_database(java, directory / _DERBY_DATA)
        url = f"jdbc:derby:;databaseName={directory}/{_DERBY_DATA}"
        return OpenDatabase(kind=kind, jdbc_url=url, jdbc_port=port, password=put_password(directory))
    if record is not None:
        _refuse_other_server(directory, wanted, record)
    jars = driver_jars(java, kind)
    place, server, own = _server(kind, directory, wanted, record, name=name, port=port, temporary=temporary)
    written = _record_file(directory, kind) if record is None else None
    try:
        password = server.password
        if written is not None:
            write_atomically(written, place.text(directory).encode())
    except BaseException:
        if own:
            _end(server)
        raise
    return OpenDatabase(
        kind=kind,
        jdbc_url=_server_url(kind, server.port, place.database),
        jdbc_port=server.port,
        password=password,
        jars=jars,
        server=server if own else None,
        schema=server.schema,
        record=written,
    )


def jdbc_url(directory: Path, port: int) -> str:
    """Return the URL at which other processes reach the database of a running metastore."""
    record = _record(directory)
    if record is None:
        return f"jdbc:derby://127.0.0.1:{port}/{directory}/{_DERBY_DATA}"
    return _server_url(record.kind, port, record.database)


def jdbc_password(directory: Path) -> str:
    """Return the password of a metastore's database.

    :raises ConfigurationError: if it cannot be read, by another user of the machine for instance.
    """
    record = _record(directory)
    if record is None:
        return derbys_password(directory)
    return SERVERS[record.kind].read_password(record.server)


def kind_of(directory: Path) -> str:
    """Return the kind of a metastore's database."""
    record = _record(directory)
    return DERBY if record is None else record.kind


def server_directory(directory: Path) -> Path | None:
    """Return the directory of the database server that ends with a metastore; ``None`` if it has none."""
    record = _record(directory)
    return None if record is None or not record.own else record.server


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The place of a metastore's database: a server's directory, and whether it ends with the metastore."""

    kind: str
    server: Path
    database: str
    own: bool

    def text(self, directory: Path) -> str:
        # The directory may be moved together with a server inside of it.
        inside = self.server.parent == directory
        server = self.server.name if inside else str(self.server)
        return json.dumps({"server": server, "database": self.database, "own": self.own})


def _record_file(directory: Path, kind: str) -> Path:
    return directory / f"{kind}.json"


def _record(directory: Path) -> _Record | None:
    kind = next((kind for kind in SERVERS if _record_file(directory, kind).exists()), None)
    if kind is None:
        return None
    path = _record_file(directory, kind)
    try:
        fields = Fields(bounded_json.loads(path.read_text("utf-8")))
        return _Record(
            kind=kind,
            server=directory / fields.needed("server", text),
            database=fields.needed("database", text),
            own=fields.needed("own", flag),
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the place of the metastore's database cannot be read from {path}: {error}.",
            remedy="Name another directory, or write the file again: JSON with the server's directory "
            "(server), the database's name (database), and whether it ends with the metastore (own).",
        ) from error


def _kind(directory: Path, wanted: Wanted, record: _Record | None) -> str:
    asked = wanted.kind if isinstance(wanted, DatabaseServer) else wanted
    if asked is not None and asked not in KINDS:
        raise ConfigurationError(
            f"{asked!r} is no database of an embedded metastore.", remedy=f"Name one of: {', '.join(KINDS)}."
        )
    if record is not None:
        present: str | None = record.kind
    else:
        present = DERBY if (directory / _DERBY_DATA).is_dir() else None
    if present is not None and asked is not None and present != asked:
        raise ConfigurationError(
            f"the metastore of {directory} has its data in {present}, not in {asked}.",
            remedy="Leave the database out, or name another directory.",
        )
    return present or asked or DERBY


def _refuse_other_server(directory: Path, wanted: Wanted, record: _Record) -> None:
    title = SERVERS[record.kind].title
    if isinstance(wanted, DatabaseServer):
        if record.server != wanted.directory:
            raise ConfigurationError(
                f"the database of {directory} is in the {title} server of {record.server}, not in that of "
                f"{wanted.directory}.",
                remedy="Start that server, or name another directory.",
            )
    elif not record.own:
        raise ConfigurationError(
            f"the database of {directory} is in the {title} server of {record.server}, which has others.",
            remedy=f"Start that server ({SERVERS[record.kind].__name__}.start), and pass it as the "
            "metastore's database.",
        )


def _server(
    kind: str,
    directory: Path,
    wanted: Wanted,
    record: _Record | None,
    *,
    name: str,
    port: int,
    temporary: bool,
) -> tuple[_Record, DatabaseServer, bool]:
    """Return the database's place, its running server, and whether that ends with the metastore."""
    if isinstance(wanted, DatabaseServer):
        place = record or _Record(kind=kind, server=wanted.directory, database=name, own=False)
        return place, wanted, False
    made = SERVERS[kind]
    home = directory / kind if record is None else record.server
    server = made.start(directory=home, port=port, settings=made.temporary if temporary else None)
    return record or _Record(kind=kind, server=server.directory, database=name, own=True), server, True


def _server_url(kind: str, port: int, database: str) -> str:
    return f"jdbc:{kind}://127.0.0.1:{port}/{database}"
