"""The statements of remotes: what they mean, and what is refused where."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import StatementError
from airflow_hive_federation.remotes.statement import (
    AlterRemote,
    CreateRemote,
    DescribeRemote,
    DropRemote,
    Kind,
    Name,
    RefreshRemote,
    ShowCreateRemote,
    ShowRemotes,
    Use,
    literal,
    parse_script,
    quoted,
)
from tests.support.examples import examples

THRIFT = "org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory"
URIS = {"hive.metastore.uris": "thrift://remote-hms:9083"}

#: Word for word from the proposal; it leaves the heads of the later ones away.
REMOTE_TABLE = """
    CREATE REMOTE TABLE local_db.local_tbl
    CONNECTED TO remote_db.remote_tbl
    VIA 'org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory'
      'hive.metastore.uris' = 'thrift://remote-hms:9083'
"""
REMOTE_DATABASE = """
    CREATE REMOTE DATABASE local_db_name
    CONNECTED TO remote_db_name
    VIA 'org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory'
      'hive.metastore.uris' = 'thrift://remote-hms:9083'
"""
SSH = """
    VIA 'org.apache.hadoop.hive.metastore.SSHThriftHiveMetastoreClientFactory'
      'hive.metastore.uris' = 'thrift://metastore.domain:9083'
      'ssh.tunnel.route' = 'bastionuser@bastion-host.domain -> user@cluster-node.domain'
      'ssh.tunnel.private.keys' = '/home/user/.ssh/bastionuser-key-pair.pem,/home/user/.ssh/user-key-pair.pem'
      'ssh.tunnel.known.hosts' = '/home/user/.ssh/known_hosts'
"""
GLUE = """
    VIA 'com.amazonaws.glue.catalog.metastore.AWSGlueDataCatalogHiveClientFactory'
      -- Glue endpoint configuration
"""
ICEBERG = """
    VIA 'xxx.yyy.iceberg.hive.zzz.IcebergTableHiveClientFactory'
      'iceberg.table.path' = 'an-atomic-store:/tables/tbl_name'
