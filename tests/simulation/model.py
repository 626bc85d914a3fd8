"""What every model is: it hears what happens, knows what was promised, and raises `Violation` when a promise is
broken.
"""

from enum import Enum
from typing import TYPE_CHECKING

from headrace.broker.core import BrokerCore
from tests.simulation.environment import AppendWatcher

if TYPE_CHECKING:
    from tests.simulation.models.logs import Entry, LogModel
    from tests.simulation.world import World


class End(Enum):
    """How a broker's process ended."""

    CLEAN = "clean stop"
    FAILED = "stop after a disk failure"
    KILL = "kill -9"
    POWER = "power loss"


class Model(AppendWatcher):
    """Override what you need. `world.core` is the running broker; models may look at it, and change nothing."""

    def __init__(self, world: "World") -> None:
        self.world = world

    @property
    def core(self) -> BrokerCore:
        return self.world.core

    def decided(self, log: "LogModel", entries: "list[Entry]", commit: bool) -> None:
        """A marker has ended the transaction that wrote these records to this log.

        Once more for the same records if a crash has taken the marker, and the coordinator has written it again.
        """

    def damage(self, topic: str, partition: int) -> None:
        """A bit of this partition's files has flipped: from now on only detection is demanded of it."""

    def after_turn(self) -> None:
        """After each turn of the loop. Keep it cheap."""

    def after_step(self) -> None:
        """After each step. What is too much for each turn has its place here."""

    def at_end(self) -> None:
        """At rest, and no more steps follow: what must become true in the end can be waited for.

        `world.is_calm` is set: nothing is cut or delayed any more.
        """

    def before_end(self, how: End) -> None:
        """The process is about to end; after KILL and POWER it may be in the middle of a turn.

        Called again when it did not end as it was meant to: the power may go while the broker stops.
        """

    def after_start(self, how: End) -> None:
        """A new process has started on what the old one has left, and has served nobody yet."""

    def at_rest(self) -> None:
        """Everything sent has been delivered, all tasks have ended, and all timeouts have passed."""
