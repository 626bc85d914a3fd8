"""Locks that the child of a fork goes on using."""

import os
import threading

import pytest

from headrace.client.forks import ForkSafeLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def is_free(lock: ForkSafeLock) -> bool:
    """For another thread."""
    found = []

    def look() -> None:
        found.append(lock._lock.acquire(blocking=False))
        if found[0]:
            lock._lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def exit_code_of(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_lock_that_another_thread_held_at_the_fork_is_free_in_the_child() -> None:
    lock = ForkSafeLock()
    has_it, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_it.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has_it.wait()
    child = os.fork()
    if child == 0:
        with lock:
            os._exit(0)
    may_go.set()
    thread.join()
    assert exit_code_of(child) == 0


def test_a_thread_that_forks_while_it_holds_a_lock_holds_it_in_the_child_until_it_leaves() -> None:
    """A signal handler, or what is called under the lock, may fork."""
    lock = ForkSafeLock()
    seen = []
    try:
        with lock:
            with lock:
                child = os.fork()
            if child == 0:
                seen.append(is_free(lock))
        if child == 0:
            seen.append(is_free(lock))
    except RuntimeError:
        os._exit(2)
    if child == 0:
        os._exit(0 if seen == [False, True] else 1)
    assert exit_code_of(child) == 0
