"""`ShareConsumer`'s calls, one at a time, and what a signal handler may break off in them."""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from headrace.client.errors import ConcurrentModificationError, IllegalStateError
from headrace.client.sync import ShareConsumer

NOWHERE = "127.0.0.1:1"


class Alarm(Exception):
    """Raised by a signal handler."""


def consumer() -> ShareConsumer:
    return ShareConsumer(bootstrap_servers=NOWHERE, group_id="nobody")


def raising_in(function: str, call: Callable[[], Any]) -> None:
    """Calls something; in the first moment of that function of the client a signal handler raises."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code.co_name == function:
            sys.settrace(None)
            raise Alarm
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(Alarm):
            call()
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("function", ["_admit", "_enter", "_poll", "_leave"])
def test_close_ends_a_consumer_whose_call_was_broken_off_anywhere(function: str) -> None:
    ours = consumer()
    ours.subscribe(["orders"])
    raising_in(function, lambda: ours.poll(0))
    ours.close(0)
    with pytest.raises(IllegalStateError, match="closed"):
        ours.poll(0)
    assert not ours._background._thread.is_alive()


def test_a_call_that_was_broken_off_does_not_keep_other_threads_out() -> None:
    ours = consumer()
    ours.subscribe(["orders"])
    raising_in("_leave", lambda: ours.poll(0))
    thread = threading.Thread(target=ours.close, args=(0,))
    thread.start()
    thread.join()
    with pytest.raises(IllegalStateError, match="closed"):
        ours.poll(0)


def test_a_closing_that_a_signal_handler_began_is_completed_when_its_call_was_broken_off() -> None:
    """The handler closes within a poll, and another one raises when that poll is about to complete it."""
    ours = consumer()
    ours.subscribe(["orders"])

    def poll() -> None:
        with ours._use:
            ours.close(0)  # as a handler within a call does
        raise Alarm

    with pytest.raises(Alarm):
        poll()
    ours.close(0)
    assert not ours._background._thread.is_alive()


def test_the_main_thread_is_refused_while_another_one_is_in_a_call() -> None:
    ours = consumer()
    ours.subscribe(["orders"])
    is_in, may_go = threading.Event(), threading.Event()
    wait = ours._wait

    def waiting(*given: Any) -> Any:
        is_in.set()
        may_go.wait()
        return wait(*given)

    ours._wait = waiting  # type: ignore[method-assign]
    thread = threading.Thread(target=ours.poll, args=(0,))
    thread.start()
    is_in.wait()
    try:
        for call in (lambda: ours.poll(0), ours.close, ours.commit_async):
            with pytest.raises(ConcurrentModificationError, match="another thread is in a call"):
                call()
    finally:
        may_go.set()
        thread.join()
    assert ours.poll(0) == []
    ours.close(0)
