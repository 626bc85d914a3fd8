"""Dead letters: what lies in a dead-letter topic, why, and the way back to where it came from (redrive).

    listing = await read_dead_letters(cluster, "dlq.orders")
    for cause in listing.causes(): print(cause.count, cause.text)
    result = await redrive(cluster, "dlq.orders", cause=cause.id, dry_run=False)

Theory of operation. A dead letter says in headers where its record was and why it was given up: `__dlq.errors.*`
(KIP-1191) by a broker or a worker, `headrace.dlq.*` by a worker. What has become of it since is written in the same
partition, behind it, by small records of ours (header `headrace.redrive`), so nothing else needs to be kept anywhere:

    claim   before anything is sent: these offsets are mine. Of two who want a letter, the first claim in the log wins
    done    they are in their topic again
    discarded  nobody wants anything more of them
    undone  they are not, and the claim is given back (their record is gone, or the topic refused it)

So a letter is never sent twice. Who dies between claim and done leaves letters CLAIMED, which means "perhaps sent";
they are shown as that, and sent again only when asked for by `again`. Letters are read in one pass and kept without
their content; the content is read when it is sent. A letter whose topic keeps no copies (Kafka's default) is sent
with what its offset in the source topic still holds.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import uuid4

from headrace.base.ranges import consecutive
from headrace.client.arguments import require_limit
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RequestTimeoutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ProducerSettings
from headrace.wire.dead_letter import (
    ATTEMPTS,
    MESSAGE_ID,
    READ_BYTES,
    header_number,
    header_texts,
    own_headers,
    read_facts,
)
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition
from headrace.wire.records import NewRecord, Record, read_records

MARK = "headrace.redrive"
FROM, COUNT = "headrace.redrive.from", "headrace.redrive.count"
LETTERS_MAX = 10_000
CHUNK = 200
REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Above what brokers take, so that they decide (`max.message.bytes`)."""
UNKNOWN_OUTCOME = (RequestTimeoutError, OutOfOrderSequenceError)

LetterPlace = tuple[int, int]
"""Partition and offset in the dead-letter topic."""


