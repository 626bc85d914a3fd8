"""A record's value <-> the body of a task: JSON or msgpack by msgspec, text, or raw bytes.

The type comes from the function's annotation. Anything msgspec knows will do (Struct, dataclass, TypedDict, dict, list,
datetime ...), `str` and `bytes` are taken as they are, and a pydantic model is read by its own methods if the user has
pydantic. The header `content-type` says how a value was written; without one, or with one we do not know, the queue's
own content type is assumed. A record without a value is None where the annotation allows None.
"""

import types
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

import msgspec

from headrace.worker.outcomes import BodyError

CONTENT_TYPE = "content-type"
Header = tuple[str, bytes | None]


class ContentType(Enum):
    JSON = "application/json"
    MSGPACK = "application/msgpack"


NAMES = {
    "application/json": ContentType.JSON,
    "application/msgpack": ContentType.MSGPACK,
    "application/x-msgpack": ContentType.MSGPACK,
    "application/vnd.msgpack": ContentType.MSGPACK,
    "json": ContentType.JSON,
    "msgpack": ContentType.MSGPACK,
}
Reader = Callable[[bytes], Any]


def parse_content_type(name: "str | ContentType") -> ContentType:
    if isinstance(name, ContentType):
        return name
    if name.lower() not in NAMES:
        raise ValueError(f"content_type={name!r} is not known; use 'json' or 'msgpack'")
    return NAMES[name.lower()]


class BodyReader(Protocol):
    def read(self, value: bytes | None, headers: Iterable[Header] = ()) -> Any:
        """The body; BodyError when the record is none of this task's."""


class BodyCodec:
    """Reads the bodies of one task. A type that can never work is refused here, when the task is declared."""

    def __init__(self, body_type: Any, default: ContentType = ContentType.JSON) -> None:
        self._default = default
        body_type, self._may_be_none = _without_none(body_type)
        self._name = getattr(body_type, "__name__", str(body_type))
        self._readers = _readers(body_type)

    def read(self, value: bytes | None, headers: Iterable[Header] = ()) -> Any:
        if value is None:
            if self._may_be_none:
                return None
            raise BodyError(f"the record has no value, and {self._name} needs one")
        try:
            return self._readers[content_type_of(headers) or self._default](value)
        except BodyError:
            raise
        except Exception as error:  # a pydantic model's validators may raise anything
            raise BodyError(f"the value cannot be decoded as {self._name}: {error}") from error


def write_body(body: Any, content_type: ContentType) -> tuple[bytes | None, Sequence[Header]]:
    """The value and the headers that say how to read it. Bytes and text go as they are, and need no header."""
    if body is None or isinstance(body, bytes | bytearray | memoryview):
        return (None if body is None else bytes(body)), ()
    if isinstance(body, str):
        return body.encode(), ()
    header = ((CONTENT_TYPE, content_type.value.encode()),)
    try:
        if _is_pydantic(type(body)):
            if content_type is ContentType.JSON:
                return body.model_dump_json().encode(), header
            body = body.model_dump(mode="json")
        encode = msgspec.json.encode if content_type is ContentType.JSON else msgspec.msgpack.encode
        return encode(body), header
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(
            f"a body of type {type(body).__qualname__} cannot be sent: {error}; "
            "use a msgspec.Struct, a dataclass, plain dicts and lists, str or bytes"
        ) from error


def content_type_of(headers: Iterable[Header]) -> ContentType | None:
    for name, value in headers:
        if name.lower() == CONTENT_TYPE and value is not None:
            return NAMES.get(value.decode("utf-8", "replace").partition(";")[0].strip().lower())
    return None


def _without_none(body_type: Any) -> tuple[Any, bool]:
    """`X | None` -> X, True."""
    if body_type is Any:
        return body_type, True
    if typing.get_origin(body_type) not in (typing.Union, types.UnionType):
        return body_type, False
    members = typing.get_args(body_type)
    if type(None) not in members:
        return body_type, False
    return typing.Union[tuple(member for member in members if member is not type(None))], True  # noqa: UP007


def _readers(body_type: Any) -> dict[ContentType, Reader]:
    if body_type is bytes:
        return dict.fromkeys(ContentType, _as_is)
    if body_type is str:
        return dict.fromkeys(ContentType, _as_text)
    if _is_pydantic(body_type):
        return {
            ContentType.JSON: body_type.model_validate_json,
            ContentType.MSGPACK: partial(_pydantic_msgpack, body_type),
        }
    try:
        if isinstance(msgspec.inspect.type_info(body_type), msgspec.inspect.CustomType):
            raise TypeError("msgspec does not support it")
        return {
            ContentType.JSON: msgspec.json.Decoder(body_type).decode,
            ContentType.MSGPACK: msgspec.msgpack.Decoder(body_type).decode,
        }
    except TypeError as error:
        name = getattr(body_type, "__qualname__", str(body_type))
        raise TypeError(
            f"{name} cannot be a task's body: {error}; annotate it with a msgspec.Struct, a dataclass, a TypedDict, "
            "a pydantic model, dict, list, str, or bytes for the raw value"
        ) from None


def _is_pydantic(body_type: Any) -> bool:
    return (
        isinstance(body_type, type)
        and hasattr(body_type, "model_validate_json")
        and hasattr(body_type, "model_dump_json")
    )


def _pydantic_msgpack(model: Any, value: bytes) -> Any:
    return model.model_validate(msgspec.msgpack.decode(value))


def _as_is(value: bytes) -> bytes:
    return bytes(value)


def _as_text(value: bytes) -> str:
    return bytes(value).decode()
