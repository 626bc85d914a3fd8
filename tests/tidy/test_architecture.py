"""ARCHITECTURE.md names files, classes and functions that exist, where it says that they are."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.tree import GENERATED, REPOSITORY, modules, parsed

PAGE = REPOSITORY / "ARCHITECTURE.md"
PACKAGE = REPOSITORY / "src" / "headrace"
CODE = re.compile(r"`([^`\n]+)`")
DRAWING = re.compile(r"```.*?```", re.DOTALL)
NAME = re.compile(r"(?!__)((?:\w+\.)*\w+)(?:\([^)]*\))?")
"""A name in the code, perhaps with dots and a call. Names that start with two underscores are internal topics."""

PLACED = re.compile(r"`((?:\w+\.)*\w+)(?:\([^)`]*\))?` \(`([\w/]+\.py)`")
"""A name with its file behind it: `Class.method` (`path.py`)."""

FILE = re.compile(r"[\w./*-]*(?:\.(?:py|toml|txt|md)|/)")


@cache
def identifiers() -> frozenset[str]:
    """Whatever the sources define or use, and the names of their modules."""
    found: set[str] = set()
    for path in modules("src"):
        if GENERATED in path.parents:
            continue
        found |= {path.stem, path.parent.name}
        for node in ast.walk(parsed(path)):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name):
                    found.add(name)
    return frozenset(found)


@cache
def members() -> dict[str, frozenset[str]]:
    """What each class defines or inherits."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for path in modules("src"):
        for node in ast.walk(parsed(path)) if GENERATED not in path.parents else ():
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(_defined_by(node))
                bases.setdefault(node.name, []).extend(ast.unparse(base).split("[")[0] for base in node.bases)

    def all_of(name: str) -> frozenset[str]:
        return frozenset(own.get(name, ())).union(*(all_of(base) for base in bases.get(name, ())))

    return {name: all_of(name) for name in own}


def _defined_by(cls: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(cls):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def is_known_name(name: str) -> bool:
    first, *rest = name.split(".")
    if first in members():
        return set(rest) <= members()[first]
    return {first, *rest} <= identifiers()


def is_file(name: str) -> bool:
    """Below the repository, the package, or (a part of a path) anywhere in the sources and the tests."""
    name = name.rstrip("/")
    roots = [REPOSITORY, PACKAGE, *(path for path in PACKAGE.iterdir() if path.is_dir())]
    if any(any(root.glob(name)) for root in roots):
        return True
    return any(any((REPOSITORY / root).rglob(name)) for root in ("src", "tests"))


def unknown_names(text: str) -> list[str]:
    unknown = []
    for name in CODE.findall(DRAWING.sub("", text)):
        if FILE.fullmatch(name):
            is_known = is_file(name)
        elif found := NAME.fullmatch(name):
            is_known = is_known_name(found[1])
        else:
            is_known = True
        if not is_known:
            unknown.append(name)
    return unknown


def misplaced_names(text: str) -> list[str]:
    """Names that the file behind them does not define."""
    found = []
    for name, file in PLACED.findall(text):
        paths = [path for path in modules("src") if path.as_posix().endswith(f"/{file}")]
        if not any(set(name.split(".")) <= defined_in(path) for path in paths):
            found.append(f"{name} ({file})")
    return found


def defined_in(path: Path) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(parsed(path)) if isinstance(node, kinds)}


def test_every_name_in_the_architecture_exists() -> None:
    assert unknown_names(PAGE.read_text()) == []


def test_every_name_is_in_the_file_behind_it() -> None:
    assert misplaced_names(PAGE.read_text()) == []
    assert len(PLACED.findall(PAGE.read_text())) > 10


def test_a_name_in_another_file_is_found() -> None:
    assert misplaced_names("`PartitionLog.append` (`log/partition_log.py`)") == []
    assert misplaced_names("`PartitionLog.append` (`log/segment.py`)") != []
    assert misplaced_names("`Segment.no_such_method` (`log/segment.py`)") != []


def test_every_walk_is_a_numbered_list() -> None:
    walks = re.findall(
        r"^## ([^\n]*, step by step)\n(.*?)(?=^## )", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(walks) >= 5
    assert [title for title, text in walks if "\n1. " not in text] == []


@pytest.mark.parametrize(
    "name",
    ["`log/no_such_file.py`", "`NoSuchClass.append`", "`PartitionLog.no_such_method()`", "`Ledger.acquire`"],
)
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    assert unknown_names(f"It calls {name} then.") != []


def test_names_are_found_at_all() -> None:
    names = CODE.findall(PAGE.read_text())
    assert sum(1 for name in names if FILE.fullmatch(name)) > 30
    assert sum(1 for name in names if NAME.fullmatch(name)) > 30
