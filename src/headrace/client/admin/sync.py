"""`Admin`: the same as `AsyncAdmin`, without asyncio. Every method waits for its answer; Ctrl+C ends the wait at once.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topic("orders", partitions=4)
        print(admin.describe_share_group("kitchen").state)

It may be used from several threads at the same time. What the methods do, and what they raise, is said at their twins
in `AsyncAdmin`.
"""

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.configs import Value
from headrace.client.admin.offsets import At
from headrace.client.admin.results import (
    ClusterDescription,
    ConfigEntry,
    ConsumerGroup,
    Features,
    GroupListing,
    GroupState,
    GroupType,
    ListedOffset,
    OffsetChange,
    Place,
    ShareGroup,
    ShareGroupOffset,
    ShareStateRecord,
    TopicDescription,
)
from headrace.client.admin.share_offsets import To, Topics
from headrace.client.background import BackgroundLoop
from headrace.client.dead_letters import LETTERS_MAX, Listing, RedriveResult
from headrace.client.errors import IllegalStateError
from headrace.client.settings import ClientSettings
from headrace.share.view import SharePartitionState
from headrace.wire.records import Record

T = TypeVar("T")


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
            try:
                self._loop.run(self._admin.start())
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """Closes its connections and ends its thread; does nothing the second time."""
        loop, self._loop = self._loop, None
        if loop is not None:
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

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, Value] | None = None,
    ) -> TopicDescription:
        """Makes a topic, and returns when all its partitions have leaders."""
        return self._run(
            self._admin.create_topic(name, partitions, replication_factor=replication_factor, configs=configs)
        )

    def create_partitions(self, topic: str, total: int) -> None:
        """Grows a topic to `total` partitions."""
        self._run(self._admin.create_partitions(topic, total))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics with all their records."""
        self._run(self._admin.delete_topics(names))

    def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """All topics by name; Kafka's own ones only with `internal`."""
        return self._run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str], *, offsets: bool = False) -> dict[str, TopicDescription]:
        """Topics with their partitions, and on request where these begin and end."""
        return self._run(self._admin.describe_topics(names, offsets=offsets))

    def topic_config(self, topic: str) -> dict[str, ConfigEntry]:
        """Every config of a topic."""
        return self._run(self._admin.topic_config(topic))

    def set_topic_config(self, topic: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs of a topic; None puts one back to its default."""
        self._run(self._admin.set_topic_config(topic, changes))

    def list_groups(
        self,
        *,
        type: GroupType | str | Iterable[GroupType | str] | None = None,
        state: GroupState | str | Iterable[GroupState | str] | None = None,
    ) -> list[GroupListing]:
        """Groups by id, of one type or state or of several."""
        return self._run(self._admin.list_groups(type=type, state=state))

    def find_group(self, group_id: str) -> GroupListing:
        """Type and state of one group."""
        return self._run(self._admin.find_group(group_id))

    def describe_share_group(self, group_id: str) -> ShareGroup:
        """Members, their assignment and the epochs of a share group."""
        return self._run(self._admin.describe_share_group(group_id))

    def describe_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Members, committed offsets and lag of a consumer group."""
        return self._run(self._admin.describe_consumer_group(group_id))

    def alter_consumer_group_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Commits offsets for a consumer group that has no members."""
        self._run(self._admin.alter_consumer_group_offsets(group_id, offsets))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups of any type that have no members."""
        self._run(self._admin.delete_groups(group_ids))

    def group_config(self, group_id: str) -> dict[str, ConfigEntry]:
        """Every config of a group."""
        return self._run(self._admin.group_config(group_id))

    def set_group_config(self, group_id: str, changes: Mapping[str, Value | None]) -> None:
        """Sets configs of a group; None puts one back to its default."""
        self._run(self._admin.set_group_config(group_id, changes))

    def share_group_offsets(
        self, group_id: str, topics: Topics | None = None
    ) -> dict[Place, ShareGroupOffset]:
        """Where a share group stands, with its lag."""
        return self._run(self._admin.share_group_offsets(group_id, topics))

    def alter_share_group_offsets(
        self, group_id: str, *, to: To, topics: Topics | None = None, dry_run: bool = False
    ) -> dict[Place, OffsetChange]:
        """Moves the start offsets of a share group that has no members, or plans it."""
        return self._run(
            self._admin.alter_share_group_offsets(group_id, to=to, topics=topics, dry_run=dry_run)
        )

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Makes a share group that has no members forget topics."""
        self._run(self._admin.delete_share_group_offsets(group_id, topics))

    def share_state(self, group_id: str, topics: Topics | None = None) -> dict[Place, SharePartitionState]:
        """The windows of a share group as last written to `__share_group_state`."""
        return self._run(self._admin.share_state(group_id, topics))

    def share_state_records(self, group_id: str, topics: Topics | None = None) -> list[ShareStateRecord]:
        """The records in `__share_group_state` themselves."""
        return self._run(self._admin.share_state_records(group_id, topics))

    def list_offsets(
        self, wanted: Mapping[Place, At], *, committed: bool = False
    ) -> dict[Place, ListedOffset]:
        """The offset at a named place or time, for each partition."""
        return self._run(self._admin.list_offsets(wanted, committed=committed))

    def delete_records(self, before: Mapping[Place, int]) -> dict[Place, int]:
        """Deletes the records before an offset; returns where the logs begin now."""
        return self._run(self._admin.delete_records(before))

    def dead_letter_topics(self) -> list[str]:
        """Topics whose name looks like it, that groups may write dead letters to, or that a share group names."""
        return self._run(self._admin.dead_letter_topics())

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
        again: bool = False,
        dry_run: bool = True,
    ) -> RedriveResult:
        """Sends dead letters back to the partitions they came from; unless `dry_run` is False it only says how many."""
        return self._run(
            self._admin.redrive(
                topic, group_id=group_id, cause=cause, limit=limit, again=again, dry_run=dry_run
            )
        )

    def cluster(self) -> ClusterDescription:
        """Id, controller and brokers of the cluster."""
        return self._run(self._admin.cluster())

    def features(self) -> Features:
        """Versions of the cluster's features."""
        return self._run(self._admin.features())

    def broker_config(self, node_id: int | None = None) -> dict[str, ConfigEntry]:
        """Every config of one broker."""
        return self._run(self._admin.broker_config(node_id))
