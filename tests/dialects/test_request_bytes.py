"""A request that changes in part keeps the client's bytes everywhere else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.dialects.request_bytes import InsertedField, insert_field, parse_request_body, splice

BODY = b'{ "model":"m" ,"n":1.50,"messages" : [ {"a": 1.0},\n {"b" : "\\u00e9\\ud83d"} , {"c":2e3} ], "z":[ 1,  2 ]\n}'


def changed(data: bytes, **fields: Any) -> bytes | None:
    body = parse_request_body(data, "messages")
    assert body is not None
    return splice(body, {**body.value, **fields})


def test_the_same_object_needs_no_new_bytes() -> None:
    body = parse_request_body(BODY, "messages")
    assert body is not None
    assert splice(body, body.value) is None


def test_only_the_changed_row_is_encoded_again() -> None:
    body = parse_request_body(BODY, "messages")
    assert body is not None
    rows = [body.value["messages"][0], {"new": "é"}, body.value["messages"][2]]
    expected = BODY.decode().replace('{"b" : "\\u00e9\\ud83d"}', '{"new":"é"}')
    assert splice(body, {**body.value, "messages": rows}) == expected.encode()


def test_rows_can_go_and_fields_can_change_and_come() -> None:
    body = parse_request_body(BODY, "messages")
    assert body is not None
    sent = splice(body, {**body.value, "messages": body.value["messages"][2:], "n": 2, "thinking": {"x": 1}})
    assert sent == b'{ "model":"m" ,"n":2,"messages" : [ {"c":2e3} ], "z":[ 1,  2 ]\n,"thinking":{"x":1}}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{}", '{"id":"r1"}'),
        ("{ }", '{ "id":"r1"}'),
        ('{ "mode" : "x" }', '{ "mode" : "x" ,"id":"r1"}'),
        ('{"mode":{"a":"}"}}', '{"mode":{"a":"}"},"id":"r1"}'),
    ],
)
def test_a_field_is_inserted_into_an_object_and_no_other_byte_changes(old: str, new: str) -> None:
    text = BODY.decode()
    data = text.replace('"n":1.50', f'"o" : {old}')
    body = parse_request_body(data.encode(), "messages")
    assert body is not None
    field = InsertedField("o", "id", "r1")
    assert insert_field(body, body.value, field).decode() == data.replace(old, new)
    rows = [body.value["messages"][0]]
    fitted = insert_field(body, {**body.value, "messages": rows}, field).decode()
    assert fitted == f'{{ "model":"m" ,"o" : {new},"messages" : [ {{"a": 1.0}} ], "z":[ 1,  2 ]\n}}'


def test_an_object_with_the_inserted_field_is_added_at_the_end() -> None:
    body = parse_request_body(BODY, "messages")
    assert body is not None
    sent = insert_field(body, body.value, InsertedField("o", "id", None))
    assert sent == BODY.removesuffix(b"}") + b',"o":{"id":null}}'


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{", b'{"messages":[]', b'{"messages":[]}x', b'{"messages":{}}', b'{"messages":[1,]}', b"\xff",
        b'{"messages":[],"messages":[1]}', b'{"messages":[] "a":1}', b'{"a":1}', b'{"messages":[1 2]}',
        b"\xef\xbb\xbf{}",
        b'{"messages":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_other_bodies_are_not_parsed(data: bytes) -> None:
    assert parse_request_body(data, "messages") is None


@given(
    value=st.dictionaries(st.text(), st.recursive(st.integers() | st.text() | st.none(), st.lists)),
    rows=st.lists(st.dictionaries(st.text(), st.integers() | st.text())),
    keep=st.lists(st.booleans(), min_size=20, max_size=20),
    indent=st.sampled_from((None, 1)),
)
def test_the_spliced_bytes_decode_to_the_fitted_value(
    value: dict[str, Any], rows: list[Any], keep: list[bool], indent: int | None
) -> None:
    body = parse_request_body(json.dumps({**value, "messages": rows}, indent=indent).encode(), "messages")
    assert body is not None
    assert body.value == {**value, "messages": rows}
    kept = zip(body.value["messages"], keep, strict=False)
    fitted = {**body.value, "messages": [row if same else {"x": "…"} for row, same in kept]}
    sent = splice(body, fitted)
    assert sent is not None
    assert json.loads(sent) == fitted
