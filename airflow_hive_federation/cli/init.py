"""``hive-federation init``: writes a policy, connections and a DAG that replicate a database."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.embedded.metastore import RunningMetastore
from airflow_hive_federation.embedded.naming import named_metastore
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import refuse_hidden

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@]*:[^/@]*@")
_HIVE_PORT = 9083
_DAG = '''\
"""Replicates a Hive database by the policy {name}, as policy.toml does in a terminal."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_hive_federation.operators.replication import replicate_database

with DAG(
    dag_id={dag_id},
    schedule=timedelta(minutes=15),
    catchup=False,
    max_active_runs=1,
    default_args={{"retries": 2}},
    tags=["hive", "replication"],
):
    replicate_database(
        {{
{fields}
        }},
        source_conn_id={source},
        target_conn_id={target},
    )
'''


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "init",
        help="write a policy, connections and a DAG that replicate a database",
        description="Write policy.toml, connections.json and dags/replicate_NAME.py into DIRECTORY. Existing "
        "files are never overwritten, and no file contains a secret.",
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="directory of the files")
    for end, direction in (("source", "from"), ("target", "to")):
        parser.add_argument(
            f"--{end}",
            required=True,
            metavar="METASTORE",
            help=f"metastore to replicate {direction}: URI(s), the name of a running embedded metastore, or "
            "the id of an Airflow connection after conn:",
        )
    parser.add_argument("--database", required=True, help="database on the source")
    parser.add_argument("--target-database", help="its name on the target (default: that on the source)")
    parser.add_argument("--name", help="name of the policy (default: the database's)")
    parser.add_argument(
        "--dump-root", metavar="URI", help="directory of the dumps (default: dumps in DIRECTORY)"
    )
    parser.add_argument(
        "--external-base",
        metavar="URI",
        help="directory of external tables on the target (default: external in DIRECTORY)",
    )
    parser.add_argument("--json", action="store_true", help="print the paths of the files as JSON")


@dataclass(frozen=True, kw_only=True)
class InitialEnd:
    """One end of the replication.

    :param conn_id: id of its Airflow connection.
    :param name: its name in a policy file: URIs, or the id of a connection.
    :param connection: the connection to import; ``None`` for a connection that exists already.
    :param roots: directories of a source's tables on this machine.
    """

    conn_id: str
    name: str
    connection: Mapping[str, Any] | None = None
    roots: tuple[str, ...] = field(default=())


def run(args: argparse.Namespace) -> int:
    """Write the files; print their paths and the next commands.

    :raises ConfigurationError: a file exists or cannot be written, a name cannot be used, a metastore is not
        named correctly, a URI may contain a secret, or the policy is impossible.
    """
    directory: Path = args.directory.absolute()
    refuse_hidden(str(directory), "the directory of the replication", remedy="Name one that is not hidden.")
    name = args.name or args.database
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a policy.",
            remedy="Give --name with letters, digits, '_', '-' and '.'.",
        )
    _refuse_passwords(args)
    source, target = (_end(getattr(args, end), f"{name}_{end}") for end in ("source", "target"))
    _refuse_itself(args, source, target)
    if source.roots:
        _refuse_missing(source.name, args.source, args.database)
    policy: dict[str, object] = {
        "name": name,
        "source_database": args.database,
        **({"target_database": args.target_database} if args.target_database else {}),
        "dump_root": args.dump_root or str(directory / "dumps"),
        "external_base": args.external_base or str(directory / "external"),
        **({"allowed_source_roots": list(source.roots)} if source.roots else {}),
        "open_txn_timeout_s": "10m",
    }
    ReplicationPolicy.from_options(options={}, **policy)
    dag_id = f"replicate_{name}"
    files = {
        directory / "policy.toml": policy_text(policy, source.name, target.name),
        directory / "connections.json": connections_text(source, target),
        directory / "dags" / f"{dag_id}.py": dag_text(policy, source.conn_id, target.conn_id),
    }
    _write(files)
    paths = [str(path) for path in files]
    print(json.dumps(paths) if args.json else _next(*paths, dag_id=dag_id))
    return 0


def policy_text(policy: Mapping[str, object], source: str, target: str) -> str:
    """Return a policy file."""
    lines = [f"{key} = {_quoted(value)}" for key, value in (("source", source), ("target", target))]
    lines += [f"{key} = {_quoted(value)}" for key, value in policy.items()]
    return (
        "# The policy of `hive-federation replicate`; the DAG has the same fields.\n"
        + "\n".join(lines)
        + "\n"
    )


def connections_text(*ends: InitialEnd) -> str:
    """Return the file that ``airflow connections import`` takes."""
    connections = {end.conn_id: end.connection for end in ends if end.connection is not None}
    return json.dumps(connections, indent=2) + "\n"


def dag_text(policy: Mapping[str, Any], source_conn_id: str, target_conn_id: str) -> str:
    """Return the DAG file."""
    return _DAG.format(
        name=policy["name"],
        dag_id=_quoted(f"replicate_{policy['name']}"),
        fields="\n".join(f"            {_quoted(key)}: {_python(value)}," for key, value in policy.items()),
        source=_quoted(source_conn_id),
        target=_quoted(target_conn_id),
    )


def _quoted(value: object) -> str:
    """Return a value in JSON's form, which TOML and Python share except for escaped pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False)


def _python(value: str | list[str]) -> str:
    if isinstance(value, str):
        return _quoted(value)
    items = "".join(f"                {_quoted(item)},\n" for item in value)
    return f"[\n{items}            ]"


def _refuse_passwords(args: argparse.Namespace) -> None:
    """Refuse URIs that may contain a secret; the message does not repeat them.

    :raises ConfigurationError: a store's URI has a password, or a metastore's URI a query.
    """
    for option in ("dump_root", "external_base"):
        if _PASSWORD.match(getattr(args, option) or ""):
            raise ConfigurationError(
                f"--{option.replace('_', '-')} has a password, and init writes no secrets.",
                remedy="Leave it out, and add secret_storage_options to the connections.",
            )
    for option in ("source", "target"):
        metastore = getattr(args, option)
        if "://" in metastore and ("?" in metastore or "#" in metastore):
            raise ConfigurationError(
                f"The URI of --{option} has a query or a fragment, which no metastore has.",
                remedy="Leave it out; secrets are extras of the connection, http_bearer_token for instance.",
            )


def _end(metastore: str, conn_id: str) -> InitialEnd:
    prefix, colon, existing = metastore.partition(":")
    if prefix == "conn" and colon:
        if not existing:
            raise ConfigurationError("conn: names no connection.", remedy="Write its id after the colon.")
        return InitialEnd(conn_id=existing, name=existing)
    if "://" not in metastore:
        return _of_embedded(named_metastore(metastore), conn_id)
    from airflow_hive_federation.metastore import MetastoreSettings

    uris = tuple(uri.strip() for uri in metastore.split(",") if uri.strip())
    MetastoreSettings(uris=uris)
    return InitialEnd(conn_id=conn_id, name=metastore, connection=_connection(uris))


def _refuse_itself(args: argparse.Namespace, source: InitialEnd, target: InitialEnd) -> None:
    if source.name == target.name and args.target_database in {None, args.database}:
        raise ConfigurationError(
            f"The database {args.database} of {args.source} would be replicated to itself.",
            remedy="Name another target, or give --target-database.",
        )


def _refuse_missing(uri: str, metastore: str, database: str) -> None:
    """Check that an embedded metastore, which runs on this machine, has a database.

    :raises ConfigurationError: it does not.
    """
    from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings

    with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
        databases = client.list_databases()
    if database.lower() not in databases:
        raise ConfigurationError(
            f"The metastore {metastore} has no database {database}.",
            remedy=f"Create it, or name one that it has: {', '.join(databases)}.",
        )


def _of_embedded(running: RunningMetastore, conn_id: str) -> InitialEnd:
    return InitialEnd(
        conn_id=conn_id,
        name=running.uri,
        connection=_connection((running.uri,)),
        roots=(f"file:{running.warehouse}", f"file:{running.external_warehouse}"),
    )


def _connection(uris: tuple[str, ...]) -> dict[str, Any]:
    first = urlsplit(uris[0])
    if len(uris) == 1 and first.scheme == "thrift" and not first.path.strip("/"):
        return {"conn_type": "hive_federation", "host": first.hostname, "port": first.port or _HIVE_PORT}
    return {"conn_type": "hive_federation", "extra": {"uris": ",".join(uris)}}


def _write(files: Mapping[Path, str]) -> None:
    """Write files, and complete those of a run that was killed.

    :raises ConfigurationError: a file has another content, all exist, or one cannot be written.
    """
    contents = {path: _content(path) for path in files}
    others = [path for path, text in files.items() if not text.startswith(contents[path] or "")]
    if others or contents == files:
        raise ConfigurationError(
            f"Files exist already: {', '.join(map(str, others or files))}.",
            remedy="Remove them, or name another directory.",
        )
    for path in files:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        content = contents[path]
        with _writing(path), path.open("x" if content is None else "a", encoding="utf-8") as file:
            file.write(text.removeprefix(content or ""))


def _content(path: Path) -> str | None:
    """Return the text of a file, ``None`` if it does not exist."""
    if path.is_symlink() or path.is_dir():
        return f"not a file: {path}"
    with _writing(path):
        try:
            return path.read_bytes().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}.", remedy="Name another directory."
        ) from error


def _next(policy: str, connections: str, dag: str, *, dag_id: str) -> str:
    folder = shlex.quote(str(Path(dag).parent))
    return (
        f"policy:      {policy}\nconnections: {connections}\nDAG:         {dag}\n"
        f"Next, in a terminal: hive-federation replicate run {shlex.quote(policy)}\n"
        f"Or in Airflow:       airflow db migrate && airflow connections import {shlex.quote(connections)}\n"
        f"                     AIRFLOW__CORE__DAGS_FOLDER={folder} airflow dags test {dag_id}"
    )
