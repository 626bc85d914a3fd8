"""DeleteGroups (42), v0-v3: empty groups of any type, with their offsets. Answered when they are gone for good.

Very many are deleted in several turns of the loop. From v3 on, a refusal says why in words.
"""

from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.mending import ENTRIES_MAX
from headrace.broker.groups.share import ShareGroup
from headrace.broker.later import Later, resolved, when_all
from headrace.wire.errors import KafkaError
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 3)
GROUPS_PER_STEP = 200
"""That one turn of the loop deletes."""


def handle(core: "BrokerCore", request: DeleteGroupsRequest, call: Call) -> Later[DeleteGroupsResponse]:
    later: Later[DeleteGroupsResponse] = Later()

    def gone(results: list[Later[DeletableGroupResult]]) -> None:
        when_all(results).then(
            lambda deleted: later.resolve(DeleteGroupsResponse(results=deleted)), later.fail
        )

    names = [*dict.fromkeys(request.groups_names)]
    core.slices.each(names, partial(_delete, core), per_step=GROUPS_PER_STEP).then(gone, later.fail)
    return later


def _delete(core: "BrokerCore", group_id: str) -> Later[DeletableGroupResult]:
    try:
        group = core.groups.registry.require(group_id)
        group.check_delete()
        forgotten: Later[None] = resolved(None)
        if isinstance(group, ShareGroup):
            forgotten = core.groups.share.forget_group(group)
        # In one batch, unless it is very many: a disk that refuses it leaves the group its offsets.
        entries = [*core.groups.state.offsets.tombstones(group_id), *group.tombstones()]
        written = [
            core.groups.journal(group_id, entries[first : first + ENTRIES_MAX])
            for first in range(0, len(entries), ENTRIES_MAX)
        ]
        durable = when_all([forgotten, *written])
    except KafkaError as error:
        refused = DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=error.message)
        return resolved(refused)
    return durable.map(lambda _: DeletableGroupResult(group_id=group_id))