class LetterStatus(StrEnum):
    WAITING = "waiting"
    CLAIMED = "claimed"
    """A redrive began with it and did not say how it ended: it may have been sent."""
    REDRIVEN = "redriven"
    DISCARDED = "discarded"
    """Somebody has looked at it and wants nothing more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter, without its content. What its headers do not say is None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    status: LetterStatus
    source_topic: str | None
    source_partition: int | None
    source_offset: int | None
    group_id: str | None
    delivery_count: int | None
    message: str
    kind: str
    """What sort of end it was: the worker's cause, or the broker's sentence."""
    exception: str | None
    traceback_hash: str | None
    is_copied: bool
    """The letter holds the record's key and value."""
    attempts: int | None
    """How often a worker ran the task on it."""
    cause: str
    """The same for all letters with this cause: eight characters, for people and for `redrive`."""
    source: str | None
    """The record that it is a copy of, as TOPIC-PARTITION@OFFSET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCause:
    """Why so many letters are here, the most frequent first."""

    id: str
    text: str
    """The newest letter's own words."""
    kind: str
    exception: str | None
    group_id: str | None
    count: int
    waiting: int
    claimed: int
    redriven: int
    discarded: int
    first_timestamp: int
    last_timestamp: int
    source_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    topic: str
    letters: tuple[DeadLetter, ...]
    """In order of partition and offset."""
    ends: Mapping[int, int]
    """Where reading ended in each partition."""
    passed_over: int
    """Older offsets that were not looked at, because there are more than `letters_max`."""

    def causes(self) -> list[DeadLetterCause]:
        groups: dict[str, list[DeadLetter]] = {}
        for letter in self.letters:
            groups.setdefault(letter.cause, []).append(letter)
        return sorted((_cause(key, letters) for key, letters in groups.items()), key=lambda one: -one.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveResult:
    """What a redrive did, or would do (`is_dry_run`)."""

    is_dry_run: bool
    chosen: int
    redriven: int = 0
    discarded: int = 0
    gone: int = 0
    """Neither a copy nor the source topic has the record any more, or the letter does not say where it was from."""
    refused: int = 0
    """The source topic refused them; `errors` says why."""
    uncertain: int = 0
    """Sent, but the answer got lost: they stay CLAIMED."""
    taken: int = 0
    """Another redrive was quicker."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Letters by the topic they go to."""
    passed_over: int = 0
    errors: tuple[str, ...] = ()


async def read_dead_letters(cluster: Cluster, topic: str, *, letters_max: int = LETTERS_MAX) -> Listing:
    """The newest letters of a topic, and what has become of them. Records that are no dead letters are left out."""
    places = await places_of_topic(cluster, topic)
    starts = await list_offsets(cluster, dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, OffsetSpec.LATEST))
    share = max(1, letters_max // max(1, len(places)))
    letters: list[DeadLetter] = []
    passed_over = 0
    for place in places:
        first, end = max(starts[place], ends[place] - share), ends[place]
        passed_over += first - starts[place]
        partition = PartitionLetters(place, first)
        await partition.read_to(cluster, end)
        letters += partition.letters.values()
    return Listing(topic, tuple(letters), {place[1]: ends[place] for place in places}, passed_over)


async def read_dead_letter(cluster: Cluster, topic: str, partition: int, offset: int) -> Record:
    """One letter with its content. OffsetOutOfRangeError if there is no record at that offset."""
    async for record in _records(cluster, (topic, partition), offset, offset):
        return record
    raise error_for(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no record at offset {offset}", about=f"{topic}-{partition}"
    )


async def redrive(
    cluster: Cluster,
    topic: str,
    *,
    group_id: str | None = None,
    cause: str | None = None,
    limit: int | None = None,
    letters: Collection[LetterPlace] | None = None,
    value: bytes | None = None,
    again: bool = False,
    dry_run: bool = True,
    letters_max: int = LETTERS_MAX,
) -> RedriveResult:
    """Sends dead letters back to the partitions they came from: all that wait, those of one cause, the oldest `limit`.

    `group_id` leaves out the letters of other groups, where several share the topic. `letters` names some by partition
    and offset. `value` goes back in place of what the letter holds; then `letters` names one.

    `again` takes those too whose redrive was interrupted: it may have sent them. Headers about the death are taken
    off; `headrace.redrive.from` and `headrace.redrive.count` tell where the record has been.
    """
    if value is not None and (letters is None or len(letters) != 1):
        raise ValueError("a new value is for one letter: name exactly one in `letters`")
    listing, chosen = await _chosen(
        cluster,
        topic,
        group_id=group_id,
        cause=cause,
        limit=limit,
        letters=letters,
        again=again,
        letters_max=letters_max,
    )
    planned = RedriveResult(
        is_dry_run=dry_run, chosen=len(chosen), targets=_targets(chosen), passed_over=listing.passed_over
    )
    if dry_run or not chosen:
        return planned
    async with _producer(cluster) as producer:
        drive = _Drive(cluster, producer, listing, again=again, value=value)
        for partition, some in _chunks(chosen):
            await drive.send(partition, some)
    return replace(
        planned,
        redriven=drive.redriven,
        gone=drive.gone,
        refused=drive.refused,
        uncertain=drive.uncertain,
        taken=drive.taken,
        targets=drive.targets,
        errors=tuple(dict.fromkeys(drive.errors)),
    )


async def discard(
    cluster: Cluster,
    topic: str,
    *,
    group_id: str | None = None,
    cause: str | None = None,
    letters: Collection[LetterPlace] | None = None,
    again: bool = False,
    dry_run: bool = True,
    letters_max: int = LETTERS_MAX,
) -> RedriveResult:
    """Marks dead letters as looked at: they do not wait any more, and no redrive takes them. Nothing is deleted.

    The choice is that of `redrive`.
    """
    listing, chosen = await _chosen(
        cluster,
        topic,
        group_id=group_id,
        cause=cause,
        limit=None,
        letters=letters,
        again=again,
        letters_max=letters_max,
    )
    planned = RedriveResult(is_dry_run=dry_run, chosen=len(chosen), passed_over=listing.passed_over)
    if dry_run or not chosen:
        return planned
    async with _producer(cluster) as producer:
        drive = _Drive(cluster, producer, listing, again=again)
        for partition, some in _chunks(chosen):
            await drive.discard(partition, some)
    return replace(planned, discarded=drive.discarded, taken=drive.taken)


async def _chosen(
    cluster: Cluster,
    topic: str,
    *,
    group_id: str | None,
    cause: str | None,
    limit: int | None,
    letters: Collection[LetterPlace] | None,
    again: bool,
    letters_max: int,
) -> tuple[Listing, list[DeadLetter]]:
    require_limit("limit", limit)
    listing = await read_dead_letters(cluster, topic, letters_max=letters_max)
    if cause is not None and all(letter.cause != cause for letter in listing.letters):
        raise ValueError(f"no dead letter in {topic} has the cause {cause!r}; list them to see their causes")
    known = {(letter.partition, letter.offset) for letter in listing.letters}
    for place in letters or ():
        if tuple(place) not in known:
            raise ValueError(
                f"there is no dead letter {place[0]}@{place[1]} in {topic}; list them to see all"
            )
    ours = [
        letter
        for letter in listing.letters
        if group_id in (None, letter.group_id)
        and (letters is None or (letter.partition, letter.offset) in letters)
    ]
    return listing, _choose(ours, cause=cause, limit=limit, again=again)


def _producer(cluster: Cluster) -> AsyncProducer:
    settings = ProducerSettings.from_client(
        cluster.settings,
        max_request_size=REQUEST_BYTES_MAX,
        delivery_timeout_ms=cluster.settings.default_api_timeout_ms,
    )
    return AsyncProducer.of(settings)


def _chunks(chosen: Sequence[DeadLetter]) -> Iterator[tuple[int, Sequence[DeadLetter]]]:
    for partition in sorted({letter.partition for letter in chosen}):
        here = [letter for letter in chosen if letter.partition == partition]
        for begin in range(0, len(here), CHUNK):
            yield partition, here[begin : begin + CHUNK]


class _Drive:
    """One redrive under way; `id` tells its claims from those of others."""

    def __init__(
        self,
        cluster: Cluster,
        producer: AsyncProducer,
        listing: Listing,
        *,
        again: bool,
        value: bytes | None = None,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = listing.topic
        self._read_to = dict(listing.ends)
        self._again = again
        self._value = value
        self.id = uuid4().hex
        self.discarded = 0
        self.redriven = self.gone = self.refused = self.uncertain = self.taken = 0
        self.targets: dict[str, int] = {}
        self.errors: list[str] = []

    async def send(self, partition: int, letters: Sequence[DeadLetter]) -> None:
        """Letters of one partition of the dead-letter topic, from claim to done."""
        mine = await self._claim(partition, letters)
        if not mine:
            return
        done: list[int] = []
        perhaps_sent: set[int] = set()
        try:
            for target, ready in (await self._sorted_by_target(partition, mine)).items():
                await self._produce(target, ready, done, perhaps_sent)
        finally:
            # Even when canceled: what was sent has been sent, and must not be sent again.
            await self._mark(partition, "done", done)
            undone = [letter.offset for letter in mine if letter.offset not in perhaps_sent]
            await self._mark(partition, "undone", undone)

    async def discard(self, partition: int, letters: Sequence[DeadLetter]) -> None:
        mine = await self._claim(partition, letters)
        await self._mark(partition, "discarded", [letter.offset for letter in mine])
        self.discarded += len(mine)

    async def _sorted_by_target(
        self, partition: int, letters: Sequence[DeadLetter]
    ) -> dict[TopicAndPartition, list[tuple[int, NewRecord]]]:
        by_target: dict[TopicAndPartition, list[tuple[int, NewRecord]]] = {}
        async for letter, record in self._contents(partition, letters):
            target = await self._target(letter)
            if record is None or target is None:
                self.gone += 1
            else:
                by_target.setdefault(target, []).append((letter.offset, record))
        return by_target

    async def _produce(
        self,
        target: TopicAndPartition,
        ready: Sequence[tuple[int, NewRecord]],
        done: list[int],
        perhaps_sent: set[int],
    ) -> None:
        topic, partition = target
        perhaps_sent.update(offset for offset, _ in ready)
        sending = [
            await self._producer.send_soon(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=partition,
                timestamp=record.timestamp,
            )
            for _, record in ready
        ]
        results = await asyncio.gather(*sending, return_exceptions=True)
        for (offset, _), result in zip(ready, results, strict=True):
            if not isinstance(result, BaseException):
                self.redriven += 1
                self.targets[topic] = self.targets.get(topic, 0) + 1
                done.append(offset)
                continue
            self.errors.append(str(result))
            if isinstance(result, UNKNOWN_OUTCOME):
                self.uncertain += 1
            else:
                self.refused += 1
                perhaps_sent.discard(offset)

    async def _claim(self, partition: int, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Those of the letters that nobody else has claimed, sent or discarded since they were read."""
        place = self._topic, partition
        at = await self._mark(partition, "claim", [letter.offset for letter in letters])
        taken: set[int] = set()
        async for record in _records(self._cluster, place, self._read_to[partition], at - 1):
            mark = _mark_of(record)
            if mark is not None and mark["action"] != "undone" and mark["id"] != self.id:
                taken.update(_offsets(mark["offsets"], letters[0].offset, letters[-1].offset))
        self._read_to[partition] = at
        mine = [letter for letter in letters if letter.offset not in taken]
        self.taken += len(letters) - len(mine)
        return mine

    async def _mark(self, partition: int, action: str, offsets: Sequence[int]) -> int:
        if not offsets:
            return -1
        said = {"action": action, "id": self.id, "offsets": list(consecutive(offsets)), "again": self._again}
        key = (
            f"{MARK}/{self.id}/{action}/{min(offsets)}".encode()
        )  # a compacted topic wants one, and keeps each
        marked = await self._producer.send(
            self._topic,
            json.dumps(said).encode(),
            key=key,
            headers=[(MARK, action.encode())],
            partition=partition,
        )
        return marked.offset

    async def _contents(
        self, partition: int, letters: Sequence[DeadLetter]
    ) -> AsyncIterator[tuple[DeadLetter, NewRecord | None]]:
        """Each letter with the record to send; None where it cannot be had any more."""
        wanted = {letter.offset: letter for letter in letters}
        async for record in _records(self._cluster, (self._topic, partition), min(wanted), max(wanted)):
            letter = wanted.pop(record.offset, None)
            if letter is None:
                continue
            original: Record | None = record
            if not letter.is_copied:
                original = await self._original(letter)
            yield letter, None if original is None else self._restored_record(letter, original)
        for letter in wanted.values():
            yield letter, None

    async def _original(self, letter: DeadLetter) -> Record | None:
        if letter.source_topic is None or letter.source_partition is None or letter.source_offset is None:
            return None
        place, offset = (letter.source_topic, letter.source_partition), letter.source_offset
        try:
            async for record in _records(self._cluster, place, offset, offset):
                return record
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            pass
        return None

    def _restored_record(self, letter: DeadLetter, original: Record) -> NewRecord:
        # A letter without the value was written by whoever has finished the record itself: its id is used up.
        not_ours = (FROM, COUNT, ATTEMPTS) if letter.is_copied else (FROM, COUNT, ATTEMPTS, MESSAGE_ID)
        own = [header for header in own_headers(original.headers) if header[0] not in not_ours]
        before = header_number(header_texts(original.headers).get(COUNT)) or 0
        own.append((FROM, f"{self._topic}-{letter.partition}@{letter.offset}".encode()))
        own.append((COUNT, str(before + 1).encode()))
        value = original.value if self._value is None else self._value
        return NewRecord(original.key, value, own, _now_ms())

    async def _target(self, letter: DeadLetter) -> TopicAndPartition | None:
        """Where it came from; another partition if the topic has been made anew with fewer."""
        name = letter.source_topic
        if name is None or letter.source_partition is None:
            return None
        try:
            places = await places_of_topic(self._cluster, name)
        except KafkaError as error:
            self.errors.append(str(error))
            return None
        return places[letter.source_partition % len(places)]


async def places_of_topic(cluster: Cluster, topic: str) -> list[TopicAndPartition]:
    if cluster.topic(topic) is None:
        await cluster.refresh([topic])
    found = cluster.topic(topic)
    if found is None:
        code = cluster.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise error_for(code, about=f"topic {topic!r}")
    return [(topic, index) for index in sorted(found.partitions)]


async def _records(
    cluster: Cluster, place: TopicAndPartition, first: int, last: int
) -> AsyncIterator[Record]:
    if last < first:
        return
    async for _, batch in read_range(cluster, *place, first, last, max_bytes=READ_BYTES):
        for record in read_records(batch):
            if first <= record.offset <= last:
                yield record


class PartitionLetters:
    """The letters of one partition of a dead-letter topic, as far as it has been read."""

    def __init__(self, place: TopicAndPartition, first: int) -> None:
        self.place = place
        self.first = first
        self.position = first
        """The next offset to read."""
        self.letters: dict[int, DeadLetter] = {}
        self._claims: dict[int, str] = {}

    async def read_to(self, cluster: Cluster, end: int) -> None:
        """What was written since the last call, up to this offset."""
        async for record in _records(cluster, self.place, self.position, end - 1):
            self._feed(record)
            self.position = record.offset + 1
        self.position = max(self.position, end)

    def forget_below(self, offset: int) -> bool:
        """Whether there was something to forget."""
        old = [known for known in self.letters if known < offset]
        for known in old:
            del self.letters[known]
            self._claims.pop(known, None)
        return bool(old)

    def _feed(self, record: Record) -> None:
        mark = _mark_of(record)
        if mark is None:
            letter = _letter(self.place, record)
            if letter is not None:
                self.letters[letter.offset] = letter
            return
        for offset in _offsets(mark["offsets"], self.first, record.offset):
            if offset in self.letters:
                self.letters[offset] = _after(self.letters[offset], mark, self._claims)


def _after(letter: DeadLetter, mark: Mapping[str, Any], claims: dict[int, str]) -> DeadLetter:
    """The letter as this mark leaves it. Only its claimer can say what has become of it."""
    holder = claims.get(letter.offset)
    match mark["action"]:
        case "claim" if letter.status is LetterStatus.WAITING or (
            mark.get("again") and letter.status is LetterStatus.CLAIMED
        ):
            claims[letter.offset] = mark["id"]
            return replace(letter, status=LetterStatus.CLAIMED)
        case "done" if holder == mark["id"]:
            return replace(letter, status=LetterStatus.REDRIVEN)
        case "discarded" if holder == mark["id"]:
            return replace(letter, status=LetterStatus.DISCARDED)
        case "undone" if holder == mark["id"]:
            del claims[letter.offset]
            return replace(letter, status=LetterStatus.WAITING)
    return letter


def _letter(place: TopicAndPartition, record: Record) -> DeadLetter | None:
    facts = read_facts(record.headers)
    if facts is None:
        return None
    kind = facts.cause or facts.message
    signs = [facts.group_id, kind, facts.traceback_hash or facts.message]
    return DeadLetter(
        topic=place[0],
        partition=place[1],
        offset=record.offset,
        timestamp=record.timestamp,
        status=LetterStatus.WAITING,
        source_topic=facts.topic,
        source_partition=facts.partition,
        source_offset=facts.offset,
        group_id=facts.group_id,
        delivery_count=facts.delivery_count,
        message=facts.message,
        kind=kind,
        exception=facts.exception,
        traceback_hash=facts.traceback_hash,
        is_copied=facts.is_copied and not (record.key is None and record.value is None),
        attempts=facts.attempts,
        cause=hashlib.sha256("\n".join(sign or "" for sign in signs).encode()).hexdigest()[:8],
        source=None if facts.topic is None else f"{facts.topic}-{facts.partition}@{facts.offset}",
    )


def _cause(key: str, letters: Sequence[DeadLetter]) -> DeadLetterCause:
    newest = max(letters, key=lambda letter: letter.timestamp)
    counts = {status: sum(letter.status is status for letter in letters) for status in LetterStatus}
    return DeadLetterCause(
        id=key,
        text=newest.message or newest.kind or "(it does not say)",
        kind=newest.kind,
        exception=newest.exception,
        group_id=newest.group_id,
        count=len(letters),
        waiting=counts[LetterStatus.WAITING],
        claimed=counts[LetterStatus.CLAIMED],
        redriven=counts[LetterStatus.REDRIVEN],
        discarded=counts[LetterStatus.DISCARDED],
        first_timestamp=min(letter.timestamp for letter in letters),
        last_timestamp=newest.timestamp,
        source_topics=tuple(sorted({letter.source_topic for letter in letters if letter.source_topic})),
    )


def _choose(
    letters: Iterable[DeadLetter], *, cause: str | None, limit: int | None, again: bool
) -> list[DeadLetter]:
    wanted = {LetterStatus.WAITING, LetterStatus.CLAIMED} if again else {LetterStatus.WAITING}
    fitting = [
        letter for letter in letters if letter.status in wanted and (cause is None or letter.cause == cause)
    ]
    oldest = sorted(fitting, key=lambda letter: (letter.timestamp, letter.partition, letter.offset))[:limit]
    return sorted(oldest, key=lambda letter: (letter.partition, letter.offset))


def _targets(letters: Iterable[DeadLetter]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for letter in letters:
        if letter.source_topic is not None:
            counts[letter.source_topic] = counts.get(letter.source_topic, 0) + 1
    return counts


def _mark_of(record: Record) -> dict[str, Any] | None:
    """What a record of ours says; None for any other record, and for one that only looks like ours."""
    if MARK not in header_texts(record.headers):
        return None
    try:
        said = json.loads(record.value or b"")
        return {**said, "action": str(said["action"]), "id": str(said["id"]), "offsets": said["offsets"]}
    except (ValueError, TypeError, KeyError):
        return None


def _offsets(spans: Any, lowest: int, highest: int) -> Iterator[int]:
    """Those within bounds: whoever may write to the topic can write a mark, with anything in it."""
    for span in spans if isinstance(spans, list) else ():
        match span:
            case [int() as first, int() as last]:
                yield from range(max(first, lowest), min(last, highest) + 1)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
