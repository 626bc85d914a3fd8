"""A client's machine: a process with a clock and an event loop of its own, and the application that runs in it."""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.simulation.path.node_loop import NodeLoop
from tests.simulation.path.wire import Wire
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.path.apps import Application
    from tests.simulation.path.world import PathWorld

TURNS_MAX = 10_000


class Node:
    loop_class = NodeLoop

    def __init__(self, world: "PathWorld", name: str, application: "type[Application]") -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.wires: list[Wire] = []
        self._ahead_ms = world.rng.randrange(1, 10_000_000)
        """How far its clock is from the world's: nobody may compare the two."""
        self._stopped_until_ms = 0
        self._stands_since_ms: int | None = None
        """When its clock stopped, on the world's clock."""
        self.loop = self.loop_class(self.now_ms, self._connect)
        self.loop.set_exception_handler(self._on_exception)
        self.app = self.run(lambda: application(self))
        self.main: asyncio.Task[Any] = self.run(lambda: self.loop.create_task(self.app.main()))

    def run(self, function: Any) -> Any:
        """Calls something as if on the loop."""
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            return function()
        finally:
            asyncio._set_running_loop(running)

    # Time

    def now_ms(self) -> int:
        world_ms = self.world.clock.monotonic_ms() if self._stands_since_ms is None else self._stands_since_ms
        return world_ms + self._ahead_ms

    @property
    def is_stopped(self) -> bool:
        return self._stopped_until_ms > self.world.clock.monotonic_ms()

    def stop(self, ms: int, *, stands_still: bool) -> None:
        """SIGSTOP, and SIGCONT after so long; or the whole machine is suspended, and its clock with it."""
        if self.is_stopped:
            return
        now_ms = self.world.clock.monotonic_ms()
        self._stopped_until_ms = now_ms + ms
        if stands_still:
            self._stands_since_ms = now_ms

    def go_on(self) -> None:
        if self._stands_since_ms is not None:
            self._ahead_ms -= self.world.clock.monotonic_ms() - self._stands_since_ms
            self._stands_since_ms = None
        self._stopped_until_ms = 0

    def due_ms(self) -> int | None:
        """When it has something to do, on the world's clock."""
        if self.is_dead:
            return None
        if self.is_stopped:
            return self._stopped_until_ms
        deadline_ms = self.loop.deadline_ms()
        return None if deadline_ms is None else deadline_ms - self._ahead_ms

    def turn(self) -> bool:
        """One round of its loop; False when it had nothing to do."""
        if self.is_dead or self.is_stopped:
            return False
        if self._stopped_until_ms:
            self.go_on()
        did = self.loop.turn()
        self.world.raise_reported()
        if self.main.done() and not self.is_dead:
            self._ended()
        return did

    def _ended(self) -> None:
        error = None if self.main.cancelled() else self.main.exception()
        if isinstance(error, Violation):
            raise error
        if error is not None:
            raise Violation("an application ends with an error", f"{self.name}: {error!r}") from error
        self.die()

    def _on_exception(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_dead:
            return
        if isinstance(error, Violation):
            self.world.report(error)
        else:
            self.world.report(Violation("an exception nobody has caught", f"{self.name}: {context}"))

    # Ends

    def die(self) -> None:
        self.is_dead = True
        self.loop.abandon()
        for wire in self.wires:
            wire.node_died()

    # The network

    def _connect(self, make_protocol: Any, host: str, port: int) -> Any:
        if self.world.refuses_connections:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = make_protocol()
        wire = self.world.wire(self, protocol)
        self.wires = [one for one in self.wires if not one.is_over]
        self.wires.append(wire)
        protocol.connection_made(wire.client_transport)
        return wire.client_transport, protocol
