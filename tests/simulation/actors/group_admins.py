"""Administrators of groups: offsets reset and deleted, groups deleted, settings of brokers and groups altered."""

from collections.abc import Sequence
from functools import partial

from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.actors.admins import BROKER, DELETE, GROUP, SET
from tests.simulation.models.groups import Commit, Place
from tests.simulation.network import Pending
from tests.simulation.scenario import GROUPS, PARTITIONS_MAX, TOPICS

BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": ("200", "5000"),
    "log.cleaner.min.cleanable.ratio": ("0.1", "0.9"),
    "log.segment.delete.delay.ms": ("0", "60000"),
}
GROUP_SETTINGS = {"consumer.session.timeout.ms": ("45000", "50000")}


def delete_group(actor: Actor, group_id: str, *, beside: Sequence[str] = ()) -> Ask:
    """With others in the same request, of which no model is told."""
    sent = actor.groups.will_delete_group(group_id)

    def answered(pending: Pending) -> None:
        for place, commit in sent:
            actor.groups.answered(place, commit, pending.response.results[0].error_code)

    yield from actor.ask(DeleteGroupsRequest(groups_names=[group_id, *beside]), 2, answered=answered)
    for _, commit in sent:
        actor.groups.lost(commit)


class GroupAdmin(Actor):
    def live(self) -> Life:
        while True:
            match self.rng.choices(
                ("nothing", "reset", "delete offset", "delete group", "alter"), (8, 3, 2, 2, 1)
            )[0]:
                case "nothing":
                    yield None
                case "reset":
                    yield from self.reset()
                case "delete offset":
                    yield from self.delete_offset()
                case "delete group":
                    yield from delete_group(self, self.rng.choice(GROUPS))
                case "alter":
                    yield from self.alter()

    def place(self) -> Place:
        return self.rng.choice(GROUPS), self.rng.choice(TOPICS), self.rng.randrange(PARTITIONS_MAX)

    def reset(self) -> Ask:
        """As the tools do it: a commit by nobody, which a group with members refuses."""
        place = self.place()
        group_id, topic, index = place
        topic_id = self.logs.topics.get(topic)
        model = self.logs.logs.get((topic_id, index)) if topic_id is not None else None
        if model is None:
            yield None
            return
        offset = self.rng.choice((0, model.start, model.end))
        one = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])]
        )
        sent = self.groups.sent(place, offset)
        yield from self.ask(request, 8, answered=partial(self._told, place, sent))
        self.groups.lost(sent)

    def _told(self, place: Place, commit: Commit, pending: Pending) -> None:
        response = pending.response
        code = getattr(response, "error_code", 0)
        if not code:
            code = response.topics[0].partitions[0].error_code if response.topics else -1
        self.groups.answered(place, commit, code)

    def delete_offset(self) -> Ask:
        place = self.place()
        group_id, topic, index = place
        one = OffsetDeleteRequestPartition(partition_index=index)
        request = OffsetDeleteRequest(
            group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[one])]
        )
        sent = self.groups.sent(place, None)
        yield from self.ask(request, 0, answered=partial(self._told, place, sent))
        self.groups.lost(sent)

    def alter(self) -> Ask:
        if self.rng.random() < 0.5:
            kind, resource, settings = BROKER, "", BROKER_SETTINGS
        else:
            kind, resource, settings = GROUP, self.rng.choice(GROUPS), GROUP_SETTINGS
        name = self.rng.choice(sorted(settings))
        change = AlterableConfig(name=name, config_operation=SET, value=self.rng.choice(settings[name]))
        if self.rng.random() < 0.3:
            change = AlterableConfig(name=name, config_operation=DELETE, value=None)
        resources = [AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])]
        yield from self.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
