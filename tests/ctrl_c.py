"""Ctrl+C that comes while the main thread is inside a given function: not before, when it would end pytest."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

LOOK_S = 0.01


@contextmanager
def ctrl_c_inside(function: FunctionType) -> Iterator[None]:
    """Sends SIGINT to the main thread once it runs this function."""
    main = threading.main_thread().ident
    assert main is not None
    is_over = threading.Event()

    def watch(thread_id: int) -> None:
        while not is_over.wait(LOOK_S):
            if _is_inside(thread_id, function.__code__):
                signal.pthread_kill(thread_id, signal.SIGINT)
                return

    watching = threading.Thread(target=watch, args=(main,), name="ctrl-c")
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()


def _is_inside(thread_id: int, code: CodeType) -> bool:
    frame = sys._current_frames().get(thread_id)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
