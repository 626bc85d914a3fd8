"""A signal ends the wait of the main thread, whatever thread of the process it comes to."""

import select
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from headrace.cli.stopping import SIGNALS, Stopping


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stopping = Stopping()
    yield stopping
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_to_another_thread_ends_the_wait(stopping: Stopping, number: int) -> None:
    def come() -> None:
        main = threading.main_thread().ident or 0
        while sys._current_frames()[main].f_code.co_name != "wait":
            pass
        for _ in range(1_000):  # lets the main thread run until it waits
            select.select([], [], [], 0)
        signal.pthread_kill(threading.get_ident(), number)

    stopping.listen()
    thread = threading.Thread(target=come)
    thread.start()
    stopping.wait()
    thread.join()
    assert signal.set_wakeup_fd(-1) == -1


def test_a_failure_in_another_thread_ends_the_wait(stopping: Stopping) -> None:
    stopping.listen()
    thread = threading.Thread(target=stopping.set)
    thread.start()
    stopping.wait()
    thread.join()
    stopping.set()  # once more, when nobody waits
