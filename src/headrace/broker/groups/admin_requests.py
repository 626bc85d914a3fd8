"""DescribeGroups, ListGroups, DeleteGroups: what administrators ask about groups of any type."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.mending import ENTRIES_MAX
from headrace.broker.groups.share import ShareGroup
from headrace.broker.later import Later, resolved, when_all
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_groups_response import DeletableGroupResult
from headrace.wire.messages.describe_groups_response import DescribedGroup
from headrace.wire.messages.list_groups_response import ListedGroup

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator

DEAD = "Dead"
NOT_FOUND_IS_AN_ERROR_SINCE = 6


class AdminRequests:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._registry = coordinator.state.registry

    def describe_classic(self, group_id: str, *, version: int) -> DescribedGroup:
        """A classic group. One that is not there, or of another type, is dead; newer clients are also told why."""
        try:
            return self._registry.require_type(group_id, ClassicGroup, "classic").describe()
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND and version < NOT_FOUND_IS_AN_ERROR_SINCE:
                return DescribedGroup(group_id=group_id, group_state=DEAD)
            return DescribedGroup(
                group_id=group_id, group_state=DEAD, error_code=error.code, error_message=error.message
            )

    def list(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """Groups in any of the states and of any of the types, whatever the case of letters; all without filters."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in self._registry
            if (not states or group.state_name.lower() in wanted_states)
            and (not types or group.type.value in wanted_types)
        ]

    def delete(self, group_id: str) -> Later[DeletableGroupResult]:
        """Answers when the group and its offsets are gone for good."""
        try:
            group = self._registry.require(group_id)
            group.check_delete()
            forgotten: Later[None] = resolved(None)
            if isinstance(group, ShareGroup):
                forgotten = self._coordinator.share_offsets.forget_group(group)
            # In one batch, unless it is very many: a disk that refuses it leaves the group its offsets.
            entries = [*self._coordinator.state.offsets.tombstones(group_id), *group.tombstones()]
            written = [
                self._coordinator.journal(group_id, entries[first : first + ENTRIES_MAX])
                for first in range(0, len(entries), ENTRIES_MAX)
            ]
            durable = when_all([forgotten, *written])
        except KafkaError as error:
            return resolved(DeletableGroupResult(group_id=group_id, error_code=error.code))
        return durable.map(lambda _: DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE))
