"""The share client's core is closed: nothing outside `client/core` sets a field of one of its objects."""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.tidy.tree import REPOSITORY, modules, name_of, parsed

CORE = REPOSITORY / "src" / "headrace" / "client" / "core"
BROKER = REPOSITORY / "src" / "headrace" / "broker"
"""It has a core of its own, and never sees the client's."""
NAMES = {"core", "_core", "hands", "_hands", "holdings", "_holdings", "acquired", "_acquired"}
"""What its users call the core, its two halves with the acquired ranges, and one of these ranges."""

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@cache
def core_classes() -> frozenset[str]:
    trees = [parsed(path) for path in modules("src") if path.parent == CORE]
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def set_in_the_core(tree: ast.Module) -> Iterator[str]:
    """Fields and items that are set on the core, or on what is reached through it, directly or by another name."""
    scopes: list[Scope] = [node for node in ast.walk(tree) if isinstance(node, Scope)]
    for scope in scopes:
        names = _names_of_the_core(scope)
        for node in _own_nodes(scope):
            match node:
                case ast.Attribute(value=target, attr=name, ctx=ast.Store() | ast.Del()):
                    said = f"{ast.unparse(target)}.{name}"
                case ast.Subscript(value=target, ctx=ast.Store() | ast.Del()):
                    if not isinstance(target, ast.Attribute):
                        continue  # a list or dict of the function's own, perhaps of what it found in the core
                    said = ast.unparse(node)
                case ast.Call(func=ast.Name(id="setattr"), args=[target, ast.Constant(value=str(name)), *_]):
                    said = f"{ast.unparse(target)}.{name}"
                case _:
                    continue
            if _reaches(target, names):
                yield said


def _own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """Without those of functions inside, which are scopes of their own."""
    waiting: list[ast.AST] = [*ast.iter_child_nodes(scope)]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Scope):
            waiting += ast.iter_child_nodes(node)


def _names_of_the_core(scope: Scope) -> set[str]:
    """The names by which a function reaches the core: those of its parameters' types, and what it assigns from it."""
    names = set(NAMES)
    if not isinstance(scope, ast.Module):
        arguments = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
        names |= {one.arg for one in arguments if _is_of_the_core(one.annotation)}
    bindings = [binding for node in _own_nodes(scope) for binding in _bindings(node)]
    while True:
        found = {name for name, value in bindings if _reaches(value, names)} - names
        if not found:
            return names
        names |= found


def _is_of_the_core(annotation: ast.expr | None) -> bool:
    text = "" if annotation is None else ast.unparse(annotation).strip("'\"").removesuffix(" | None")
    return text in core_classes()


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[target], value=value):
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = [*zip(target.elts, value.elts, strict=False)]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(target, value)]
        case ast.NamedExpr(target=target, value=value) | ast.For(target=target, iter=value):
            pairs = [(target, value)]
        case _:
            return
    for target, value in pairs:
        for name in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(name, ast.Name):
                yield name.id, value


def _reaches(target: ast.expr, names: set[str]) -> bool:
    """It is a path of attributes, items and `values()` that goes through the core."""
    while True:
        match target:
            case ast.Name(id=name):
                return name in names
            case ast.Attribute(value=below, attr=name):
                if name in names & NAMES:
                    return True
                target = below
            case ast.Subscript(value=below):
                target = below
            case ast.Call(func=ast.Attribute(value=below, attr="get" | "items" | "pop" | "values")):
                target = below
            case _:
                return False


def life_of_a_range(tree: ast.Module) -> Iterator[str]:
    """Where acquired ranges are made, or something is applied to one: that is for the core alone."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="AcquiredRange") | ast.Attribute(attr="AcquiredRange")):
                yield ast.unparse(node.func)
            case ast.Call(
                func=ast.Attribute(attr="apply" | "apply_to"),
                args=[ast.Attribute(value=ast.Name(id="RangeCause" | "C")), *_],
            ):
                yield ast.unparse(node.func)
            case ast.Attribute(
                attr="apply" | "apply_to", value=ast.Name(id="acquired") | ast.Attribute(attr="acquired")
            ):
                yield ast.unparse(node)


def test_nothing_outside_the_core_decides_about_an_acquired_range() -> None:
    users = [path for path in modules("src") if path.parent != CORE and not path.is_relative_to(BROKER)]
    found = {name_of(path): sorted({*life_of_a_range(parsed(path))}) for path in users}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_a_range_that_is_made_or_changed_outside_the_core_is_found() -> None:
    text = "one = AcquiredRange(); core.ranges.AcquiredRange(); one.apply(RangeCause.LOSE); x.acquired.apply(cause)"
    assert sorted(life_of_a_range(ast.parse(text))) == [
        "AcquiredRange",
        "core.ranges.AcquiredRange",
        "one.apply",
        "x.acquired.apply",
    ]
    assert [*life_of_a_range(ast.parse("producer_states.apply(producer); sequence.apply(0)"))] == []


def test_nothing_outside_the_core_sets_its_fields() -> None:
    users = [path for path in modules("src") if path.parent != CORE and not path.is_relative_to(BROKER)]
    assert len(users) > 300
    found = {name_of(path): [*set_in_the_core(parsed(path))] for path in users}
    assert {name: fields for name, fields in found.items() if fields} == {}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("self._member.core.is_paused = True", "self._member.core.is_paused"),
        ("member.core.holdings.lock_ms += 1", "member.core.holdings.lock_ms"),
        ("setattr(core, 'capacity', 7)", "core.capacity"),
        ("self._holdings._told = []", "self._holdings._told"),
        ("self._holdings.lanes[0] = 1", "self._holdings.lanes[0]"),
        ("del core.holdings.lanes[0]", "core.holdings.lanes[0]"),
        ("acquired.lock_until_ms = 5", "acquired.lock_until_ms"),
        ("session = self._core.sessions[0]\nsession.is_old = True", "session.is_old"),
        ("for one in core.sessions.values():\n    one.is_old = True", "one.is_old"),
        ("first = self._core\nsecond = first.placement\nsecond.wanted = ()", "second.wanted"),
        ("def f(here: AcquiredRange):\n    here.delivery_count = 1", "here.delivery_count"),
    ],
)
def test_a_field_that_is_set_from_outside_is_found(text: str, field: str) -> None:
    assert [*set_in_the_core(ast.parse(text))] == [field]


@pytest.mark.parametrize(
    "text",
    [
        "member.core.configure(capacity=7); self._core = core",
        "counts = {}\ncounts[core.capacity] = 1",
        "session = self._sessions[0]\nsession.is_old = True",
    ],
)
def test_a_call_of_the_core_and_a_field_of_ones_own_are_good(text: str) -> None:
    assert [*set_in_the_core(ast.parse(text))] == []
