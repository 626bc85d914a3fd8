"""What every actor is: a life, written as a generator, that the scheduler lets go on step by step."""

from collections.abc import Callable, Generator
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.wire.message import Message
from tests.simulation.models.groups import Groups
from tests.simulation.models.logs import Logs
from tests.simulation.models.share import Share
from tests.simulation.models.transactions import Transactions
from tests.simulation.network import Link, Pending

if TYPE_CHECKING:
    from tests.simulation.world import World

Life = Generator[Pending | None, None, None]
Ask = Generator[Pending | None, None, Any]
Answered = Callable[[Pending], None]


class Actor:
    """Subclasses write `live`: an endless generator that yields None to end a step, or a request to wait for.

    All choices come from `self.rng`, which belongs to the current step. A lost connection is made again by `ask`.
    """

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self._link: Link | None = None
        self._waits_for: Pending | None = None
        self._life = self.live()

    def live(self) -> Life:
        raise NotImplementedError

    @property
    def rng(self) -> Random:
        return self.world.rng

    @property
    def logs(self) -> Logs:
        return self.world.model(Logs)

    @property
    def groups(self) -> Groups:
        return self.world.model(Groups)

    @property
    def transactions(self) -> Transactions:
        return self.world.model(Transactions)

    @property
    def share(self) -> Share:
        return self.world.model(Share)

    @property
    def is_ready(self) -> bool:
        return self._waits_for is None or self._waits_for.is_done

    def step(self) -> None:
        self._waits_for = next(self._life)

    @property
    def link(self) -> Link:
        if self._link is None or not self._link.is_open:
            self._link = self.world.connect(self.name)
        return self._link

    def post(
        self, request: Message, version: int, *, timeout_ms: int = 30_000, is_quiet: bool = False
    ) -> Pending:
        """Sends without waiting."""
        return self.link.send(request, version, timeout_ms=timeout_ms, is_quiet=is_quiet)

    def ask(
        self, request: Message, version: int, *, timeout_ms: int = 30_000, answered: Answered | None = None
    ) -> Ask:
        """`response = yield from self.ask(...)`; None when the connection was lost before the answer came.

        `answered` is called when the answer arrives, before anything else happens.
        """
        pending = self.post(request, version, timeout_ms=timeout_ms)
        pending.on_answer = answered
        self.world.transmit(self.link_of(pending))
        yield pending
        return pending.response

    def link_of(self, pending: Pending) -> Link | None:
        return self._link
