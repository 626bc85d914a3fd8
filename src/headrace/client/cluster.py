"""The cluster as a client sees it: its brokers, the leaders of its partitions, connections to the brokers in use.

Theory of operation. Connections belong to addresses (`links.py`): a bootstrap address that turns out to be a
broker's own keeps its connection. Metadata is asked for when a caller wants it (`refresh`), and by itself once it is
older than metadata.max.age.ms. Leaders that brokers name in their answers (KIP-951) are taken over at once, by the
epoch: an older epoch never replaces a newer one.

Nothing here spins while brokers are away: connecting waits out the back-off of its address, and metadata is asked
for at most once per retry.backoff.ms. When no known broker answers, the bootstrap addresses are tried again.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from headrace.base.backoff import RetryBackoff
from headrace.client.connection import BrokerConnection
from headrace.client.errors import (
    AuthenticationError,
    IllegalStateError,
    UnsupportedVersionError,
    error_for,
)
from headrace.client.links import Lane, Links
from headrace.client.settings import Address, ClientSettings
from headrace.wire.error_groups import COORDINATOR_PASSING
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID, Message
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

logger = logging.getLogger("headrace.client")
ANY = -(2**31)
"""In the place of a node id: whichever broker is at hand."""
NO_LEADER = -1
GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
METADATA_TRIES = 3
HANG_UPS_MAX = 3
"""A broker that stops may hang up once; one that does it again and again expects another security.protocol."""
_TICK_S_MAX = 30.0
_COORDINATOR_MAY_COME = COORDINATOR_PASSING | {ErrorCode.REQUEST_TIMED_OUT}


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class PartitionMetadata(NamedTuple):
    """A partition and its leader; `leader_id` is -1 while there is none."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: bytes
    is_internal: bool = False
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


