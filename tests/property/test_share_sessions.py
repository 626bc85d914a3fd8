"""Share sessions against a model of dicts: epochs, order, connections, the limit.

The rule for epochs is I10 in docs/concepts/share-semantics.md.

Method: members of two groups open, use and lose sessions over three connections in any order; there is room for four.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.share.errors import InvalidSessionEpoch, SessionLimitReached, SessionNotFound, ShareError
from headrace.share.session import CLOSE_EPOCH, ShareSessions

GROUPS, MEMBERS = st.sampled_from(["g1", "g2"]), st.sampled_from(["m1", "m2", "m3"])
CONNECTIONS = st.sampled_from(["c1", "c2", "c3"])
PARTITIONS = st.lists(st.tuples(st.just(b"t"), st.integers(0, 4)), max_size=5)
SESSIONS_MAX = 4


class Expected:
    def __init__(self, connection: str) -> None:
        self.connection, self.epoch = connection, 1
        self.partitions: list[tuple[bytes, int]] = []

    def update(self, added: list[tuple[bytes, int]], forgotten: list[tuple[bytes, int]]) -> None:
        self.partitions = list(dict.fromkeys([*self.partitions, *added]))
        self.partitions = [partition for partition in self.partitions if partition not in forgotten]


class ShareSessionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(SESSIONS_MAX)
        self.model: dict[tuple[str, str], Expected] = {}

    @rule(group=GROUPS, member=MEMBERS, connection=CONNECTIONS, added=PARTITIONS)
    def open(self, group: str, member: str, connection: str, added: list[tuple[bytes, int]]) -> None:
        key = group, member
        try:
            self.sessions.fetch(group, member, 0, connection_id=connection, added=added)
        except SessionLimitReached:
            assert key not in self.model
            assert len(self.model) == SESSIONS_MAX
            return
        self.model[key] = Expected(connection)
        self.model[key].update(added, [])

    @rule(
        group=GROUPS,
        member=MEMBERS,
        epoch=st.integers(1, 4),
        is_right=st.booleans(),
        is_fetch=st.booleans(),
        added=PARTITIONS,
        forgotten=PARTITIONS,
    )
    def use(
        self,
        group: str,
        member: str,
        epoch: int,
        is_right: bool,
        is_fetch: bool,
        added: list[tuple[bytes, int]],
        forgotten: list[tuple[bytes, int]],
    ) -> None:
        expected = self.model.get((group, member))
        epoch = expected.epoch if expected is not None and is_right else epoch
        refusal: type[ShareError] | None = None
        try:
            if is_fetch:
                self.sessions.fetch(
                    group, member, epoch, connection_id="c9", added=added, forgotten=forgotten
                )
            else:
                self.sessions.acknowledge(group, member, epoch)
        except ShareError as error:
            refusal = type(error)
        if expected is None:
            assert refusal is SessionNotFound
        elif epoch != expected.epoch:
            assert refusal is InvalidSessionEpoch
        else:
            assert refusal is None
            expected.epoch += 1
            if is_fetch:
                expected.update(added, forgotten)

    @rule(group=GROUPS, member=MEMBERS, partition=st.tuples(st.just(b"t"), st.integers(0, 4)))
    def serve(self, group: str, member: str, partition: tuple[bytes, int]) -> None:
        session, expected = self.sessions.get(group, member), self.model.get((group, member))
        if session is not None and expected is not None:
            session.served(partition)
            if partition in expected.partitions:
                expected.partitions = [*(p for p in expected.partitions if p != partition), partition]

    @rule(group=GROUPS, member=MEMBERS)
    def close(self, group: str, member: str) -> None:
        if (group, member) in self.model:
            self.sessions.remove(self.sessions.fetch(group, member, CLOSE_EPOCH, connection_id="c9"))
            del self.model[group, member]

    @rule(connection=CONNECTIONS)
    def disconnect(self, connection: str) -> None:
        ended = {(session.group_id, session.member_id) for session in self.sessions.disconnected(connection)}
        assert ended == {key for key, expected in self.model.items() if expected.connection == connection}
        self.model = {key: expected for key, expected in self.model.items() if key not in ended}

    @invariant()
    def they_agree(self) -> None:
        assert len(self.sessions) == len(self.model) <= SESSIONS_MAX
        assert self.sessions.partition_count == sum(
            len(expected.partitions) for expected in self.model.values()
        )
        for (group, member), expected in self.model.items():
            session = self.sessions.get(group, member)
            assert session is not None
            assert (session.epoch, session.partitions) == (expected.epoch, expected.partitions)
            assert sorted(session.rotated(expected.epoch)) == sorted(expected.partitions)
        for group in ("g1", "g2"):
            assert self.sessions.has_group(group) == any(key[0] == group for key in self.model)


TestShareSessions = ShareSessionsMachine.TestCase
TestShareSessions.settings = settings(stateful_step_count=30)
