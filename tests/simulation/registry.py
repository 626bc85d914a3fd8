"""The tables that the world is built from. To add an actor, a model or a kind of step, add a row."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.actor import Actor
from tests.simulation.actors.admins import Admin
from tests.simulation.actors.consumers import ClassicConsumer, ModernConsumer
from tests.simulation.actors.flooders import Flooder
from tests.simulation.actors.group_admins import GroupAdmin
from tests.simulation.actors.guards import Guard
from tests.simulation.actors.producers import IdempotentProducer, PlainProducer
from tests.simulation.actors.readers import Reader
from tests.simulation.actors.share_admins import ShareAdmin
from tests.simulation.actors.share_members import BulkProducer, GrowingProducer, ShareMember
from tests.simulation.actors.transactional import TransactionalProducer
from tests.simulation.actors.wide import Wide
from tests.simulation.model import Model
from tests.simulation.models.access import Access
from tests.simulation.models.groups import Groups
from tests.simulation.models.logs import Logs
from tests.simulation.models.memory import Memory
from tests.simulation.models.share import Share
from tests.simulation.models.transactions import Transactions
from tests.simulation.scenario import Scenario, scenario
from tests.simulation.steps import TABLE as STEPS

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["ACTORS", "MODELS", "STEPS", "Scenario", "scenario"]

ACTORS: "dict[str, tuple[Callable[[World, str], Actor], int, int]]" = {
    # name: (class, least, most of them in one life)
    "admin": (Admin, 1, 1),
    "groupadmin": (GroupAdmin, 0, 1),
    "plain": (PlainProducer, 1, 2),
    "idempotent": (IdempotentProducer, 1, 2),
    "transactional": (TransactionalProducer, 1, 2),
    "modern": (ModernConsumer, 0, 2),
    "classic": (ClassicConsumer, 0, 2),
    "reader": (Reader, 1, 2),
    "bulk": (BulkProducer, 0, 0),
    "growing": (GrowingProducer, 0, 0),
    "sharer": (ShareMember, 0, 3),
    "share admin": (ShareAdmin, 0, 1),
    "flooder": (Flooder, 0, 1),
    "guard": (Guard, 0, 0),
    "wide": (Wide, 0, 0),
}

MODELS: "dict[str, Callable[[World], Model]]" = {
    # name: class; in the order in which they hear of things
    "logs": Logs,
    "transactions": Transactions,
    "groups": Groups,
    "memory": Memory,
    "share": Share,
    "access": Access,
}