class _Endpoint(Protocol):
    """How ShareFetch, ShareAcknowledge, Fetch and Produce answers each name a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Cluster:
    """Use it as `async with Cluster(settings) as cluster:`, or call `start` and `close`."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.nodes: dict[int, Node] = {}
        self.topic_errors: dict[str, int] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[bytes, str] = {}
        self._wanted: set[str] = set()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._links = Links(settings)
        self._refreshing: tuple[asyncio.Task[None], frozenset[str]] | None = None
        self._refreshed_at = self._asked_at = float("-inf")
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False
        self.on_refreshed: Callable[[], None] | None = None
        """Called after every refresh, also after those that the cluster does by itself."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, topics: Iterable[str] = (), *, timeout_s: float | None = None) -> None:
        """Fetches the first metadata, of `topics` too.

        After `timeout_s` (default.api.timeout.ms without it) in vain the error names every address tried; with 0,
        each address is tried once. What waiting cannot cure (wrong credentials, an untrusted certificate, a service
        that is no Kafka) is raised at once.
        """
        patience_s = self.settings.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline = _now() + patience_s
        hang_ups = 0
        try:
            while True:
                try:
                    await self.refresh(topics)
                    break
                except (AuthenticationError, UnsupportedVersionError):
                    raise
                except KafkaError as error:
                    # A broker that is killed hangs up, too, but it is away then: only hang-ups in a row count.
                    hang_ups = hang_ups + 1 if getattr(error, "hung_up", False) else 0
                    if hang_ups >= HANG_UPS_MAX:
                        raise
                    if _now() >= deadline:
                        raise self._unreachable(error, patience_s) from None
        except BaseException:
            await self.close()
            raise
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Closes every connection; does nothing the second time."""
        self._is_closed = True
        known = (self._keeper, self._refreshing[0] if self._refreshing else None)
        tasks = [task for task in known if task is not None and task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)  # to await them would take our own cancellation for theirs
        finally:
            self._keeper = self._refreshing = None
            await self._links.close()

    def abandon(self) -> None:
        """Ends every connection after the event loop has been closed."""
        self._is_closed = True
        self._links.abandon()

    async def connection(self, node_id: int) -> BrokerConnection:
        """The connection to a broker for fetches, opened if need be; BrokerNotAvailableError when it cannot be.

        While the broker is away this waits out the back-off first, so a caller that tries for ever does not spin.
        What goes by `send` has connections of its own, and does not wait for fetches that the broker holds back.
        """
        return await self._connection(node_id, Lane.FETCHES)

    async def question_connection(self, node_id: int) -> BrokerConnection:
        """The same for everything that is no fetch, as `send` uses it."""
        return await self._connection(node_id, Lane.QUESTIONS)

    def open_connection(self, node_id: int) -> BrokerConnection | None:
        """`question_connection` if it is there and may be written to at once, else None."""
        node = self.nodes.get(node_id)
        return None if node is None else self._links.open_connection(node.address)

    async def _connection(self, node_id: int, lane: Lane) -> BrokerConnection:
        if self._is_closed:
            raise IllegalStateError("this client is closed; make a new one")
        if node_id == ANY:
            return await self._any_connection()
        node = self.nodes.get(node_id)
        if node is None:
            raise error_for(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster now", about="cluster"
            )
        return await self._links.connection(node.address, lane)

    async def send(
        self,
        node_id: int,
        request: Message,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Sends a request to a broker (or to `ANY`) and returns the response. It is never sent twice."""
        connection = await self._connection(node_id, Lane.QUESTIONS)
        return await connection.send(request, version=version, version_max=version_max, timeout_ms=timeout_ms)

    def topic(self, name: str) -> TopicMetadata | None:
        """What the last metadata said of a topic, or None: see `topic_errors`, or `refresh([name])` first."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        return self._topics.get(self._names.get(topic_id, ""))

    def forget_topics(self, names: Iterable[str]) -> None:
        """Leaves topics out of every later refresh."""
        for name in names:
            self._wanted.discard(name)
            self.topic_errors.pop(name, None)
            known = self._topics.pop(name, None)
            if known is not None:
                self._names.pop(known.topic_id, None)

    def learn_leader(
        self,
        topic_id: bytes,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoints: Iterable[_Endpoint] = (),
    ) -> bool:
        """Takes over a leader that a broker named in an answer (KIP-951); False when it is not newer."""
        topic = self.topic_by_id(topic_id)
        known = topic.partitions.get(partition) if topic is not None else None
        if topic is None or known is None or leader_id < 0 or leader_epoch <= known.leader_epoch:
            return False
        for each in endpoints:
            self.nodes[each.node_id] = Node(each.node_id, each.host, each.port, each.rack)
        if leader_id not in self.nodes:
            return False
        topic.partitions[partition] = known._replace(leader_id=leader_id, leader_epoch=leader_epoch)
        return True

    async def refresh(
        self,
        topics: Iterable[str] | None = None,
        *,
        topic_ids: Iterable[bytes] | None = None,
        creates: bool = False,
    ) -> None:
        """Fetches metadata of the brokers, of `topics`, and of every topic asked for before.

        Calls at the same time share one request. Topics of which only the id is known go by `topic_ids`. `creates`: the
        brokers create topics that are not there, if they do that at all (auto.create.topics.enable).
        """
        names = frozenset(topics or ()) | await self._names_of(topic_ids or ())
        is_news = not names <= self._wanted
        self._wanted |= names
        # One that has ended may still be there: its callback comes after whoever runs in between.
        while self._refreshing is not None and not self._refreshing[0].done():
            task, covered = self._refreshing
            with contextlib.suppress(*(() if names <= covered else (KafkaError,))):
                await asyncio.shield(task)
            if names <= covered:
                return
        task = asyncio.create_task(self._refresh(0.0 if is_news else self._refresh_wait_s(), creates))
        self._refreshing = task, frozenset(self._wanted)
        task.add_done_callback(self._refresh_ended)
        await asyncio.shield(task)

    async def _names_of(self, topic_ids: Iterable[bytes]) -> set[str]:
        wanted = set(topic_ids)
        unknown = wanted.difference(self._names)
        if unknown:
            asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(unknown)]
            await self._fetch_metadata(asked)
        return {self._names[topic_id] for topic_id in wanted if topic_id in self._names}

    async def topic_names(self) -> list[str]:
        """Every topic that this client may see, but for internal ones. Nothing of it is kept."""
        connection = await self._any_connection()
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response: MetadataResponse = await connection.send(request)
        return [topic.name for topic in response.topics if topic.name and not topic.is_internal]

    async def coordinator(self, key: str, key_type: int = GROUP_COORDINATOR) -> int:
        """The node that coordinates a group or a transactional id; kept until `forget_coordinator`."""
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        deadline = _now() + self.settings.default_api_timeout_ms / 1000
        retry = retry_backoff(self.settings, deadline)
        while True:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response: FindCoordinatorResponse = await self.send(ANY, request)
            found = response.coordinators[0]
            if not found.error_code:
                self.nodes.setdefault(found.node_id, Node(found.node_id, found.host, found.port))
                self._coordinators[key_type, key] = found.node_id
                return found.node_id
            wait_s = retry.wait_s(_now())
            if found.error_code not in _COORDINATOR_MAY_COME or wait_s is None:
                kind = "group" if key_type == GROUP_COORDINATOR else "transactional id"
                raise error_for(found.error_code, found.error_message, about=f"{kind} {key!r}")
            await asyncio.sleep(wait_s)

    def forget_coordinator(self, key: str, key_type: int = GROUP_COORDINATOR) -> None:
        self._coordinators.pop((key_type, key), None)

    async def _any_connection(self) -> BrokerConnection:
        open_now = self._links.least_busy(node.address for node in self.nodes.values())
        if open_now is not None:
            return open_now
        known = [node.address for node in self.nodes.values()]
        random.shuffle(known)
        addresses = dict.fromkeys([*known, *self.settings.bootstrap_servers])
        telling: KafkaError | None = None
        for address in sorted(addresses, key=self._links.wait_s):
            try:
                return await self._links.connection(address)
            except KafkaError as error:
                if telling is None or isinstance(error, AuthenticationError):
                    telling = error
        assert telling is not None  # bootstrap.servers is never empty
        raise telling

    async def _refresh(self, wait_s: float, creates: bool) -> None:
        await asyncio.sleep(wait_s)
        asked = [MetadataRequestTopic(name=name) for name in sorted(self._wanted)]
        try:
            await self._fetch_metadata(asked, creates=creates)
        finally:
            self._asked_at = _now()
        self._refreshed_at = self._asked_at
        if self.on_refreshed is not None:
            self.on_refreshed()

    def _refresh_ended(self, task: "asyncio.Task[None]") -> None:
        if self._refreshing is not None and self._refreshing[0] is task:
            self._refreshing = None
        if not task.cancelled():
            task.exception()  # its callers have it; a caller that was canceled does not miss it

    def _refresh_wait_s(self) -> float:
        return max(0.0, self._asked_at + self.settings.retry_backoff_ms / 1000 - _now())

    async def _fetch_metadata(self, topics: list[MetadataRequestTopic], *, creates: bool = False) -> None:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
        for tries_left in reversed(range(METADATA_TRIES)):
            connection = await self._any_connection()
            try:
                response = await connection.send(request)
            except (ConnectionError, TimeoutError):
                if not tries_left:
                    raise
            else:
                break
        self._take(response)

    def _take(self, response: MetadataResponse) -> None:
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.nodes = {}
        if response.error_code:
            raise error_for(response.error_code, about="metadata")
        if not response.brokers:  # one that has just started may not know the others, nor itself
            raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, "the response lists no brokers", about="metadata")
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers
        }
        self._coordinators = {
            key: node_id for key, node_id in self._coordinators.items() if node_id in self.nodes
        }
        for topic in response.topics:
            self._take_topic(topic)
        in_use = {node.address for node in self.nodes.values()}
        self._links.keep_only(in_use.union(self.settings.bootstrap_servers))

    def _take_topic(self, answer: MetadataResponseTopic) -> None:
        name = answer.name
        if not name:
            return  # an id that no topic has (any more)
        if answer.error_code:
            self.topic_errors[name] = answer.error_code
            if answer.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                self._drop_topic(name)
            return
        self.topic_errors.pop(name, None)
        known = self._topics.get(name)
        old: Mapping[int, PartitionMetadata] = {}
        if known is not None and known.topic_id == answer.topic_id:
            old = known.partitions
        elif known is not None:
            self._drop_topic(name)  # deleted, and made anew under its name
        partitions = {}
        for each in answer.partitions:
            index, epoch = each.partition_index, each.leader_epoch
            if index in old and 0 <= epoch < old[index].leader_epoch:
                partitions[index] = old[index]  # this broker has not heard of the election yet
            else:
                partitions[index] = PartitionMetadata(
                    index, each.leader_id, epoch, tuple(each.replica_nodes), tuple(each.isr_nodes)
                )
        self._topics[name] = TopicMetadata(name, answer.topic_id, answer.is_internal, partitions)
        if answer.topic_id != ZERO_UUID:
            self._names[answer.topic_id] = name

    def _drop_topic(self, name: str) -> None:
        known = self._topics.pop(name, None)
        if known is not None:
            self._names.pop(known.topic_id, None)

    async def _keep(self) -> None:
        """Keeps the metadata young and closes connections that nobody uses."""
        age_s = self.settings.metadata_max_age_ms / 1000
        idle_ms = self.settings.connections_max_idle_ms
        tick_s = min(_TICK_S_MAX, age_s, idle_ms / 2000 if idle_ms > 0 else age_s)
        while True:
            await asyncio.sleep(tick_s)
            if _now() - self._refreshed_at >= age_s:
                with contextlib.suppress(KafkaError):  # the way to the brokers has said so in the log
                    await self.refresh()
            if idle_ms >= 0:
                self._links.close_idle(idle_ms / 1000)

    def _unreachable(self, last: KafkaError, patience_s: float) -> KafkaError:
        addresses = ", ".join(str(address) for address in self.settings.bootstrap_servers)
        within = f" within {patience_s:g} s" if patience_s else ""
        return error_for(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no broker could be reached{within}; the last try: {last.text}",
            about=f"bootstrap.servers {addresses}",
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def retry_backoff(settings: ClientSettings, deadline_s: float = math.inf) -> RetryBackoff:
    """The waits of one call between its tries; the deadline is a time of the event loop."""
    first_ms, most_ms = settings.retry_backoff_ms, settings.retry_backoff_max_ms
    return RetryBackoff(first_ms, most_ms, random.random, deadline_s=deadline_s)
