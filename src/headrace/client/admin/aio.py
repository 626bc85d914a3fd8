"""`AsyncAdmin`: manages topics, groups and their offsets, on Headrace and Apache Kafka.

    async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topic("orders", partitions=4)
        await admin.set_group_config("kitchen", {"share.auto.offset.reset": "earliest"})
        for place, offset in (await admin.share_group_offsets("kitchen")).items():
            print(place, offset.start_offset, offset.lag)

Errors are exceptions named after Kafka's codes (`headrace.client.errors`), all of them `KafkaError`s; their text says
what to do. A call for several things tries all of them; if one thing fails its own error is raised, and if several
things were asked for, a `SomeFailedError` whose `errors` names each that failed. What passes by itself is tried again
for `default.api.timeout.ms`. One admin may be used by many tasks at the same time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from headrace.client.admin import (
    acls,
    cluster_info,
    configs,
    disks,
    groups,
    offsets,
    share_offsets,
    share_state,
    survey,
    topics,
    users,
)
from headrace.client.admin.call import AdminCall
from headrace.client.admin.configs import Value
from headrace.client.admin.dead_letter_topics import find_dead_letter_topics
from headrace.client.admin.offsets import At
from headrace.client.admin.results import (
    ClusterDescription,
    ConfigEntry,
    ConsumerGroupDescription,
    DiskUsage,
    Features,
    GroupListing,
    ListedOffset,
    OffsetChange,
    ScramUser,
    ShareGroupDescription,
    ShareGroupOffset,
    ShareStateRecord,
    TopicDescription,
    parse_choice,
)
from headrace.client.admin.share_offsets import To, Topics
from headrace.client.admin.survey import GROUPS_MAX, GroupSurvey
from headrace.client.cluster import Cluster
from headrace.client.dead_letters import (
    LETTERS_MAX,
    LetterPlace,
    Listing,
    RedriveResult,
    discard,
    read_dead_letter,
    read_dead_letters,
    redrive,
)
from headrace.client.errors import IllegalStateError, error_for
from headrace.client.settings import ClientSettings
from headrace.share.view import SharePartitionState
from headrace.wire.acls import Acl, AclFilter
from headrace.wire.enums import ConfigResourceType, GroupState, GroupType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition
from headrace.wire.records import Record


class AsyncAdmin:
    """Manages topics, groups, offsets, dead letters, users and access control, on any Kafka cluster.

        async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
            print((await admin.describe_share_group("kitchen")).members)

    Settings have Kafka's names: a mapping, keyword arguments with underscores, or both.
    """

    def __init__(
        self, settings: Mapping[str, Any] | ClientSettings | None = None, /, **keywords: Any
    ) -> None:
        if isinstance(settings, ClientSettings):
            if keywords:
                raise TypeError("give the settings as one object or as keyword arguments, not both")
            self._settings = settings
        else:
            self._settings = ClientSettings.parse(settings, **keywords)
        self._cluster: Cluster | None = None
        self._is_closed = False

    async def start(self, *, timeout_s: float | None = None) -> Self:
        """Connects. Raises BrokerNotAvailableError with the addresses if no broker could be reached in time.

        Retries for `timeout_s` seconds (None: default.api.timeout.ms); 0 tries each address once.
        """
        if self._is_closed:
            raise IllegalStateError("this admin client is closed; make a new one")
        if self._cluster is None:
            cluster = Cluster(self._settings)
            await cluster.start(timeout_s=timeout_s)
            self._cluster = cluster
        return self

    async def close(self) -> None:
        """Closes the connections. A second call does nothing."""
        self._is_closed = True
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _call(self) -> AdminCall:
        if self._is_closed:
            raise IllegalStateError("this admin client is closed; make a new one")
        if self._cluster is None:
            raise IllegalStateError(
                "this admin client is not connected; use `async with AsyncAdmin(...)` or await start()"
            )
        return AdminCall(self._cluster, self._settings)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, Value] | None = None,
    ) -> TopicDescription:
        """Creates a topic, and returns when all its partitions have leaders.

        A replication factor or partition count of -1 means the default of the brokers.
        """
        return await topics.create_topic(
            self._call(),
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs or {},
        )

    async def create_partitions(self, topic: str, total: int) -> None:
        """Adds partitions to a topic until it has `total`. Partitions cannot be removed."""
        await topics.create_partitions(self._call(), topic, total)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics with all their records and the state that share groups have for them."""
        await topics.delete_topics(self._call(), _several(names))

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """All topics by name, with `internal` also Kafka's internal topics."""
        return await topics.list_topics(self._call(), internal=internal)

    async def describe_topics(
        self, names: Iterable[str], *, offsets: bool = False
    ) -> dict[str, TopicDescription]:
        """Topics with the leaders and replicas of their partitions, with `offsets` also the log's start and end."""
        return await topics.describe_topics(self._call(), _several(names), offsets=offsets)

    async def topic_config(self, topic: str) -> dict[str, ConfigEntry]:
        """All configs of a topic, including those with default values."""
        return await configs.describe_config(self._call(), ConfigResourceType.TOPIC, topic)

    async def set_topic_config(self, topic: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs, all or none of them. None resets a config to its default. Other configs do not change."""
        await configs.set_config(self._call(), ConfigResourceType.TOPIC, topic, changes)

    async def list_groups(
        self,
        *,
        type: GroupType | str | Iterable[GroupType | str] | None = None,
        state: GroupState | str | Iterable[GroupState | str] | None = None,
    ) -> list[GroupListing]:
        """Groups by ID, of one or more types or states: `list_groups(type="share", state="Empty")`."""
        return await groups.list_groups(
            self._call(),
            types=[parse_choice(GroupType, one) for one in _several(type)],
            states=[parse_choice(GroupState, one) for one in _several(state)],
        )

    async def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        """The timestamp of the record at an offset, or of the next record, in milliseconds.

        None if there is none, or if it cannot be read now.
        """
        from headrace.client.oldest import Standing, record_time

        try:
            return await record_time(self._call().cluster, Standing(topic, partition, offset))
        except KafkaError:
            return None

    async def disk_usage(self) -> list[DiskUsage]:
        """Free and used bytes of every log directory of every broker, and the size of each partition in it."""
        return await disks.disk_usage(self._call())

    async def survey_groups(self, *, groups_max: int = GROUPS_MAX) -> tuple[list[GroupSurvey], int]:
        """Members, offsets and lag of all groups, in few requests, and the number of groups beyond `groups_max`."""
        return await survey.survey_groups(self._call(), groups_max=groups_max)

    async def find_group(self, group_id: str) -> GroupListing:
        """Type and state of one group; GroupIdNotFoundError if there is none."""
        return await groups.find_group(self._call(), group_id)

    async def describe_share_group(self, group_id: str) -> ShareGroupDescription:
        """Members, their assignment and the epochs of a share group; GroupIdNotFoundError if there is no such group."""
        return await groups.describe_share_group(self._call(), group_id)

    async def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """Members, committed offsets and lag of a consumer group, of either protocol."""
        return await groups.describe_consumer_group(self._call(), group_id)

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicAndPartition, int]
    ) -> None:
        """Commits the next offset to read for each (topic, partition) of a consumer group without members."""
        await groups.alter_consumer_group_offsets(self._call(), group_id, offsets)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups of any type, with their offsets and state. They must have no members."""
        await groups.delete_groups(self._call(), _several(group_ids))

    async def group_config(self, group_id: str) -> dict[str, ConfigEntry]:
        """All configs of a group, including those with default values. The group need not exist."""
        return await configs.describe_config(self._call(), ConfigResourceType.GROUP, group_id)

    async def set_group_config(self, group_id: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs, all or none of them. None resets a config to its default. Takes effect immediately."""
        await configs.set_config(self._call(), ConfigResourceType.GROUP, group_id, changes)

    async def share_group_offsets(
        self, group_id: str, topics: Topics | None = None
    ) -> dict[TopicAndPartition, ShareGroupOffset]:
        """Start offsets and lag of a share group, in all its topics or in those named.

        `topics` has names, or (topic, partition) pairs for single partitions.
        """
        return await share_offsets.share_group_offsets(self._call(), group_id, topics)

    async def alter_share_group_offsets(
        self, group_id: str, *, to: To, topics: Topics | None = None, dry_run: bool = False
    ) -> dict[TopicAndPartition, OffsetChange]:
        """Moves the start offsets of a share group without members, and deletes the state of its records there.

        `to` is OffsetSpec.EARLIEST or LATEST, a datetime with a time zone (the first record of that time or later),
        or a mapping of (topic, partition) to an offset in its log. Without `topics`, all topics of the group are
        reset. A group that does not exist is created. `dry_run` makes the same checks and changes nothing.
        """
        return await share_offsets.alter_share_group_offsets(
            self._call(), group_id, to=to, topics=topics, dry_run=dry_run
        )

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Deletes the offsets of a share group without members for these topics, as if it had never read them."""
        await share_offsets.delete_share_group_offsets(self._call(), group_id, topics)

    async def share_state(
        self, group_id: str, topics: Topics | None = None, *, at: datetime | None = None
    ) -> dict[TopicAndPartition, SharePartitionState]:
        """The state of a share group as last written to `__share_group_state`: ranges of records with their states.

        With `at`, a datetime with a time zone, the state at that time, as far back as the topic goes: Headrace keeps
        it for `headrace.share.state.history.ms`, Apache Kafka until it is pruned. Headrace writes who held records when
        it no longer does: `run.holder` is who held them at that time, and `run.past` has times and how the hold ended.
        Apache Kafka writes no members (`names_holders` is False).

        Locks of now are not written, so records without a stored state may be acquired. `Broker.share_state` of an
        embedded broker includes locks. Needs READ on that topic.
        """
        return await share_state.share_state(self._call(), group_id, topics, at)

    async def share_state_records(
        self, group_id: str, topics: Topics | None = None
    ) -> list[ShareStateRecord]:
        """The records of `__share_group_state`: snapshots, updates and tombstones, oldest first."""
        return await share_state.share_state_records(self._call(), group_id, topics)

    async def list_offsets(
        self, wanted: Mapping[TopicAndPartition, At], *, committed: bool = False
    ) -> dict[TopicAndPartition, ListedOffset]:
        """For each partition, the offset at a named position or at a time.

        With `committed`, LATEST is the last stable offset, which is before any open transaction.
        """
        return await offsets.list_offsets(self._call(), wanted, committed=committed)

    async def delete_records(self, before: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """Deletes the records before an offset (OffsetSpec.LATEST: all of them), and returns the new log starts."""
        return await offsets.delete_records(self._call(), before)

    async def dead_letter_topics(
        self, *, topics: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> list[str]:
        """Topics with a dead-letter name, with dead-letter queues enabled, or that are the queue of a share group.

        If you already have the names of all topics and share groups, pass them to save requests.
        """
        return await find_dead_letter_topics(self._call(), topics, groups)

    async def dead_letters(self, topic: str, *, letters_max: int = LETTERS_MAX) -> Listing:
        """The newest dead letters of a topic, with their causes and status."""
        return await read_dead_letters(self._call().cluster, topic, letters_max=letters_max)

    async def dead_letter(self, topic: str, partition: int, offset: int) -> Record:
        """One dead letter with its content. Raises OffsetOutOfRangeError if there is no record at that offset."""
        return await read_dead_letter(self._call().cluster, topic, partition, offset)

    async def redrive(
        self,
        topic: str,
        *,
        group_id: str | None = None,
        cause: str | None = None,
        limit: int | None = None,
        letters: Collection[LetterPlace] | None = None,
        value: bytes | None = None,
        again: bool = False,
        dry_run: bool = True,
    ) -> RedriveResult:
        """Sends dead letters back to the partitions that they came from.

        Select those of a group, of a cause, `letters`, or the oldest `limit`. Each is sent back once; `again` includes
        those whose redrive was interrupted. With `dry_run`, the default, it only reports what it would do.
        """
        return await redrive(
            self._call().cluster,
            topic,
            group_id=group_id,
            cause=cause,
            limit=limit,
            letters=letters,
            value=value,
            again=again,
            dry_run=dry_run,
        )

    async def discard(
        self,
        topic: str,
        *,
        group_id: str | None = None,
        cause: str | None = None,
        letters: Collection[LetterPlace] | None = None,
        again: bool = False,
        dry_run: bool = True,
    ) -> RedriveResult:
        """Marks dead letters as discarded, so that `redrive` skips them. Nothing is deleted.

        Select them as for `redrive`. With `dry_run`, the default, it only reports what it would do.
        """
        return await discard(
            self._call().cluster,
            topic,
            group_id=group_id,
            cause=cause,
            letters=letters,
            again=again,
            dry_run=dry_run,
        )

    async def list_users(self, names: Iterable[str] | None = None) -> list[ScramUser]:
        """Users that log in with SCRAM: all, or these. Raises ResourceNotFoundError for an unknown user."""
        return await users.list_users(self._call(), None if names is None else [*names])

    async def set_user_password(
        self, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = 4096
    ) -> None:
        """Adds a user that logs in with SCRAM, or changes the password, which is sent salted and hashed."""
        await users.set_password(self._call(), name, password, mechanism=mechanism, iterations=iterations)

    async def delete_user(self, name: str, *, mechanism: str | None = None) -> None:
        """Deletes a user's SCRAM credentials: all, or those of one mechanism."""
        await users.delete_user(self._call(), name, mechanism)

    async def create_acls(self, entries: Iterable[Acl]) -> None:
        """Adds entries to the access control lists. Adding an entry that exists has no effect."""
        await acls.create_acls(self._call(), entries)

    async def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        """The entries that match a filter; without one, all."""
        return await acls.describe_acls(self._call(), matching or AclFilter())

    async def delete_acls(self, matching: Iterable[AclFilter]) -> list[Acl]:
        """Deletes every entry that matches one of the filters, and returns what was deleted."""
        return await acls.delete_acls(self._call(), matching)

    async def cluster(self) -> ClusterDescription:
        """The ID, controller and brokers of the cluster."""
        return await cluster_info.describe_cluster(self._call())

    async def features(self) -> Features:
        """Versions of the cluster's features; share groups need `share.version` 1 or higher."""
        return await cluster_info.describe_features(self._call())

    async def broker_config(self, node_id: int | None = None) -> dict[str, ConfigEntry]:
        """All configs of one broker: of the one with the lowest ID unless `node_id` is given."""
        call = self._call()
        nodes = {node.node_id for node in (await cluster_info.describe_cluster(call)).nodes}
        asked = min(nodes) if node_id is None else node_id
        if asked not in nodes:
            raise error_for(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"the cluster has no broker {asked}, only {', '.join(map(str, sorted(nodes)))}",
                about="broker config",
            )
        return await configs.describe_config(call, ConfigResourceType.BROKER, str(asked), node_id=asked)


def _several(given: Any) -> list[Any]:
    """One thing or many: a single name is not taken for a list of letters."""
    if given is None:
        return []
    return [given] if isinstance(given, str) else list(given)
