"""Bodies: every supported type goes out and comes back; what cannot be read says why."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from headrace.worker.bodies import BodyCodec, ContentType, content_type_of, parse_content_type, write_body
from headrace.worker.outcomes import BodyError

JSON, MSGPACK = ContentType.JSON, ContentType.MSGPACK


class EmailStruct(msgspec.Struct):
    to: str
    at: datetime


@dataclass
class EmailData:
    to: str
    copies: int = 1


class EmailDict(TypedDict):
    to: str


class EmailModel(pydantic.BaseModel):
    to: str

    @pydantic.field_validator("to")
    @classmethod
    def check(cls, to: str) -> str:
        if "@" not in to:
            raise RuntimeError("a validator of its own says no")
        return to


BODIES = [
    (EmailStruct, EmailStruct("a@b", datetime(2026, 1, 2, tzinfo=UTC))),
    (EmailData, EmailData("a@b", 3)),
    (EmailDict, {"to": "a@b"}),
    (EmailModel, EmailModel(to="a@b")),
    (dict, {"any": [1, 2.5, None, "x"]}),
    (list[int], [1, 2, 3]),
    (Any, {"any": 1}),
    (int, 7),
    (str, "grüße"),
    (bytes, b"\x00\xff"),
]


@pytest.mark.parametrize("written_as", [JSON, MSGPACK])
@pytest.mark.parametrize(("body_type", "body"), BODIES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_body_comes_back_as_it_was_sent_whatever_the_reader_assumes(body_type, body, written_as):
    value, headers = write_body(body, written_as)

    for assumed in ContentType:
        assert BodyCodec(body_type, assumed).read(value, headers) == body


def test_without_a_header_the_queues_content_type_is_assumed():
    assert BodyCodec(dict, MSGPACK).read(msgspec.msgpack.encode({"a": 1})) == {"a": 1}
    assert BodyCodec(dict).read(b'{"a": 1}') == {"a": 1}


def test_an_unknown_content_type_is_passed_over():
    assert BodyCodec(dict).read(b"{}", [("Content-Type", b"text/x-json; charset=utf-8")]) == {}


@pytest.mark.parametrize("name", ["application/msgpack", "application/x-msgpack", "APPLICATION/MSGPACK; q=1"])
def test_the_content_type_header_has_many_spellings(name):
    assert content_type_of([("other", b"x"), ("Content-Type", name.encode())]) is MSGPACK


def test_bytes_and_text_go_as_they_are_and_without_a_header():
    assert write_body(b"raw", JSON) == (b"raw", ())
    assert write_body("text", MSGPACK) == (b"text", ())
    assert write_body(None, JSON) == (None, ())


@pytest.mark.parametrize(
    ("body_type", "value", "says"),
    [
        (EmailStruct, b'{"to": 1}', "decoded as EmailStruct"),
        (EmailData, b"not json", "decoded as EmailData"),
        (EmailDict, b"{}", "missing required field"),
        (EmailModel, b'{"to": "nowhere"}', "a validator of its own says no"),
        (str, b"\xff", "decoded as str"),
        (dict, b"[]", "decoded as dict"),
        (dict, None, "no value"),
        (bytes, None, "no value"),
    ],
)
def test_a_value_that_is_no_body_says_why(body_type, value, says):
    with pytest.raises(BodyError, match=says):
        BodyCodec(body_type).read(value)


def test_a_record_without_a_value_is_none_where_the_annotation_allows_it():
    assert BodyCodec(EmailData | None).read(None) is None
    assert BodyCodec(bytes | None).read(None) is None
    assert BodyCodec(bytes | None).read(b"x") == b"x"
    assert BodyCodec(EmailModel | None).read(b'{"to": "a@b"}') == EmailModel(to="a@b")


def test_a_union_of_structs_is_told_apart():
    class Cat(msgspec.Struct, tag=True):
        name: str

    class Dog(msgspec.Struct, tag=True):
        name: str

    value, headers = write_body(Dog("rex"), JSON)

    assert BodyCodec(Cat | Dog).read(value, headers) == Dog("rex")


def test_a_type_that_can_never_be_a_body_is_refused_at_once():
    class Custom:
        pass

    with pytest.raises(TypeError, match="Custom cannot be a task's body"):
        BodyCodec(Custom)


def test_a_body_that_cannot_be_sent_names_its_type():
    with pytest.raises(TypeError, match="a body of type object cannot be sent"):
        write_body(object(), JSON)


def test_content_types_have_short_names_and_others_are_refused():
    assert parse_content_type("json") is JSON
    assert parse_content_type("application/msgpack") is MSGPACK
    assert parse_content_type(MSGPACK) is MSGPACK
    with pytest.raises(ValueError, match="content_type='xml' is not known"):
        parse_content_type("xml")
