r"""How a record is printed: kcat's format strings, and JSON lines.

    %t topic       %p partition    %o offset      %T timestamp, ms since 1970
    %k key         %s value        %h headers, name=value with commas between them
    %K %S          length of key and value in bytes, -1 where there is none      %R of the value, 4 bytes big-endian
    %D deliveries, with this one   %A when the lock ends, ms since 1970          (share groups only)
    %%  \n  \r  \t  \\  \xNN

Pure: a record in, bytes out. Keys and values go out as they are; what is absent is empty.
"""

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

VALUE = "%s\\n"
VERBOSE = "CreateTime:%T\\tPartition:%p\\tOffset:%o\\tDelivery:%D\\t%h\\t%k\\t%s\\n"
VERBOSE_CONSUMER = "CreateTime:%T\\tPartition:%p\\tOffset:%o\\t%h\\t%k\\t%s\\n"
_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A record as far as it is printed, of a share group or of another."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    delivery_count: int | None = None
    lock_deadline_ms: int | None = None


Format = Callable[[Shown], bytes]
_FIELDS: dict[str, Format] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "K": lambda record: b"%d" % _length(record.key),
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "D": lambda record: _number(record.delivery_count),
    "A": lambda record: _number(record.lock_deadline_ms),
    "%": lambda _: b"%",
}
_SHARE_ONLY = ("D", "A")


def parse_format(text: str, *, is_share: bool = True) -> Format:
    """ValueError names what cannot be understood, and what could."""
    parts: list[Format] = []
    for found in _TOKEN.finditer(text):
        percent, escape = found[1], found[2]
        if percent is not None:
            parts.append(_field(percent, is_share))
        elif escape is not None:
            parts.append(_fixed(_unescape(escape)))
        else:
            parts.append(_fixed(found[0].encode()))
    return lambda record: b"".join(part(record) for part in parts)


def json_line(record: Shown) -> bytes:
    """One object a line. What is no UTF-8 is null, and stands in base64 beside it."""
    said: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_texts("key", record.key),
        **_texts("value", record.value),
        "headers": [{"name": name, **_texts("value", value)} for name, value in record.headers],
    }
    if record.delivery_count is not None:
        said |= {"delivery_count": record.delivery_count, "lock_deadline": record.lock_deadline_ms}
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"


def _field(name: str, is_share: bool) -> Format:
    if name not in _FIELDS:
        known = " ".join(f"%{one}" for one in _FIELDS)
        raise ValueError(f"%{name} is not a valid format specifier; expected one of {known}")
    if name in _SHARE_ONLY and not is_share:
        raise ValueError(f"%{name} is for share groups only; omit it with --consumer-group")
    return _FIELDS[name]


def _unescape(escape: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _ESCAPES:
        raise ValueError(f"\\{escape} is not a valid escape; expected one of \\n \\r \\t \\0 \\\\ and \\xNN")
    return _ESCAPES[escape]


def _fixed(data: bytes) -> Format:
    return lambda _: data


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _number(value: int | None) -> bytes:
    return b"" if value is None else b"%d" % value


def _texts(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(data).decode()}
