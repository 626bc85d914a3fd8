"""The reference of the command line, from the Typer application itself: what `--help` says, as a page."""

from collections.abc import Iterator, Sequence
from typing import Any

from typer.main import get_command

from headrace.cli.app import app
from headrace.cli.options import CONNECTION

ORDER = (
    "serve",
    "backup",
    "log",
    "demo",
    "topic",
    "produce",
    "consume",
    "read",
    "group",
    "user",
    "acl",
    "state",
    "explain",
    "dlq",
    "schedule",
    "outbox",
    "top",
    "worker",
    "web",
    "bench",
)


def commands() -> str:
    root = get_command(app)
    names = root.commands  # type: ignore[attr-defined]
    assert set(names) == set(ORDER), f"put {set(names) ^ set(ORDER)} in its place in ORDER"
    return "\n".join(line for name in ORDER for line in _section(names[name], ["headrace", name]))


def connection_options() -> str:
    """Of the options that commands share; each says the same everywhere."""
    consume = get_command(app).commands["consume"]  # type: ignore[attr-defined]
    shared = [each for each in consume.params if each.rich_help_panel == CONNECTION or each.name == "json"]
    return "\n".join(_table(shared))


def _section(command: Any, words: Sequence[str]) -> Iterator[str]:
    yield f"{'#' * len(words)} `{' '.join(words)}`"
    yield ""
    prose, examples = _text(command.help or "")
    yield from prose
    if hasattr(command, "commands"):
        for name, sub in command.commands.items():
            yield from _section(sub, [*words, name])
        return
    usage = " ".join(
        [*words, *(_argument(each) for each in command.params if not _is_option(each)), "[OPTIONS]"]
    )
    yield from ["```", usage, "```", ""]
    own = [
        each
        for each in command.params
        if each.rich_help_panel != CONNECTION and each.name not in ("json", "help")
    ]
    rows = [each for each in own if _is_option(each) or each.help]
    if rows:
        yield from _table(rows)
    if any(each.rich_help_panel == CONNECTION for each in command.params):
        yield "And the [connection options](#connection).\n"
    if examples:
        yield from ["```sh", *examples, "```", ""]


def unescaped(text: str) -> str:
    """Rich's own escapes are not shown."""
    return text.replace("\\[", "[")


def _text(help_text: str) -> tuple[list[str], list[str]]:
    """Paragraphs, and the lines of the example: the block that begins with a backspace, or a line of its own."""
    prose: list[str] = []
    examples: list[str] = []
    for paragraph in help_text.strip().split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0] == "\b":
            examples += lines[1:]
        elif paragraph.startswith("Example: "):
            examples.append(paragraph.removeprefix("Example: "))
        else:
            prose += [" ".join(line.strip() for line in lines), ""]
    return prose, examples


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _table(parameters: Sequence[Any]) -> list[str]:
    lines = ["| option | what it does | default |", "|---|---|---|"]
    for each in parameters:
        lines.append(f"| {_spelling(each)} | {_cell(unescaped(each.help or ''))} | {_default(each)} |")
    return [*lines, ""]


def _spelling(parameter: Any) -> str:
    if not _is_option(parameter):
        return f"`{_argument(parameter)}`".replace("|", "\\|")
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    value = parameter.metavar or ("" if parameter.is_flag else parameter.name.upper())
    return f"{names} {value}".strip().replace("|", "\\|")


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`" if " " not in parameter.show_default else parameter.show_default
    if parameter.default in (None, False, (), []) or getattr(parameter, "is_flag", False):
        return ""
    return f"`{parameter.default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
