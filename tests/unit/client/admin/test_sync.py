"""Goal: the two faces of the admin client are the same, but for waiting."""

import inspect

from headrace.client.admin import Admin, AsyncAdmin


def methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(function)
        for name, function in vars(kind).items()
        if inspect.isfunction(function) and (not name.startswith("_") or name == "__init__")
    }


def test_they_have_the_same_methods_with_the_same_arguments_and_results() -> None:
    assert methods(Admin) == methods(AsyncAdmin)


def test_every_method_of_the_one_waits_and_none_of_the_other() -> None:
    for name in methods(Admin):
        if name != "__init__":
            assert inspect.iscoroutinefunction(getattr(AsyncAdmin, name)), name
            assert not inspect.iscoroutinefunction(getattr(Admin, name)), name


def test_every_method_is_documented() -> None:
    for kind in (Admin, AsyncAdmin):
        for name in methods(kind):
            assert name == "__init__" or getattr(kind, name).__doc__, f"{kind.__name__}.{name}"
