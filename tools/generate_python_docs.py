"""The public Python names, their signatures and docstrings, for docs/reference/python.md. `make docs` runs it.

Everything is taken from the source text, so that types read as they are written there. A public method without a
docstring is shown by its signature alone; names that begin with an underscore are not shown.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

import headrace
from headrace.client.admin import results
from headrace.client.producing.future import SendFuture
from headrace.worker import Task
from headrace.worker.testing import QueueTest

SECTIONS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("Produce", (headrace.Producer, SendFuture, headrace.ProducerRecord, headrace.RecordMetadata)),
    (
        "Consume",
        (
            headrace.ShareConsumer,
            headrace.Delivery,
            headrace.DeliveryBatch,
            headrace.AcknowledgeType,
            headrace.TopicPartition,
        ),
    ),
    ("Workers", (headrace.Queue, Task, headrace.Backoff, headrace.Retry, headrace.Reject, QueueTest)),
    ("Manage topics and groups", (headrace.Admin,)),
    ("Run a broker", (headrace.Broker,)),
)
TWINS = {
    headrace.AsyncProducer: headrace.Producer,
    headrace.AsyncShareConsumer: headrace.ShareConsumer,
    headrace.AsyncAdmin: headrace.Admin,
}
"""The same names for asyncio: only what has to be awaited is listed."""
VERBATIM = re.compile(r"^(?: |-|\||```)", re.MULTILINE)
"""Code, lists and tables."""
PARAMETER = re.compile(r"`\w+`(?: and `\w+`)?(?: \([^)]*\))?: ")
DEFAULT = re.compile(r"(?<=[\w\])'])=(?=\S)")
LINE_LENGTH = 90
Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_names() -> str:
    parts: list[str] = []
    for title, classes in SECTIONS:
        parts.append(f"## {title}\n\n")
        for each in classes:
            parts += [_render_class(each), *(_render_twin(twin) for twin, of in TWINS.items() if of is each)]
    parts.append("## Results of the admin client\n\n")
    parts += [_render_class(each) for each in _dataclasses(results.__name__)]
    return "".join(parts).rstrip("\n") + "\n"


def _dataclasses(module: str) -> Iterator[type]:
    for each in vars(sys.modules[module]).values():
        if isinstance(each, type) and each.__module__ == module and hasattr(each, "__dataclass_fields__"):
            yield each


def _tree(cls: type) -> ast.ClassDef:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    return tree


def _home(cls: type) -> str:
    """The nearest package that has it among its public names."""
    packages = ("headrace", "headrace.worker", "headrace.client.admin")
    return next((one for one in packages if cls.__name__ in sys.modules[one].__all__), cls.__module__)


def _render_class(cls: type) -> str:
    tree = _tree(cls)
    parts = [f"### `{cls.__name__}`\n\n", f"`from {_home(cls)} import {cls.__name__}`\n\n"]
    init = next((one for one in tree.body if isinstance(one, Function) and one.name == "__init__"), None)
    if init is not None:
        parts.append(f"```text\n{cls.__name__}{_arguments(init, cls)}\n```\n\n")
    document = ast.get_docstring(tree)
    parts.append(f"{_unwrapped(document)}\n\n" if document else "")
    fields = list(_fields(tree))
    if fields:
        parts.append("| field | type | |\n|---|---|---|\n")
        parts += [f"| `{name}` | `{kind}` | {text} |\n".replace("`` ", "") for name, kind, text in fields]
        parts.append("\n")
    parts += [_render_method(one, cls) for one in _methods(tree)]
    return "".join(parts)


def _render_twin(cls: type) -> str:
    awaited = [one.name for one in _methods(_tree(cls)) if isinstance(one, ast.AsyncFunctionDef)]
    plain = TWINS[cls].__name__
    names = ", ".join(f"`{name}`" for name in awaited)
    return (
        f"### `{cls.__name__}`\n\n`from headrace import {cls.__name__}`\n\n"
        f"The same as `{plain}` for asyncio, with `async with`. Await these methods: {names}.\n\n"
    )


def _fields(tree: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Annotated names and members of enumerations, with the string that follows them."""
    for one, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        name, kind = None, ""
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            default = f" = {ast.unparse(one.value)}" if isinstance(one.value, ast.Constant) else ""
            kind = ast.unparse(one.annotation).replace("|", "\\|").strip("'\"") + default
            name = one.target.id
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            name, kind = one.targets[0].id, f"= {ast.unparse(one.value)}"
        if name is not None and not name.startswith("_"):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield name, kind, " ".join(str(after.value.value).split()) if is_text else ""  # type: ignore[union-attr]


def _methods(tree: ast.ClassDef) -> Iterator[Function]:
    return (one for one in tree.body if isinstance(one, Function) and not one.name.startswith("_"))


def _render_method(method: Function, cls: type) -> str:
    decorators = {ast.unparse(one) for one in method.decorator_list}
    is_property = bool(decorators & {"property", "cached_property"})
    returns = ast.unparse(method.returns).strip("'\"") if method.returns is not None else ""
    result = f" -> {returns}" if returns and returns != "None" else ""
    call = f"{method.name}: {returns}" if is_property else f"{method.name}{_arguments(method, cls)}{result}"
    if isinstance(method, ast.AsyncFunctionDef):
        call = f"await {call}"
    document = ast.get_docstring(method)
    text = textwrap.indent(_unwrapped(document), "    ") + "\n\n" if document else ""
    shown = (
        f"`{call}`"
        if "\n" not in call
        else f"`{method.name}`\n\n" + textwrap.indent(f"```text\n{call}\n```", "    ")
    )
    return f"-   {shown}\n\n{text}"


def _unwrapped(document: str) -> str:
    """Without line breaks inside of sentences, as on all pages. Lines about parameters become a list."""
    blocks = document.split("\n\n")
    return "\n\n".join(block if VERBATIM.search(block) else _unwrapped_block(block) for block in blocks)


def _unwrapped_block(block: str) -> str:
    pieces: list[str] = []
    for line in block.splitlines():
        if PARAMETER.match(line):
            pieces.append(f"- {line}")
        elif pieces:
            pieces[-1] += f" {line}"
        else:
            pieces.append(line)
    text = "\n".join(pieces)
    return text if len(pieces) == 1 or PARAMETER.match(block) else text.replace("\n", "\n\n", 1)


def _arguments(method: Function, cls: type) -> str:
    """As written, without self; a default that is a constant of the module is shown by its value."""
    given = method.args
    first = (given.posonlyargs or given.args)[:1]
    if first and first[0].arg in ("self", "cls"):
        (given.posonlyargs or given.args).pop(0)
    module = vars(sys.modules[cls.__module__])
    for defaults in (given.defaults, given.kw_defaults):
        for index, default in enumerate(defaults):
            if isinstance(default, ast.Name) and isinstance(module.get(default.id), int | float | str):
                defaults[index] = ast.Constant(module[default.id])
    text = DEFAULT.sub(" = ", ast.unparse(given).removeprefix("/, "))
    return f"({text})" if len(text) <= LINE_LENGTH else "(\n    " + ",\n    ".join(_pieces(text)) + ",\n)"


def _pieces(text: str) -> list[str]:
    """Cut at the commas outside of brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]
