"""The promise about users, ACLs and features: what an administrator was told is in force, and stays so over any end.

Of each entry the model keeps the states in which it may be: the one that was told last, and those that were asked for
since. A start finds one of them, and from then on it is that one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.features import NEW, SHARE
from headrace.broker.security.scram import MECHANISM_NUMBERS
from headrace.wire.acls import Acl, AclFilter
from tests.simulation.model import End, Model
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

Item = Acl | tuple[str, int] | str
"""An ACL, a user's credential for a mechanism, or a feature."""
State = bool | bytes | int | None
"""Whether the ACL is there; the credential's salt; the feature's level."""


class Access(Model):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._possible: dict[Item, set[State]] = {}
        self._unsynced: dict[Item, set[State]] = {}
        """Where nothing is synced: what a power cut may bring back, too."""

    def will(self, states: Mapping[Item, State]) -> None:
        for item, state in states.items():
            self._possible.setdefault(item, {self._nothing(item)}).add(state)

    def told(self, states: Mapping[Item, State]) -> None:
        for item, state in states.items():
            if not self.world.scenario.is_fsync:
                self._unsynced.setdefault(item, set()).update(self._possible[item])
            self._possible[item] = {state}

    def after_step(self) -> None:
        self._check()

    def after_start(self, how: End) -> None:
        if how is End.POWER:
            for item, states in self._unsynced.items():
                self._possible[item] |= states
        self._unsynced.clear()
        now = self._check()
        self._possible = {item: {now.get(item, self._nothing(item))} for item in self._possible}

    @staticmethod
    def _nothing(item: Item) -> State:
        if isinstance(item, str):
            return NEW[item].level
        return False if isinstance(item, Acl) else None

    def _check(self) -> dict[Item, State]:
        if self.core.access is None:  # nobody changes any of this
            return {}
        now = self._now()
        for item, possible in self._possible.items():
            found = now.get(item, self._nothing(item))
            if found not in possible:
                raise Violation("access: forgotten", f"{item} is {found!r}, not one of {possible!r}")
        for item, state in now.items():
            if item not in self._possible and state != self._nothing(item):
                raise Violation("access: from nowhere", str(item))
        return now

    def _now(self) -> dict[Item, State]:
        """As the broker acts on it, and as it is kept."""
        access, users = self.core.access, self.core.users
        assert access is not None
        acls = set(access.matching(AclFilter()))
        if acls != set(self.core.metadata.acls()):
            raise Violation("access: not as kept", f"{acls} in force, {self.core.metadata.acls()} kept")
        kept = self.core.metadata.configs("scram")
        found: dict[Item, State] = {SHARE: self.core.features.by_name[SHARE].level}
        found |= dict.fromkeys(acls, True)
        for name in users.names():
            credentials = users.credentials(name)
            if {each.value: one.text() for each, one in credentials.items()} != kept.get(name):
                raise Violation("access: not as kept", f"the credentials of {name}")
            for mechanism, credential in credentials.items():
                found[name, MECHANISM_NUMBERS[mechanism]] = credential.salt
        return found
