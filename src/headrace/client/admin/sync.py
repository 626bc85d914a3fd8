"""`Admin`: the same as `AsyncAdmin`, without asyncio. Every method waits for its result; Ctrl+C ends the wait at once.

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
    """Settings are Kafka's: as a mapping by their names, as keyword arguments with underscores, or both.

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        print(admin.share_group_offsets("kitchen")["orders", 0].lag)
    """

    def __init__(
        self, settings: Mapping[str, Any] | ClientSettings | None = None, /, **keywords: Any
    ) -> None:
        self._admin = AsyncAdmin(settings, **keywords)
        self._loop: BackgroundLoop | None = None

    def start(self) -> Self:
        """Connects. BrokerNotAvailableError names the addresses when none could be reached in time."""
        if self._loop is None:
            self._loop = BackgroundLoop("headrace-admin")
            self._finalizer = weakref.finalize(self, _dropped, self._admin, self._loop)
            self._finalizer.atexit = False
            try:
                self._loop.run(self._admin.start())
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """Closes its connections and ends its thread; does nothing the second time, and in the child of a fork."""
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
        """Makes a topic, and returns when all its partitions have leaders.

        A replication factor (or partition count) of -1 is the brokers' default.
        """
        return self._run(
            self._admin.create_topic(name, partitions, replication_factor=replication_factor, configs=configs)
        )

    def create_partitions(self, topic: str, total: int) -> None:
        """Grows a topic to `total` partitions. A topic never shrinks."""
        self._run(self._admin.create_partitions(topic, total))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics with all their records, and what share groups know of them."""
        self._run(self._admin.delete_topics(names))

    def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """All topics by name; Kafka's own ones only with `internal`."""
        return self._run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str], *, offsets: bool = False) -> dict[str, TopicDescription]:
        """Topics with leaders and replicas of their partitions; with `offsets` also where their logs begin and end."""
        return self._run(self._admin.describe_topics(names, offsets=offsets))

    def topic_config(self, topic: str) -> dict[str, ConfigEntry]:
        """Every config of a topic, whether it was set or not."""
        return self._run(self._admin.topic_config(topic))

    def set_topic_config(self, topic: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs, all or none of them; None puts one back to its default. Others stay as they are."""
        self._run(self._admin.set_topic_config(topic, changes))

    def list_groups(
        self,
        *,
        type: GroupType | str | Iterable[GroupType | str] | None = None,
        state: GroupState | str | Iterable[GroupState | str] | None = None,
    ) -> list[GroupListing]:
        """Groups by id, of one type or state or of several: `list_groups(type="share", state="Empty")`."""
        return self._run(self._admin.list_groups(type=type, state=state))

    def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        """When the record at an offset, or the next one, came, in milliseconds since 1970.

        None if there is none, or if it cannot be read now.
        """
        return self._run(self._admin.record_time(topic, partition, offset))

    def disk_usage(self) -> list[DiskUsage]:
        """Free and used bytes of every log directory of every broker, and the size of each partition there."""
        return self._run(self._admin.disk_usage())

    def survey_groups(self, *, groups_max: int = GROUPS_MAX) -> tuple[list[GroupSurvey], int]:
        """Members, offsets and lag of all groups, in few requests; and how many groups were left out."""
        return self._run(self._admin.survey_groups(groups_max=groups_max))

    def find_group(self, group_id: str) -> GroupListing:
        """Type and state of one group; GroupIdNotFoundError if there is none."""
        return self._run(self._admin.find_group(group_id))

    def describe_share_group(self, group_id: str) -> ShareGroupDescription:
        """Members, their assignment and the epochs of a share group; GroupIdNotFoundError if it is none."""
        return self._run(self._admin.describe_share_group(group_id))

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """Members, committed offsets and lag of a consumer group, of either protocol."""
        return self._run(self._admin.describe_consumer_group(group_id))

    def alter_consumer_group_offsets(self, group_id: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        """Commits offsets for a consumer group that has no members: for each (topic, partition) the next to be read."""
        self._run(self._admin.alter_consumer_group_offsets(group_id, offsets))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups of any type, which must have no members, with their offsets and state."""
        self._run(self._admin.delete_groups(group_ids))

    def group_config(self, group_id: str) -> dict[str, ConfigEntry]:
        """Every config of a group, whether it was set or not; a group need not exist to have configs."""
        return self._run(self._admin.group_config(group_id))

    def set_group_config(self, group_id: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs, all or none of them; None puts one back to its default. Brokers act on it at once."""
        self._run(self._admin.set_group_config(group_id, changes))

    def share_group_offsets(
        self, group_id: str, topics: Topics | None = None
    ) -> dict[TopicAndPartition, ShareGroupOffset]:
        """Where a share group stands, with its lag: in all its topics, or in those named.

        `topics` holds names, or (topic, partition) pairs for single partitions.
        """
        return self._run(self._admin.share_group_offsets(group_id, topics))

    def alter_share_group_offsets(
        self, group_id: str, *, to: To, topics: Topics | None = None, dry_run: bool = False
    ) -> dict[TopicAndPartition, OffsetChange]:
        """Moves the start offsets of a share group that has no members, and forgets what it had settled there.

        `to` is OffsetSpec.EARLIEST or LATEST, a datetime with a zone (the first record of that time or later), or
        a mapping of (topic, partition) to an offset in its log. Without `topics` all topics of the group are moved.
        A group that does not exist is made. `dry_run` checks and plans the same, and changes nothing.
        """
        return self._run(
            self._admin.alter_share_group_offsets(group_id, to=to, topics=topics, dry_run=dry_run)
        )

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Makes a share group that has no members forget topics; it would start there as a new group does."""
        self._run(self._admin.delete_share_group_offsets(group_id, topics))

    def share_state(
        self, group_id: str, topics: Topics | None = None, *, at: datetime | None = None
    ) -> dict[TopicAndPartition, SharePartitionState]:
        """The windows of a share group as last written to `__share_group_state`: runs of records by state.

        With `at`, a datetime with a zone, as they were written then, as far back as that topic reaches: Headrace keeps
        it for `headrace.share.state.history.ms`, Apache Kafka until it is pruned.

        Locks are never written: offsets in a window that no run covers have perhaps been acquired. The embedded
        broker's own `Broker.share_state` knows. Needs READ on that topic.
        """
        return self._run(self._admin.share_state(group_id, topics, at=at))

    def share_state_records(self, group_id: str, topics: Topics | None = None) -> list[ShareStateRecord]:
        """The records in `__share_group_state` themselves: snapshots, updates, tombstones, oldest first."""
        return self._run(self._admin.share_state_records(group_id, topics))

    def list_offsets(
        self, wanted: Mapping[TopicAndPartition, At], *, committed: bool = False
    ) -> dict[TopicAndPartition, ListedOffset]:
        """The offset at a named place or time, for each partition.

        With `committed`, LATEST is the end of what is committed, before any open transaction.
        """
        return self._run(self._admin.list_offsets(wanted, committed=committed))

    def delete_records(self, before: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """Deletes the records before an offset (OffsetSpec.LATEST: all of them); returns where the logs begin now."""
        return self._run(self._admin.delete_records(before))

    def dead_letter_topics(
        self, *, topics: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> list[str]:
        """Topics whose name looks like it, that groups may write dead letters to, or that a share group names.

        Who has listed the topics and the share groups already gives their names.
        """
        return self._run(self._admin.dead_letter_topics(topics=topics, groups=groups))

    def dead_letters(self, topic: str, *, letters_max: int = LETTERS_MAX) -> Listing:
        """The newest letters of a dead-letter topic, their causes, and what has become of them since."""
        return self._run(self._admin.dead_letters(topic, letters_max=letters_max))

    def dead_letter(self, topic: str, partition: int, offset: int) -> Record:
        """One letter with its content. OffsetOutOfRangeError if there is no record at that offset."""
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
        """Sends dead letters back to the partitions they came from: all that wait, of one group, of one cause, the
        oldest `limit`. Each goes back once; `again` takes those too whose redrive was interrupted. Unless `dry_run` is
        False it only says what it would do.
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
        """Marks dead letters as looked at: they do not wait any more, and no redrive takes them. Nothing is deleted.
        The choice is that of `redrive`; unless `dry_run` is False it only says what it would do.
        """
        return self._run(
            self._admin.discard(
                topic, group_id=group_id, cause=cause, letters=letters, again=again, dry_run=dry_run
            )
        )

    def list_users(self, names: Iterable[str] | None = None) -> list[ScramUser]:
        """Users that log in with SCRAM: all, or these. ResourceNotFoundError for one that does not exist."""
        return self._run(self._admin.list_users(names))

    def set_user_password(
        self, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = 4096
    ) -> None:
        """Adds a user that logs in with SCRAM, or changes the password. It is sent salted and hashed."""
        self._run(self._admin.set_user_password(name, password, mechanism=mechanism, iterations=iterations))

    def delete_user(self, name: str, *, mechanism: str | None = None) -> None:
        """Deletes a user's SCRAM credentials: all, or those of one mechanism."""
        self._run(self._admin.delete_user(name, mechanism=mechanism))

    def create_acls(self, entries: Iterable[Acl]) -> None:
        """Adds entries to the access control lists. Entries that exist already are fine."""
        self._run(self._admin.create_acls(entries))

    def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        """The entries that match a filter; without one, all."""
        return self._run(self._admin.describe_acls(matching))

    def delete_acls(self, matching: Iterable[AclFilter]) -> list[Acl]:
        """Deletes every entry that matches one of the filters, and returns what was deleted."""
        return self._run(self._admin.delete_acls(matching))

    def cluster(self) -> ClusterDescription:
        """Id, controller and brokers of the cluster."""
        return self._run(self._admin.cluster())

    def features(self) -> Features:
        """Versions of the cluster's features; share groups need `share.version` 1 or higher."""
        return self._run(self._admin.features())

    def broker_config(self, node_id: int | None = None) -> dict[str, ConfigEntry]:
        """Every config of one broker; of the first one unless its id is given."""
        return self._run(self._admin.broker_config(node_id))
