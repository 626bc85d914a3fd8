"""A task's declaration: what is wrong is said when it is declared, with the function's name and the cure."""

from dataclasses import dataclass

import pytest

from headrace.worker.backoff import Backoff
from headrace.worker.task import Pool, build_options, choose_pool, read_signature


@dataclass
class Email:
    to: str


async def on_the_loop(email: Email) -> None: ...


def on_a_thread(email: "Email", delivery: object) -> None: ...


GOOD = {
    "concurrency": 4,
    "retries": Backoff(),
    "dead_letter": None,
    "timeout": None,
    "key_order": False,
    "pool": None,
    "waiting": 10,
}


def test_the_body_is_the_first_argument_and_the_delivery_the_second():
    assert read_signature(on_the_loop) == (Email, False)
    assert read_signature(on_a_thread) == (Email, True)


def test_a_second_argument_with_a_default_is_the_functions_own():
    def function(email: Email, retries: int = 3, *, dry_run: bool = False) -> None: ...

    assert read_signature(function) == (Email, False)


def test_a_function_without_an_annotated_body_is_refused():
    def untyped(email): ...

    def empty() -> None: ...

    with pytest.raises(TypeError, match="its body 'email' has no type"):
        read_signature(untyped)
    with pytest.raises(TypeError, match="it takes no body"):
        read_signature(empty)


def test_a_function_that_needs_more_than_body_and_delivery_is_refused():
    def greedy(email: Email, delivery: object, mailbox: str, *, folder: str) -> None: ...

    with pytest.raises(TypeError, match="it needs mailbox, folder"):
        read_signature(greedy)


def test_a_second_parameter_that_is_not_a_delivery_is_refused():
    def add(a: int, b: int) -> int:
        return a + b

    def untyped(a: int, b) -> int:
        return a + b

    for function in (add, untyped):
        with pytest.raises(TypeError, match=r"its second parameter, b.*, is not a delivery"):
            read_signature(function)


def test_a_type_that_cannot_be_found_is_named():
    def lost(email: "Elsewhere") -> None: ...  # noqa: F821

    with pytest.raises(TypeError, match="'Elsewhere', cannot be found"):
        read_signature(lost)


def test_async_functions_run_on_the_loop_and_others_on_threads():
    assert choose_pool(on_the_loop, None) is Pool.LOOP
    assert choose_pool(on_a_thread, None) is Pool.THREAD
    assert choose_pool(on_a_thread, "process") is Pool.PROCESS


def test_an_async_function_has_no_pool_and_a_local_one_no_process():
    def local(email: Email) -> None: ...

    with pytest.raises(ValueError, match="an async function runs on the event loop"):
        choose_pool(on_the_loop, "thread")
    with pytest.raises(ValueError, match="must stand at the top level"):
        choose_pool(local, "process")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("concurrency", 1.5),
        ("concurrency", True),
        ("concurrency", 10_001),
        ("waiting", -1),
        ("timeout", 0),
        ("timeout", float("nan")),
        ("retries", 3),
        ("dead_letter", ""),
        ("dead_letter", "emails"),
        ("pool", "threads"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_its_value(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*, got {value!r}"):
        build_options(on_a_thread, "emails", **{**GOOD, name: value})


def test_a_topic_needs_a_name():
    with pytest.raises(ValueError, match="topic must be the name of a topic, got ''"):
        build_options(on_a_thread, "", **GOOD)
