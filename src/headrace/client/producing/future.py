"""What `Producer.send` returns: a future as in `concurrent.futures`, but light enough to make one for every record.

The producer's thread takes no lock here: a signal handler may have interrupted the thread that holds it, and may wait
for the producer. Those who wait first leave a bell or a callback, and then look whether the outcome is there.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from headrace.client.background import wait_for_bell
from headrace.client.errors import IllegalStateError
from headrace.client.producing.record import RecordMetadata

_LOCK = threading.RLock()
"""For all futures, and for those who wait: it is held for a few instructions at a time."""
_forks = 0
"""How many forks lie between this process and the first one."""
FORKED = "This record was sent before a fork, by the parent process. Only the parent learns its outcome."


def _forked() -> None:
    global _LOCK, _forks
    _LOCK = threading.RLock()  # another thread of the parent may have held it
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Sender(Protocol):
    def refuse_own_thread(self) -> None:
        """IllegalStateError on the thread that settles the futures: it cannot wait for itself."""


class SendFuture:
    """The result of one `send`. Callbacks run on the producer's thread and must not block.

    In a callback, `result` of another record raises IllegalStateError, because that thread would wait for itself.
    """

    __slots__ = ("_bells", "_callbacks", "_error", "_forks", "_is_done", "_is_seen", "_metadata", "_sender")

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._metadata: RecordMetadata | None = None
        self._error: Exception | None = None
        self._is_done = False
        self._is_seen = False
        self._forks = _forks
        self._bells: tuple[Any, ...] = ()
        self._callbacks: deque[Callable[[SendFuture], object]] | None = None

    def done(self) -> bool:
        """True if the record is acknowledged or has failed."""
        return self._is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the acknowledgement and returns the metadata of the record.

        Raises KafkaError if the record failed, and TimeoutError after `timeout` seconds (None: no timeout).
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._metadata is not None
        return self._metadata

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits and returns the error, or None if the record is acknowledged. TimeoutError after `timeout` seconds."""
        if not self._is_done:
            self._sender.refuse_own_thread()
        self._is_seen = True
        if not self._is_done:
            self._wait(timeout)
        return self._error

    def add_done_callback(self, callback: "Callable[[SendFuture], object]") -> None:
        """Calls `callback(future)` once when the record is acknowledged or has failed, immediately if it already is."""
        self._is_seen = True
        if self._is_done:
            callback(self)
            return
        self._require_own_process()
        new: deque[Callable[[SendFuture], object]] = deque()
        with _LOCK:
            if self._callbacks is None:
                self._callbacks = new
        self._callbacks.append(callback)
        if self._is_done:  # just now: perhaps the producer's thread has not seen it any more
            for each in self._pop_callbacks():
                each(self)

    def _pop_callbacks(self) -> "Iterator[Callable[[SendFuture], object]]":
        """Those that are to be called; each comes once, whoever asks."""
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.popleft()
            except IndexError:  # another thread has the last one
                return
            yield callback

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """The same as `result()`, on any event loop."""
        loop = asyncio.get_running_loop()
        heard = loop.create_future()

        def hear() -> None:
            if not heard.done():
                heard.set_result(None)

        def wake(_: SendFuture) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(hear)

        self.add_done_callback(wake)
        yield from heard
        return self.result()

    def _require_own_process(self) -> None:
        if self._forks != _forks:
            raise IllegalStateError(FORKED)

    def _wait(self, timeout: float | None) -> None:
        self._require_own_process()
        bell = threading.Lock()
        bell.acquire()
        with _LOCK:
            self._bells = (*self._bells, bell)
        if self._is_done:
            return
        if not wait_for_bell(bell, timeout) and not self._is_done:
            raise TimeoutError(
                f"the record was not acknowledged within {timeout:g} s; it is still being sent"
            )

    def _settle(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Once. `_pop_callbacks` has what is to be called now."""
        self._metadata, self._error = metadata, error
        self._is_done = True
        for bell in self._bells:
            bell.release()
