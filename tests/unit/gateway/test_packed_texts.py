"""Lists of names are read from the message they came in, without a text for each."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.messages import EXCEPTION, REPLY, head_bytes
from airflow_hive_federation.gateway.services.exchange import texts_of
from airflow_hive_federation.gateway.services.texts import Texts
from airflow_hive_federation.metastore.calls.partition_pages import pages
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode

METHOD = "get_partition_names"


def reply(kind: int = REPLY, **result: object) -> bytes:
    return head_bytes(METHOD, kind, 1) + encode(message_types(METHOD)[1](**result))


@given(st.lists(st.text()), st.slices(20))
def test_they_are_the_texts(names: list[str], part: slice) -> None:
    texts = Texts.of(reply(success=names))
    assert list(texts) == names
    assert list(texts[part]) == names[part]


@pytest.mark.parametrize(
    "message",
    [
        reply(),
        reply(o1=types.MetaException(message="no")),
        reply(EXCEPTION, success=["a"]),
        reply(success=["a"])[:-1],
        reply(success=["a", "bcd"])[:-3],
        reply(success=["a"]) + b"x",
        reply(success=["a"]).replace(b"\x0f\0\0\x0b", b"\x0f\0\0\x08"),
        reply(success=["a"]).replace(b"\0\0\0\x01a", b"\xff\xff\xff\xffa"),
    ],
)
def test_other_answers_are_none(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Texts.of(message)


def test_a_name_that_is_no_text_is_an_error_and_no_other_name() -> None:
    texts = Texts.of(reply(success=["n=@"]).replace(b"@", b"\xff"))
    with pytest.raises(GatewayError, match="is not UTF-8"):
        texts[0]


@pytest.mark.parametrize("cut", [1, 5], ids=["without its end", "within a name"])
def test_an_answer_that_ends_too_soon_is_an_error_of_the_metastore(cut: int) -> None:
    with pytest.raises(GatewayError, match="the metastore's answer is not valid"):
        texts_of(METHOD, reply(success=["a", "bcd"])[:-cut])


def test_an_exception_in_place_of_the_list_is_raised() -> None:
    with pytest.raises(types.NoSuchObjectException, match="no"):
        texts_of(METHOD, reply(o1=types.NoSuchObjectException(message="no")))


def test_pages_of_them_take_little_beside_the_message() -> None:
    texts = Texts.of(reply(success=[f"n={number}" for number in range(50_000)]))
    tracemalloc.start()
    try:
        assert sum(len(page.names) for page in pages([("n", "int")], texts, 1000)) == len(texts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
