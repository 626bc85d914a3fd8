"""`Admin`: the same as `AsyncAdmin`, without asyncio. Every method waits for its result; Ctrl+C interrupts it.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topic("orders", partitions=4)
        print(admin.describe_share_group("kitchen").state)

It may be used from several threads at the same time.
"""

import contextlib
import warnings
import weakref
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.configs import Value
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
)
from headrace.client.admin.share_offsets import To, Topics
from headrace.client.admin.survey import GROUPS_MAX, GroupSurvey
from headrace.client.background import BackgroundLoop
from headrace.client.dead_letters import LETTERS_MAX, LetterPlace, Listing, RedriveResult
from headrace.client.errors import IllegalStateError
from headrace.client.forks import ForkSafeLock
from headrace.client.settings import ClientSettings
from headrace.share.view import SharePartitionState
from headrace.wire.acls import Acl, AclFilter
from headrace.wire.enums import GroupState, GroupType
from headrace.wire.ids import TopicAndPartition
from headrace.wire.records import Record

T = TypeVar("T")


def _dropped(admin: AsyncAdmin, loop: BackgroundLoop) -> None:
    """Disconnects on the background thread and ends it: this may run within a garbage collection."""
    if not loop.is_own_process:
        return
    warnings.warn("an Admin was not closed; use with, or close()", ResourceWarning, stacklevel=2)
    with contextlib.suppress(IllegalStateError):
        loop.submit(admin.close()).add_done_callback(lambda _: loop.stop())