"""


def test_the_proposals_remote_table() -> None:
    assert parse_script(REMOTE_TABLE)[0] == CreateRemote(
        kind=Kind.TABLE,
        name=Name(database="local_db", table="local_tbl"),
        connected_to=Name(database="remote_db", table="remote_tbl"),
        via=THRIFT,
        properties=URIS,
    )


def test_the_proposals_remote_database() -> None:
    assert parse_script(REMOTE_DATABASE)[0] == CreateRemote(
        kind=Kind.DATABASE,
        name=Name(database="local_db_name"),
        connected_to=Name(database="remote_db_name"),
        via=THRIFT,
        properties=URIS,
    )


def test_the_proposals_defaults() -> None:
    rest = "\n      'hive.metastore.uris' = 'thrift://remote-hms:9083'\n"
    assert parse_script("CREATE REMOTE DATABASE local_db_name" + rest)[0] == CreateRemote(
        kind=Kind.DATABASE, name=Name(database="local_db_name"), properties=URIS
    )
    assert parse_script("CREATE REMOTE TABLE local_tbl" + rest)[0] == CreateRemote(
        kind=Kind.TABLE, name=Name(table="local_tbl"), properties=URIS
    )


@pytest.mark.parametrize(
    ("stanza", "properties"),
    [
        (
            SSH,
            {
                "hive.metastore.uris": "thrift://metastore.domain:9083",
                "ssh.tunnel.route": "bastionuser@bastion-host.domain -> user@cluster-node.domain",
                "ssh.tunnel.private.keys": "/home/user/.ssh/bastionuser-key-pair.pem,"
                "/home/user/.ssh/user-key-pair.pem",
                "ssh.tunnel.known.hosts": "/home/user/.ssh/known_hosts",
            },
        ),
        (GLUE, {}),
        (ICEBERG, {"iceberg.table.path": "an-atomic-store:/tables/tbl_name"}),
    ],
    ids=["ssh", "glue", "iceberg"],
)
def test_the_proposals_stanzas(stanza: str, properties: dict[str, str]) -> None:
    statement = parse_script("CREATE REMOTE TABLE t CONNECTED TO d.t" + stanza)[0]
    assert isinstance(statement, CreateRemote)
    assert statement.properties == properties
    assert f"'{statement.via}'" in stanza


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "create remote table if not exists `My T`",
            CreateRemote(kind=Kind.TABLE, name=Name(table="my t"), if_not_exists=True),
        ),
        (
            "CREATE REMOTE TABLE t VIA 'ssh' 'a'='1', \"b\" = '2;--3'",
            CreateRemote(
                kind=Kind.TABLE, name=Name(table="t"), via="ssh", properties={"a": "1", "b": "2;--3"}
            ),
        ),
        (
            "CREATE REMOTE TABLE table CONNECTED TO r.database",
            CreateRemote(
                kind=Kind.TABLE, name=Name(table="table"), connected_to=Name(database="r", table="database")
            ),
        ),
        ("DROP REMOTE TABLE d.t", DropRemote(kind=Kind.TABLE, name=Name(database="d", table="t"))),
        (
            "drop remote database if exists D",
            DropRemote(kind=Kind.DATABASE, name=Name(database="d"), if_exists=True),
        ),
        (
            "ALTER REMOTE TABLE t SET 'k' = 'v' 'l' = ''",
            AlterRemote(kind=Kind.TABLE, name=Name(table="t"), properties={"k": "v", "l": ""}),
        ),
        ("REFRESH REMOTE DATABASE d", RefreshRemote(kind=Kind.DATABASE, name=Name(database="d"))),
        ("SHOW REMOTES", ShowRemotes()),
        ("show remotes in d /* here */", ShowRemotes(database="d")),
        ("SHOW CREATE REMOTE TABLE t", ShowCreateRemote(kind=Kind.TABLE, name=Name(table="t"))),
        ("DESCRIBE t", DescribeRemote(kind=Kind.TABLE, name=Name(table="t"))),
        (
            "DESC FORMATTED d.t",
            DescribeRemote(kind=Kind.TABLE, name=Name(database="d", table="t"), extended=True),
        ),
        (
            "DESCRIBE REMOTE DATABASE EXTENDED d",
            DescribeRemote(kind=Kind.DATABASE, name=Name(database="d"), extended=True),
        ),
        ("DESCRIBE database", DescribeRemote(kind=Kind.TABLE, name=Name(table="database"))),
        ("DESCRIBE TABLE table", DescribeRemote(kind=Kind.TABLE, name=Name(table="table"))),
        ("USE d", Use(database="d")),
        ("SHOW REMOTES IN `größe`", ShowRemotes(database="größe")),
    ],
)
def test_statements(text: str, statement: object) -> None:
    assert parse_script(text) == [statement]
    assert parse_script(text + " ;\n-- done\n") == [statement]


def test_a_script_has_several() -> None:
    script = ";;USE d; -- first\nCREATE REMOTE TABLE t;\n\n/* ; */ SHOW REMOTES;"
    assert [type(statement) for statement in parse_script(script)] == [Use, CreateRemote, ShowRemotes]
    assert parse_script(" -- nothing\n") == []


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("CREATE TABLE t", 1, 8, ("REMOTE",)),
        ("SELECT 1", 1, 1, ("CREATE", "ALTER", "DROP", "REFRESH", "SHOW", "DESCRIBE", "USE")),
        ("CREATE REMOTE", 1, 14, ("TABLE", "DATABASE")),
        ("CREATE REMOTE TABLE", 1, 20, ("a table name",)),
        ("CREATE REMOTE TABLE 't'", 1, 21, ("a table name",)),
        ("CREATE REMOTE TABLE `a.b`", 1, 21, ("a table name without a dot",)),
        ("CREATE REMOTE TABLE a.", 1, 23, ("a table name",)),
        ("CREATE REMOTE DATABASE a.b", 1, 25, None),
        ("CREATE REMOTE TABLE IF EXISTS t", 1, 24, ("NOT",)),
        ("CREATE REMOTE TABLE t\n  CONNECTED\tr.t", 2, 13, ("TO",)),
        ("CREATE REMOTE TABLE t\nVIA thrift", 2, 5, ("the factory in quotes",)),
        ("CREATE REMOTE TABLE t VIA 'a' VIA 'b'", 1, 31, None),
        ("CREATE REMOTE TABLE t 'k' 'v'", 1, 27, ("=",)),
        ("CREATE REMOTE TABLE t 'k' =", 1, 28, ("the property's value in quotes",)),
        ("CREATE REMOTE TABLE t 'k'='v',", 1, 31, ("a property in quotes",)),
        ("CREATE REMOTE TABLE t 'k'='v'\n'k'='w'", 2, 1, None),
        (
            "CREATE REMOTE TABLE t 'k'='v' u",
            1,
            31,
            ("a property in quotes", "the end of the statement"),
        ),
        ("ALTER REMOTE TABLE t SET", 1, 25, ("a property in quotes",)),
        ("USE a;\n\nDROP REMOTE VIEW v", 3, 13, ("TABLE", "DATABASE")),
        ("SHOW TABLES", 1, 6, ("REMOTES", "CREATE REMOTE")),
        ("DROP REMOTE TABLE t u", 1, 21, ("the end of the statement",)),
    ],
)
def test_errors_name_the_place_and_the_fault(
    text: str, line: int, column: int, expected: tuple[str, ...] | None
) -> None:
    with pytest.raises(StatementError) as caught:
        parse_script(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    if expected is not None:
        assert caught.value.expected == expected
    assert f"Line {line}, column {column}" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).line == line


def test_an_open_quotation_has_a_place() -> None:
    with pytest.raises(StatementError) as caught:
        parse_script("USE d;\nCREATE REMOTE TABLE t 'k' = 'v")
    assert (caught.value.line, caught.value.column) == (2, 29)


names = st.text(min_size=1, max_size=12).filter(lambda name: name.strip() and "." not in name)


@given(name=names, value=st.text(max_size=30))
def test_what_is_written_is_read_back(name: str, value: str) -> None:
    text = f"CREATE REMOTE TABLE {quoted(name.lower())} 'k' = {literal(value)}"
    statement = parse_script(text)[0]
    assert isinstance(statement, CreateRemote)
    assert statement.name == Name(table=name.lower())
    assert statement.properties == {"k": value}


PIECES = [
    *re.split(" ", "CREATE REMOTE TABLE DATABASE IF NOT EXISTS CONNECTED TO VIA SET SHOW REMOTES IN DROP"),
    *re.split(" ", "ALTER DESCRIBE EXTENDED FORMATTED REFRESH USE d t `x` `` ' '' 'k' 'v' = . , ; -- /* */"),
    *re.split(" ", '" \\ ( ) { {{ }} 1 1L 2e5 0x @ $ % ä 漢 \x00 \ud7ff ? : ->'),
    "\n",
    "'hive.metastore.uris' = 'thrift://h:1'",
]


def test_whatever_it_is_only_typed_errors() -> None:
    """``HIVE_FEDERATION_FUZZ_STATEMENTS=1000000`` tries a million."""
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    for _ in range(int(os.environ.get("HIVE_FEDERATION_FUZZ_STATEMENTS", "20000"))):
        pieces = chance.choices(PIECES, k=chance.randrange(1, 14))
        text = chance.choice(["", " ", " ", " "]).join(pieces)
        assert places(text, seed) >= (1, 1), (seed, text)


def places(text: str, seed: int) -> tuple[int, int]:
    """Return the place of the error; the beginning if there is none."""
    try:
        parse_script(text)
    except StatementError as error:
        return error.line, error.column
    except Exception as error:
        raise AssertionError(f"seed {seed}: {text!r}") from error
    return 1, 1


@given(text=st.text(max_size=200))
@examples(300)
def test_any_text_gives_only_typed_errors(text: str) -> None:
    with contextlib.suppress(StatementError):
        parse_script(text)
