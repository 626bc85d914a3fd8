"""The share client's core is closed: nothing outside `client/core` sets a field of one of its objects."""

import ast
from collections.abc import Iterator

from tests.tidy.tree import REPOSITORY, modules, name_of, parsed

CORE = REPOSITORY / "src" / "headrace" / "client" / "core"
BROKER = REPOSITORY / "src" / "headrace" / "broker"
"""It has a core of its own, and never sees the client's."""
NAMES = {"core", "_core", "holdings"}
"""What its users call the core, and the owner of the acquired ranges inside it."""


def set_in_the_core(tree: ast.Module) -> Iterator[str]:
    """Fields that are set on the core, or on what is reached through it."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=target, attr=name, ctx=ast.Store() | ast.Del()):
                pass
            case ast.Call(func=ast.Name(id="setattr"), args=[target, ast.Constant(value=str(name)), *_]):
                pass
            case _:
                continue
        reached = ast.unparse(target)
        if set(reached.split(".")) & NAMES:
            yield f"{reached}.{name}"


def life_of_a_range(tree: ast.Module) -> Iterator[str]:
    """Where acquired ranges are made, or something is applied to one: that is for `Holdings` alone."""
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


def test_a_field_that_is_set_from_outside_is_found() -> None:
    text = (
        "self._member.core.is_paused = True; member.core.holdings.lock_ms += 1; setattr(core, 'capacity', 7)"
    )
    assert sorted(set_in_the_core(ast.parse(text))) == [
        "core.capacity",
        "member.core.holdings.lock_ms",
        "self._member.core.is_paused",
    ]
    assert [*set_in_the_core(ast.parse("member.core.configure(capacity=7); self._core = core"))] == []
