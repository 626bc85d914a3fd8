"""Turns messages into bytes and back: one reader and one writer per message and version, compiled on first use.

Theory of operation. A generated message class carries a table of its fields (`SCHEMA`). For a version, the table says
exactly which bytes follow which, so we write that down once as straight Python source, compile it and keep it:
neighboring numbers become one `struct` call, and no version is compared while a request is read. A request
that is cut short, counts more elements than it has bytes, or holds text that is not UTF-8 raises `MalformedMessage`.
So does one with more elements in its lists than the caller allows; only messages that are long enough to have so many
are read by a reader that counts.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from headrace.wire.message import F, Message

M = TypeVar("M", bound=Message)
Reader = Callable[[bytes, int, int], tuple[Any, int]]
CountingReader = Callable[[bytes, int, int, list[int]], tuple[Any, int]]
"""Also takes, in a list of one, how many elements may still come."""
Writer = Callable[[Any, bytearray], None]

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
SHORT = struct.Struct(">h")
INT = struct.Struct(">i")
BYTE = [bytes([number]) for number in range(128)]
SMALL_NUMBERS = 64
"""So many numbers of one byte count as one element: acknowledgements have one for each record."""
LARGE = 1 << 14
"""Records from this size on are not copied into a `Gathered`. Below it, copying is cheaper than one piece more."""


class MalformedMessage(Exception):
    """Bytes that are no message of this kind and version. The sender has a fault, or speaks another protocol."""


class TooManyElements(MalformedMessage):
    """The lists of a message have more elements than are allowed."""


class UnsupportedField(Exception):
    """A field was set that this version of the message cannot carry. Use a newer version, or leave the field out."""


class Gathered(bytearray):
    """A message on its way to a socket, in pieces: large records are named by it, not copied into it.

    It holds all other bytes. `pieces` gives everything in order, `size` its length.
    """

    __slots__ = ("_large",)

    def __init__(self, start: bytes = b"") -> None:
        super().__init__(start)
        self._large: list[tuple[int, bytes]] = []

    def attach(self, data: bytes) -> None:
        self._large.append((len(self), data))

    @property
    def size(self) -> int:
        return len(self) + sum(len(data) for _, data in self._large)

    def pieces(self) -> list[bytes | bytearray]:
        if not self._large:
            return [self]
        pieces: list[bytes | bytearray] = []
        position = 0
        for cut, data in self._large:
            pieces += (self[position:cut], data)
            position = cut
        if position < len(self):
            pieces.append(self[position:])
        return pieces


class EncodedItems:
    """A list of a response whose items are written already; see `encode_items`. It can only be written."""

    __slots__ = ("count", "data")

    def __init__(self) -> None:
        self.count = 0
        self.data = bytearray()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def write_large(out: bytearray, data: bytes) -> None:
    if type(out) is Gathered:
        out.attach(data)
    else:
        out += data


def read_message(
    message: type[M], version: int, data: bytes, position: int = 0, *, elements_max: int | None = None
) -> tuple[M, int]:
    """The message at `position`, and where it ends. Its lists may have `elements_max` elements, all together."""
    size = len(data)
    try:
        if elements_max is None or size - position <= elements_max:  # an element has at least one byte
            return reader(message, version)(data, position, size)
        return _counting_reader(message, version)(data, position, size, [elements_max])
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise MalformedMessage(f"{message.__name__} v{version}: {error}") from None


def write_message(message: Message, version: int, out: bytearray) -> None:
    writer(type(message), version)(message, out)


def encode(message: Message, version: int) -> bytes:
    out = bytearray()
    write_message(message, version, out)
    return bytes(out)


def write_uvarint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
        if shift > 28:
            raise MalformedMessage("a length of more than five bytes")


def _short(what: str) -> MalformedMessage:
    return MalformedMessage(f"cut short in {what}")


def _null(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} must not be null")


def _too_many() -> TooManyElements:
    return TooManyElements("too many elements")


def _unsupported(message: str, field: str, version: int) -> UnsupportedField:
    return UnsupportedField(f"{message} v{version} cannot carry {field}")


_readers: dict[tuple[type[Message], int], Reader] = {}
_counting_readers: dict[tuple[type[Message], int], CountingReader] = {}
_item_writers: dict[tuple[type[Message], tuple[str, ...], int], Writer] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}


def reader(message: type[Message], version: int) -> Reader:
    found = _readers.get((message, version))
    if found is None:
        found = _ReaderSource(message, version, version >= message.FLEXIBLE_FROM).build()
        _readers[message, version] = found
    return found


def _counting_reader(message: type[Message], version: int) -> CountingReader:
    found = _counting_readers.get((message, version))
    if found is None:
        source = _ReaderSource(message, version, version >= message.FLEXIBLE_FROM, is_counting=True)
        built: Any = source.build()
        found = _counting_readers[message, version] = built
    return found


def encode_items(
    response: type[Message], path: tuple[str, ...], version: int, items: Sequence[Message], out: EncodedItems
) -> None:
    """Writes items of one list of a response; `path` names the list, and before it those it is in."""
    write = _item_writer(response, path, version)
    for item in items:
        write(item, out.data)
    out.count += len(items)


def _item_writer(response: type[Message], path: tuple[str, ...], version: int) -> Writer:
    found = _item_writers.get((response, path, version))
    if found is None:
        struct: type[Message] = response
        for name in path:
            (struct,) = (field.struct for field in struct.SCHEMA if field.name == name and field.struct)
        found = _WriterSource(struct, version, version >= response.FLEXIBLE_FROM, is_response=True).build()
        _item_writers[response, path, version] = found
    return found


def writer(message: type[Message], version: int) -> Writer:
    found = _writers.get((message, version))
    if found is None:
        is_response = message.__name__.endswith("Response")
        is_flexible = version >= message.FLEXIBLE_FROM
        found = _WriterSource(message, version, is_flexible, is_response=is_response).build()
        _writers[message, version] = found
    return found


def _within(version: int, interval: tuple[int, int] | None) -> bool:
    return interval is not None and interval[0] <= version <= interval[1]


class _Source:
    """Lines of one function, and the names they use."""

    def __init__(self, message: type[Message], version: int, is_flexible: bool) -> None:
        self.message = message
        self.version = version
        self.is_flexible = is_flexible
        self.names: dict[str, Any] = {
            "short": _short,
            "too_many": _too_many,
            "EncodedItems": EncodedItems,
            "null": _null,
            "unsupported": _unsupported,
            "uvarint": read_uvarint,
            "write_uvarint": write_uvarint,
            "write_large": write_large,
            "BYTE": BYTE,
            "read_short": SHORT.unpack_from,
            "read_int": INT.unpack_from,
            "pack_short": SHORT.pack,
            "pack_int": INT.pack,
            "unpack_many": struct.unpack_from,
            "pack_many": struct.pack,
            "message": message,
        }
        self.lines: list[str] = []
        self.depth = 1

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, value: object) -> str:
        key = f"n{len(self.names)}"
        self.names[key] = value
        return key

    def untagged(self) -> list[F]:
        return [f for f in self.message.SCHEMA if _within(self.version, f.versions) and not self.is_tagged(f)]

    def tagged(self) -> list[F]:
        fields = [f for f in self.message.SCHEMA if _within(self.version, f.versions) and self.is_tagged(f)]
        return sorted(fields, key=lambda f: f.tag)

    def is_tagged(self, field: F) -> bool:
        return self.is_flexible and _within(self.version, field.tagged)

    def is_nullable(self, field: F) -> bool:
        return _within(self.version, field.nullable)

    def default(self, field: F) -> str:
        defaults: Any = self.message.__init__
        return self.name(defaults.__kwdefaults__[field.name])

    def compile(self, head: str) -> Any:
        source = "\n".join([head, *self.lines])
        where = f"<{self.message.__name__} v{self.version}>"
        exec(compile(source, where, "exec"), self.names)
        return self.names["function"]

    def runs(self) -> list[list[F]]:
        """The untagged fields, neighboring fixed-size ones together."""
        runs: list[list[F]] = []
        for field in self.untagged():
            if field.kind in FIXED and runs and runs[-1][-1].kind in FIXED:
                runs[-1].append(field)
            else:
                runs.append([field])
        return runs


class _ReaderSource(_Source):
    def __init__(
        self, message: type[Message], version: int, is_flexible: bool, *, is_counting: bool = False
    ) -> None:
        super().__init__(message, version, is_flexible)
        self.is_counting = is_counting
        self.parameters = "b, p, n, left" if is_counting else "b, p, n"

    def build(self) -> Reader:
        self("o = new(message)")
        self.names["new"] = object.__new__
        present = {field.name for field in self.untagged()}
        for field in self.message.SCHEMA:
            if field.name not in present:
                self(f"o.{field.name} = {self.default(field)}")
        for run in self.runs():
            if run[0].kind in FIXED:
                layout = struct.Struct(">" + "".join(FIXED[field.kind] for field in run))
                targets = ", ".join(f"o.{field.name}" for field in run)
                self(f"{targets}, = {self.name(layout.unpack_from)}(b, p)")
                self(f"p += {layout.size}")
            else:
                self.value(run[0])
        if self.is_flexible:
            self.tags()
        self("return o, p")
        result: Reader = self.compile(f"def function({self.parameters}):")
        return result

    def tags(self) -> None:
        self("k = b[p]; p += 1")
        self("if k:")  # most structs have none
        self.depth += 1
        self("if k > 127: k, p = uvarint(b, p - 1)")
        self.spend("k")
        self("for _ in range(k):")
        self.depth += 1
        self("tag, p = uvarint(b, p)")
        self("size, p = uvarint(b, p)")
        self("end = p + size")
        self("if end > n: raise short('a tagged field')")
        for field in self.tagged():
            self(f"if tag == {field.tag}:")
            self.depth += 1
            if field.kind in FIXED:
                self(
                    f"o.{field.name}, = {self.name(struct.Struct('>' + FIXED[field.kind]).unpack_from)}(b, p)"
                )
            else:
                # Its own end is the limit: many tags that claim the rest of the message would read it once for each.
                self("whole, n = n, end")
                self.value(field)
                self("n = whole")
            self.depth -= 1
        self("p = end")
        self.depth -= 2

    def spend(self, elements: str) -> None:
        if self.is_counting:
            self(f"left[0] -= {elements}")
            self("if left[0] < 0: raise too_many()")

    def count(self, field: F, *, is_array: bool) -> None:
        if self.is_flexible:
            self("k = b[p]; p += 1")
            self("if k > 127: k, p = uvarint(b, p - 1)")
            self("k -= 1")
        elif is_array or field.kind in ("bytes", "records"):
            self("k, = read_int(b, p); p += 4")
        else:
            self("k, = read_short(b, p); p += 2")

    def value(self, field: F) -> None:
        target = f"o.{field.name}"
        if field.kind == "struct":
            self.struct(field, target)
            return
        is_array = field.kind.startswith("[]")
        self.count(field, is_array=is_array)
        self("if k < 0:")
        what = f"{self.message.__name__}.{field.name}"
        self(f"    {target} = None" if self.is_nullable(field) else f"    raise null({what!r})")
        self("else:")
        self.depth += 1
        if is_array:
            self.elements(field, target, what)
        else:
            self("e = p + k")
            self(f"if e > n: raise short({what!r})")
            self(f"{target} = b[p:e]" + (".decode()" if field.kind == "string" else ""))
            self("p = e")
        self.depth -= 1

    def struct(self, field: F, target: str) -> None:
        assert field.struct is not None
        call = f"{target}, p = {self.name(self.nested(field.struct))}({self.parameters})"
        if not self.is_nullable(field):
            self(call)
            return
        self("k = b[p]; p += 1")
        # Null is -1, but 0 where the struct travels as a tagged field.
        self(f"if k {'== 0' if self.is_tagged(field) else '> 127'}: {target} = None")
        self(f"else: {call}")

    def nested(self, message: type[Message]) -> Reader:
        return _ReaderSource(message, self.version, self.is_flexible, is_counting=self.is_counting).build()

    def elements(self, field: F, target: str, what: str) -> None:
        element = field.kind[2:]
        if element in FIXED:
            size = struct.calcsize(">" + FIXED[element])
            self(f"if k * {size} > n - p: raise short({what!r})")
            self.spend(f"k // {SMALL_NUMBERS}" if element in ("int8", "bool") else "k")
            if element == "uuid":
                self(f"{target} = [b[i:i + 16] for i in range(p, p + 16 * k, 16)]")
            else:
                self(f"{target} = list(unpack_many(f'>{{k}}{FIXED[element]}', b, p))")
            self(f"p += {size} * k")
            return
        self(f"if k > n - p: raise short({what!r})")
        self.spend("k")
        self("a = []")
        if element == "struct":
            assert field.struct is not None
            nested = self.name(self.nested(field.struct))
            self("for _ in range(k):")
            self(f"    x, p = {nested}({self.parameters})")
            self("    a.append(x)")
        else:
            self("for _ in range(k):")
            self.depth += 1
            self.count(F("", element, (0, 0)), is_array=False)
            self(f"if k < 0: raise null({what!r})")
            self("e = p + k")
            self(f"if e > n: raise short({what!r})")
            self("a.append(b[p:e]" + (".decode())" if element == "string" else ")"))
            self("p = e")
            self.depth -= 1
        self(f"{target} = a")


class _WriterSource(_Source):
    def __init__(self, message: type[Message], version: int, is_flexible: bool, *, is_response: bool) -> None:
        """A response leaves out what its version cannot carry, in its structs too: handlers fill in all they know."""
        super().__init__(message, version, is_flexible)
        self.is_response = is_response

    def nested(self, message: type[Message]) -> str:
        source = _WriterSource(message, self.version, self.is_flexible, is_response=self.is_response)
        return self.name(source.build())

    def build(self) -> Writer:
        if not self.is_response:
            self.refuse_unsupported()
        for run in self.runs():
            if run[0].kind in FIXED:
                layout = struct.Struct(">" + "".join(FIXED[field.kind] for field in run))
                values = ", ".join(f"o.{field.name}" for field in run)
                self(f"out += {self.name(layout.pack)}({values})")
            else:
                self.value(run[0], f"o.{run[0].name}", "out")
        if self.is_flexible:
            self.tags()
        if not self.lines:
            self("pass")
        result: Writer = self.compile("def function(o, out):")
        return result

    def refuse_unsupported(self) -> None:
        for field in self.message.SCHEMA:
            if not field.ignorable and not _within(self.version, field.versions):
                is_set = f"o.{field.name} != {self.default(field)}"
                if field.kind.startswith("[]"):
                    is_set = f"o.{field.name}"  # an empty list says as little as an empty tuple
                self(f"if {is_set}:")
                self(f"    raise unsupported({self.message.__name__!r}, {field.name!r}, {self.version})")

    def tags(self) -> None:
        fields = self.tagged()
        if not fields:
            self("out.append(0)")
            return
        self("tags = []")
        for field in fields:
            value = f"o.{field.name}"
            default = self.default(field)
            test = f"{value} is not {default} and {value} != {default}"
            if field.kind.startswith("[]") and field.default == ():
                test = value if not self.is_nullable(field) else f"{value} is None or {value}"
            self(f"if {test}:")
            self.depth += 1
            self("t = bytearray()")
            if field.kind in FIXED:
                self(f"t += {self.name(struct.Struct('>' + FIXED[field.kind]).pack)}({value})")
            else:
                self.value(field, value, "t")
            self(f"tags.append(({field.tag}, t))")
            self.depth -= 1
        self("write_uvarint(out, len(tags))")
        self("for tag, t in tags:")
        self("    write_uvarint(out, tag)")
        self("    write_uvarint(out, len(t))")
        self("    out += t")

    def count(self, kind: str, out: str, *, is_array: bool) -> None:
        """Writes the length `k`; null is k == -1."""
        if self.is_flexible:
            self(f"if k < 127: {out} += BYTE[k + 1]")
            self(f"else: write_uvarint({out}, k + 1)")
        elif is_array or kind in ("bytes", "records"):
            self(f"{out} += pack_int(k)")
        else:
            self(f"{out} += pack_short(k)")

    def value(self, field: F, value: str, out: str) -> None:
        if field.kind == "struct":
            self.struct(field, value, out)
            return
        is_array = field.kind.startswith("[]")
        self(f"v = {value}")
        if self.is_nullable(field):
            self("if v is None:")
            self.depth += 1
            self("k = -1")
            self.count(field.kind, out, is_array=is_array)
            self.depth -= 1
            self("else:")
            self.depth += 1
        if is_array:
            self.elements(field, out)
        else:
            self.blob(field.kind, out)
        if self.is_nullable(field):
            self.depth -= 1

    def blob(self, kind: str, out: str) -> None:
        if kind == "string":
            self("v = v.encode()")
        self("k = len(v)")
        self.count(kind, out, is_array=False)
        if kind == "records":
            self(f"if k >= {LARGE}: write_large({out}, v)")
            self(f"else: {out} += v")
        else:
            self(f"{out} += v")

    def struct(self, field: F, value: str, out: str) -> None:
        assert field.struct is not None
        nested = self.nested(field.struct)
        if not self.is_nullable(field):
            self(f"{nested}({value}, {out})")
            return
        self(f"if {value} is None: {out}.append({0 if self.is_tagged(field) else 255})")
        self("else:")
        self(f"    {out}.append(1)")
        self(f"    {nested}({value}, {out})")

    def elements(self, field: F, out: str) -> None:
        element = field.kind[2:]
        self("k = len(v)")
        self.count(field.kind, out, is_array=True)
        if element == "uuid":
            self(f"{out} += b''.join(v)")
        elif element in FIXED:
            self(f"{out} += pack_many(f'>{{k}}{FIXED[element]}', *v)")
        elif element == "struct":
            assert field.struct is not None
            nested = self.nested(field.struct)
            if self.is_response:
                self(f"if type(v) is EncodedItems: {out} += v.data")
            self(f"for x in v: {nested}(x, {out})")
        else:
            self("for v in v:")
            self.depth += 1
            self.blob(element, out)
            self.depth -= 1
