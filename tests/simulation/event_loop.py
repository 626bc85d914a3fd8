"""The event loop that the broker's real server runs on: its callbacks wait in lists until the scheduler runs them."""

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from itertools import count
from typing import Any

from tests.simulation.clock import SimulatedClock
from tests.simulation.tasks import TASKS
from tests.simulation.violation import Violation


class Handle:
    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments
        self.is_canceled = False

    def cancel(self) -> None:
        self.is_canceled = True

    def run(self) -> None:
        if not self.is_canceled:
            self.callback(*self.arguments)


class _Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, Any]:
        yield
        return self._value


class Listener:
    def __init__(self, make_protocol: Callable[[], asyncio.Protocol], port: int) -> None:
        self.make_protocol = make_protocol
        self.sockets = [self]
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self._port)

    async def start_serving(self) -> None:
        pass

    def close(self) -> None:
        pass

    def close_clients(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class SimulatedLoop:
    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[int, int, Handle]] = []
        self._order = count()
        self.listener: Listener | None = None
        self.is_stopped = False

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def call_soon(self, callback: Callable[..., None], *arguments: Any, **_: Any) -> Handle:
        handle = Handle(callback, arguments)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any, **_: Any) -> Handle:
        return self.call_at(self.time() + delay_s, callback, *arguments)

    def call_at(self, when_s: float, callback: Callable[..., None], *arguments: Any, **_: Any) -> Handle:
        handle = Handle(callback, arguments)
        heapq.heappush(self._timers, (round(when_s * 1000), next(self._order), handle))
        return handle

    def stop(self) -> None:
        self.is_stopped = True

    async def create_server(
        self, make_protocol: Callable[[], asyncio.Protocol], host: object, port: int, **_: Any
    ) -> Listener:
        self.listener = Listener(make_protocol, port)
        return self.listener

    def run_in_executor(self, _: object, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return _Done(function(*arguments))

    async def shutdown_default_executor(self, *_: Any) -> None:
        pass

    # What the scheduler uses

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_ready(self) -> Handle:
        return self._ready.popleft()

    def deadline_ms(self) -> int | None:
        while self._timers and self._timers[0][2].is_canceled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def next_due(self) -> Handle | None:
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or deadline_ms > self._clock.monotonic_ms():
            return None
        return heapq.heappop(self._timers)[2]

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """To its end, with the callbacks that become ready while it waits, and the workers that it waits for."""
        while True:
            try:
                waits_for = self._send(coroutine)
            except StopIteration as end:
                return end.value
            while self._ready:
                self._ready.popleft().run()
            while waits_for is not None and not waits_for.done():
                TASKS.run_all()
                if not self._ready:
                    raise Violation("waits for ever", "for something that no worker brings")
                while self._ready:
                    self._ready.popleft().run()

    def _send(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any] | None":
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            waits_for = coroutine.send(None)
        finally:
            asyncio._set_running_loop(None)
        return waits_for if isinstance(waits_for, asyncio.Future) else None
