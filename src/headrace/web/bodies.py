"""Keys, values and headers for people: JSON laid out, text as text, the rest in hexadecimal, never too much."""

from collections.abc import Iterable

from headrace.base.text import printable_lines
from headrace.web.json_layout import lay_out
from headrace.web.model import Body, RecordRow
from headrace.wire.records import Record

PREVIEW_MAX = 300
WHOLE_MAX = 64 * 1024
HEADERS_MAX = 100
HEX_COLUMN = 32


def body_of(data: bytes | None, *, length_max: int, laid_out: bool = False) -> Body:
    """`length_max` is in characters of the answer. Only what is shown is decoded."""
    if data is None:
        return Body(kind="null", text="", size=0)
    if not data:
        return Body(kind="empty", text="", size=0)
    seen = data[: 4 * length_max]
    is_part = len(seen) < len(data)
    text = _text(seen, is_part=is_part)
    if text is None:
        return _hex(data, length_max)
    kind = "text"
    if not is_part and text.lstrip()[:1] in ("{", "["):
        try:
            layout = lay_out(text)
        except (ValueError, RecursionError):
            pass
        else:
            kind = "json"
            if laid_out:
                text = layout
    is_cut = is_part or len(text) > length_max
    shown = text[:length_max]
    if kind == "json":
        return Body(kind="json", text=shown, size=len(data), is_cut=is_cut)
    return Body(kind="text", text=shown, size=len(data), is_cut=is_cut)


def row_of(record: Record, partition: int, *, whole: bool = False) -> RecordRow:
    length_max = WHOLE_MAX if whole else PREVIEW_MAX
    return RecordRow(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=body_of(record.key, length_max=length_max),
        value=body_of(record.value, length_max=length_max, laid_out=whole),
        headers=tuple(_headers(record.headers)),
    )


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> Iterable[tuple[str, str]]:
    for position, (name, value) in enumerate(headers):
        if position == HEADERS_MAX:
            yield "…", "more headers are not shown"
            return
        body = body_of(value, length_max=PREVIEW_MAX)
        yield name, "null" if body.kind == "null" else body.text + ("…" if body.is_cut else "")


def _text(data: bytes, *, is_part: bool) -> str | None:
    """None if it is no text. A part may end in the middle of a character."""
    for end in range(len(data), max(0, len(data) - (4 if is_part else 1)), -1):
        try:
            text = data[:end].decode()
        except UnicodeDecodeError:
            continue
        in_lines = text.replace("\r", "")
        return text if printable_lines(in_lines) == in_lines else None
    return None


def _hex(data: bytes, length_max: int) -> Body:
    seen = data[: length_max // 3]
    lines = [seen[begin : begin + HEX_COLUMN].hex(" ") for begin in range(0, len(seen), HEX_COLUMN)]
    return Body(kind="hex", text="\n".join(lines), size=len(data), is_cut=len(seen) < len(data))