class Admin:
    """Manages topics, groups, offsets, dead letters, users and access control, on any Kafka cluster.

        with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
            print(admin.share_group_offsets("kitchen")["orders", 0].lag)

    Settings have Kafka's names: a mapping, keyword arguments with underscores, or both.
    """

    def __init__(
        self, settings: Mapping[str, Any] | ClientSettings | None = None, /, **keywords: Any
    ) -> None:
        self._admin = AsyncAdmin(settings, **keywords)
        self._loop: BackgroundLoop | None = None
        self._starting = ForkSafeLock()

    def start(self, *, timeout_s: float | None = None) -> Self:
        """Connects. Raises BrokerNotAvailableError with the addresses if no broker could be reached in time.

        Retries for `timeout_s` seconds (None: default.api.timeout.ms); 0 tries each address once.
        """
        if self._loop is None:
            with self._starting:
                if self._loop is None:
                    self._begin(timeout_s)
        return self

    def _begin(self, timeout_s: float | None) -> None:
        loop = BackgroundLoop("headrace-admin")
        try:
            loop.run(self._admin.start(timeout_s=timeout_s))
        except BaseException:
            loop.close()
            raise
        self._finalizer = weakref.finalize(self, _dropped, self._admin, loop)
        self._finalizer.atexit = False
        self._loop = loop

    def close(self) -> None:
        """Closes the connections and ends the thread. Does nothing on a second call, or in the child of a fork."""
        loop, self._loop = self._loop, None
        if loop is not None and loop.is_own_process:
            self._finalizer.detach()
            try:
                loop.run(self._admin.close())
            finally:
                loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            call.close()
            raise IllegalStateError("this admin client is not connected; use `with Admin(...)` or start()")
        return self._loop.run(call)

    # Below: generated from AsyncAdmin by tools/generate_sync_admin.py. Do not edit.

    def create_topic(
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
        return self._run(
            self._admin.create_topic(name, partitions, replication_factor=replication_factor, configs=configs)
        )

    def create_partitions(self, topic: str, total: int) -> None:
        """Adds partitions to a topic until it has `total`. Partitions cannot be removed."""
        self._run(self._admin.create_partitions(topic, total))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics with all their records and the state that share groups have for them."""
        self._run(self._admin.delete_topics(names))

    def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """All topics by name, with `internal` also Kafka's internal topics."""
        return self._run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str], *, offsets: bool = False) -> dict[str, TopicDescription]:
        """Topics with the leaders and replicas of their partitions, with `offsets` also the log's start and end."""
        return self._run(self._admin.describe_topics(names, offsets=offsets))

    def topic_config(self, topic: str) -> dict[str, ConfigEntry]:
        """All configs of a topic, including those with default values."""
        return self._run(self._admin.topic_config(topic))

    def set_topic_config(self, topic: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs, all or none of them. None resets a config to its default. Other configs do not change."""
        self._run(self._admin.set_topic_config(topic, changes))

    def list_groups(
        self,
        *,
        type: GroupType | str | Iterable[GroupType | str] | None = None,
        state: GroupState | str | Iterable[GroupState | str] | None = None,
    ) -> list[GroupListing]:
        """Groups by ID, of one or more types or states: `list_groups(type="share", state="Empty")`."""
        return self._run(self._admin.list_groups(type=type, state=state))

    def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        """The timestamp of the record at an offset, or of the next record, in milliseconds.

        None if there is none, or if it cannot be read now.
        """
        return self._run(self._admin.record_time(topic, partition, offset))

    def disk_usage(self) -> list[DiskUsage]:
        """Free and used bytes of every log directory of every broker, and the size of each partition in it."""
        return self._run(self._admin.disk_usage())

    def survey_groups(self, *, groups_max: int = GROUPS_MAX) -> tuple[list[GroupSurvey], int]:
        """Members, offsets and lag of all groups, in few requests, and the number of groups beyond `groups_max`."""
        return self._run(self._admin.survey_groups(groups_max=groups_max))

    def find_group(self, group_id: str) -> GroupListing:
        """Type and state of one group; GroupIdNotFoundError if there is none."""
        return self._run(self._admin.find_group(group_id))

    def describe_share_group(self, group_id: str) -> ShareGroupDescription:
        """Members, their assignment and the epochs of a share group; GroupIdNotFoundError if there is no such group."""
        return self._run(self._admin.describe_share_group(group_id))

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """Members, committed offsets and lag of a consumer group, of either protocol."""
        return self._run(self._admin.describe_consumer_group(group_id))

    def alter_consumer_group_offsets(self, group_id: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        """Commits the next offset to read for each (topic, partition) of a consumer group without members."""
        self._run(self._admin.alter_consumer_group_offsets(group_id, offsets))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups of any type, with their offsets and state. They must have no members."""
        self._run(self._admin.delete_groups(group_ids))

    def group_config(self, group_id: str) -> dict[str, ConfigEntry]:
        """All configs of a group, including those with default values. The group need not exist."""
        return self._run(self._admin.group_config(group_id))

    def set_group_config(self, group_id: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs, all or none of them. None resets a config to its default. Takes effect immediately."""
        self._run(self._admin.set_group_config(group_id, changes))

    def share_group_offsets(
        self, group_id: str, topics: Topics | None = None
    ) -> dict[TopicAndPartition, ShareGroupOffset]:
        """Start offsets and lag of a share group, in all its topics or in those named.

        `topics` has names, or (topic, partition) pairs for single partitions.
        """
        return self._run(self._admin.share_group_offsets(group_id, topics))

    def alter_share_group_offsets(
        self, group_id: str, *, to: To, topics: Topics | None = None, dry_run: bool = False
    ) -> dict[TopicAndPartition, OffsetChange]:
        """Moves the start offsets of a share group without members, and deletes the state of its records there.

        `to` is OffsetSpec.EARLIEST or LATEST, a datetime with a time zone (the first record of that time or later),
        or a mapping of (topic, partition) to an offset in its log. Without `topics`, all topics of the group are
        reset. A group that does not exist is created. `dry_run` makes the same checks and changes nothing.
        """
        return self._run(
            self._admin.alter_share_group_offsets(group_id, to=to, topics=topics, dry_run=dry_run)
        )

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Deletes the offsets of a share group without members for these topics, as if it had never read them."""
        self._run(self._admin.delete_share_group_offsets(group_id, topics))

    def share_state(
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
        return self._run(self._admin.share_state(group_id, topics, at=at))

    def share_state_records(self, group_id: str, topics: Topics | None = None) -> list[ShareStateRecord]:
        """The records of `__share_group_state`: snapshots, updates and tombstones, oldest first."""
        return self._run(self._admin.share_state_records(group_id, topics))

    def list_offsets(
        self, wanted: Mapping[TopicAndPartition, At], *, committed: bool = False
    ) -> dict[TopicAndPartition, ListedOffset]:
        """For each partition, the offset at a named position or at a time.

        With `committed`, LATEST is the last stable offset, which is before any open transaction.
        """
        return self._run(self._admin.list_offsets(wanted, committed=committed))

    def delete_records(self, before: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """Deletes the records before an offset (OffsetSpec.LATEST: all of them), and returns the new log starts."""
        return self._run(self._admin.delete_records(before))

    def dead_letter_topics(
        self, *, topics: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> list[str]:
        """Topics with a dead-letter name, with dead-letter queues enabled, or that are the queue of a share group.

        If you already have the names of all topics and share groups, pass them to save requests.
        """
        return self._run(self._admin.dead_letter_topics(topics=topics, groups=groups))

    def dead_letters(self, topic: str, *, letters_max: int = LETTERS_MAX) -> Listing:
        """The newest dead letters of a topic, with their causes and status."""
        return self._run(self._admin.dead_letters(topic, letters_max=letters_max))

    def dead_letter(self, topic: str, partition: int, offset: int) -> Record:
        """One dead letter with its content. Raises OffsetOutOfRangeError if there is no record at that offset."""
        return self._run(self._admin.dead_letter(topic, partition, offset))

    def redrive(
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
        return self._run(
            self._admin.redrive(
                topic,
                group_id=group_id,
                cause=cause,
                limit=limit,
                letters=letters,
                value=value,
                again=again,
                dry_run=dry_run,
            )
        )

    def discard(
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
        return self._run(
            self._admin.discard(
                topic, group_id=group_id, cause=cause, letters=letters, again=again, dry_run=dry_run
            )
        )

    def list_users(self, names: Iterable[str] | None = None) -> list[ScramUser]:
        """Users that log in with SCRAM: all, or these. Raises ResourceNotFoundError for an unknown user."""
        return self._run(self._admin.list_users(names))

    def set_user_password(
        self, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = 4096
    ) -> None:
        """Adds a user that logs in with SCRAM, or changes the password, which is sent salted and hashed."""
        self._run(self._admin.set_user_password(name, password, mechanism=mechanism, iterations=iterations))

    def delete_user(self, name: str, *, mechanism: str | None = None) -> None:
        """Deletes a user's SCRAM credentials: all, or those of one mechanism."""
        self._run(self._admin.delete_user(name, mechanism=mechanism))

    def create_acls(self, entries: Iterable[Acl]) -> None:
        """Adds entries to the access control lists. Adding an entry that exists has no effect."""
        self._run(self._admin.create_acls(entries))

    def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        """The entries that match a filter; without one, all."""
        return self._run(self._admin.describe_acls(matching))

    def delete_acls(self, matching: Iterable[AclFilter]) -> list[Acl]:
        """Deletes every entry that matches one of the filters, and returns what was deleted."""
        return self._run(self._admin.delete_acls(matching))

    def cluster(self) -> ClusterDescription:
        """The ID, controller and brokers of the cluster."""
        return self._run(self._admin.cluster())

    def features(self) -> Features:
        """Versions of the cluster's features; share groups need `share.version` 1 or higher."""
        return self._run(self._admin.features())

    def broker_config(self, node_id: int | None = None) -> dict[str, ConfigEntry]:
        """All configs of one broker: of the one with the lowest ID unless `node_id` is given."""
        return self._run(self._admin.broker_config(node_id))
