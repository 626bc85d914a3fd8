"""Dead letters: what lies in a dead-letter topic, why, and the way back to where it came from (redrive).

    listing = await read_dead_letters(cluster, "dlq.orders")
    for cause in listing.causes(): print(cause.count, cause.text)
    result = await redrive(cluster, "dlq.orders", cause=cause.id, dry_run=False)

Theory of operation. A dead letter says in headers where its record was and why it was given up: `__dlq.errors.*`
(KIP-1191) by a broker or a worker, `headrace.dlq.*` by a worker. What has become of it since is written in the same
partition, behind it, by small records of ours (header `headrace.redrive`), so nothing else needs to be kept anywhere:

    claim   before anything is sent: these offsets are mine. Of two who want a letter, the first claim in the log wins
    done    they are in their topic again
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
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import uuid4

from headrace.client.cluster import Cluster
from headrace.client.errors import (
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RequestTimeoutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from headrace.client.plain_fetch import EARLIEST, LATEST, list_offsets, read_range
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ProducerSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, Record, read_records

KAFKA_PREFIX = "__dlq.errors."
OUR_PREFIX = "headrace.dlq."
MARK = "headrace.redrive"
FROM, COUNT = "headrace.redrive.from", "headrace.redrive.count"
LETTERS_MAX = 10_000
CHUNK = 200
BATCH_BYTES_MAX = 512 * 1024
REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Above what brokers take, so that they decide (`max.message.bytes`)."""
UNKNOWN_OUTCOME = (RequestTimeoutError, OutOfOrderSequenceError)
READ_BYTES = 1 << 20

Place = tuple[str, int]


class LetterStatus(StrEnum):
    WAITING = "waiting"
    CLAIMED = "claimed"
    """A redrive began with it and did not say how it ended: it may have been sent."""
    REDRIVEN = "redriven"


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

    @property
    def cause(self) -> str:
        """Letters with the same have died of the same: eight characters, for people and for `redrive`."""
        signs = [self.group_id, self.kind, self.traceback_hash or self.message]
        return hashlib.sha256("\n".join(sign or "" for sign in signs).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
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

    def causes(self) -> list[Cause]:
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
    places = await _places(cluster, topic)
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    share = max(1, letters_max // max(1, len(places)))
    letters: list[DeadLetter] = []
    passed_over = 0
    for place in places:
        first, end = max(starts[place], ends[place] - share), ends[place]
        passed_over += first - starts[place]
        letters += await _read_partition(cluster, place, first, end)
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
    again: bool = False,
    dry_run: bool = True,
    letters_max: int = LETTERS_MAX,
) -> RedriveResult:
    """Sends dead letters back to the partitions they came from: all that wait, those of one cause, the oldest `limit`.

    `group_id` leaves out the letters of other groups, where several share the topic.

    `again` takes those too whose redrive was interrupted: it may have sent them. Headers about the death are taken
    off; `headrace.redrive.from` and `headrace.redrive.count` tell where the record has been.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit} is not possible: give 1 or more, or None for all")
    listing = await read_dead_letters(cluster, topic, letters_max=letters_max)
    if cause is not None and all(letter.cause != cause for letter in listing.letters):
        raise ValueError(f"no dead letter in {topic} has the cause {cause!r}; list them to see their causes")
    ours = [letter for letter in listing.letters if group_id in (None, letter.group_id)]
    chosen = _choose(ours, cause=cause, limit=limit, again=again)
    planned = RedriveResult(
        is_dry_run=dry_run, chosen=len(chosen), targets=_targets(chosen), passed_over=listing.passed_over
    )
    if dry_run or not chosen:
        return planned
    settings = ProducerSettings.from_client(
        cluster.settings,
        max_request_size=REQUEST_BYTES_MAX,
        delivery_timeout_ms=cluster.settings.default_api_timeout_ms,
    )
    async with AsyncProducer.of(settings) as producer:
        drive = _Drive(cluster, producer, listing, again=again)
        for partition in sorted({letter.partition for letter in chosen}):
            here = [letter for letter in chosen if letter.partition == partition]
            for begin in range(0, len(here), CHUNK):
                await drive.send(partition, here[begin : begin + CHUNK])
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


class _Drive:
    """One redrive under way; `id` tells its claims from those of others."""

    def __init__(self, cluster: Cluster, producer: AsyncProducer, listing: Listing, *, again: bool) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = listing.topic
        self._read_to = dict(listing.ends)
        self._again = again
        self.id = uuid4().hex
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
            # Even when cancelled: what was sent has been sent, and must not be sent again.
            await self._mark(partition, "done", done)
            undone = [letter.offset for letter in mine if letter.offset not in perhaps_sent]
            await self._mark(partition, "undone", undone)

    async def _sorted_by_target(
        self, partition: int, letters: Sequence[DeadLetter]
    ) -> dict[Place, list[tuple[int, NewRecord]]]:
        by_target: dict[Place, list[tuple[int, NewRecord]]] = {}
        async for letter, record in self._contents(partition, letters):
            target = await self._target(letter)
            if record is None or target is None:
                self.gone += 1
            else:
                by_target.setdefault(target, []).append((letter.offset, record))
        return by_target

    async def _produce(
        self,
        target: Place,
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
        """Those of the letters that nobody else has claimed since they were read."""
        place = self._topic, partition
        at = await self._mark(partition, "claim", [letter.offset for letter in letters])
        taken: set[int] = set()
        async for record in _records(self._cluster, place, self._read_to[partition], at - 1):
            mark = _mark_of(record)
            if mark is not None and mark["action"] == "claim" and mark["id"] != self.id:
                taken.update(_offsets(mark["offsets"], letters[0].offset, letters[-1].offset))
        self._read_to[partition] = at
        mine = [letter for letter in letters if letter.offset not in taken]
        self.taken += len(letters) - len(mine)
        return mine

    async def _mark(self, partition: int, action: str, offsets: Sequence[int]) -> int:
        if not offsets:
            return -1
        said = {"action": action, "id": self.id, "offsets": list(_spans(offsets)), "again": self._again}
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
            yield letter, None if original is None else self._alive_again(letter, original)
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

    def _alive_again(self, letter: DeadLetter, original: Record) -> NewRecord:
        own = [
            (name, value)
            for name, value in original.headers
            if not name.startswith((KAFKA_PREFIX, OUR_PREFIX)) and name not in (FROM, COUNT)
        ]
        before = _number(_texts(original.headers).get(COUNT)) or 0
        own.append((FROM, f"{self._topic}-{letter.partition}@{letter.offset}".encode()))
        own.append((COUNT, str(before + 1).encode()))
        return NewRecord(original.key, original.value, own, _now_ms())

    async def _target(self, letter: DeadLetter) -> Place | None:
        """Where it came from; another partition if the topic has been made anew with fewer."""
        name = letter.source_topic
        if name is None or letter.source_partition is None:
            return None
        try:
            places = await _places(self._cluster, name)
        except KafkaError as error:
            self.errors.append(str(error))
            return None
        return places[letter.source_partition % len(places)]


async def _places(cluster: Cluster, topic: str) -> list[Place]:
    if cluster.topic(topic) is None:
        await cluster.refresh([topic])
    found = cluster.topic(topic)
    if found is None:
        code = cluster.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise error_for(code, about=f"topic {topic!r}")
    return [(topic, index) for index in sorted(found.partitions)]


async def _records(cluster: Cluster, place: Place, first: int, last: int) -> AsyncIterator[Record]:
    if last < first:
        return
    async for _, batch in read_range(cluster, *place, first, last, max_bytes=READ_BYTES):
        for record in read_records(batch):
            if first <= record.offset <= last:
                yield record


async def _read_partition(cluster: Cluster, place: Place, first: int, end: int) -> list[DeadLetter]:
    letters: dict[int, DeadLetter] = {}
    claims: dict[int, str] = {}
    async for record in _records(cluster, place, first, end - 1):
        mark = _mark_of(record)
        if mark is None:
            letter = _letter(place, record)
            if letter is not None:
                letters[letter.offset] = letter
            continue
        for offset in _offsets(mark["offsets"], first, record.offset):
            if offset in letters:
                letters[offset] = _after(letters[offset], mark, claims)
    return list(letters.values())


def _after(letter: DeadLetter, mark: Mapping[str, Any], claims: dict[int, str]) -> DeadLetter:
    """The letter as this mark leaves it. Only its claimer can say what has become of it."""
    holder = claims.get(letter.offset)
    match mark["action"]:
        case "claim" if letter.status is LetterStatus.WAITING or (mark.get("again") and holder):
            claims[letter.offset] = mark["id"]
            return replace(letter, status=LetterStatus.CLAIMED)
        case "done" if holder == mark["id"]:
            return replace(letter, status=LetterStatus.REDRIVEN)
        case "undone" if holder == mark["id"]:
            del claims[letter.offset]
            return replace(letter, status=LetterStatus.WAITING)
    return letter


def _letter(place: Place, record: Record) -> DeadLetter | None:
    facts = _texts(record.headers)
    if not any(name.startswith((KAFKA_PREFIX, OUR_PREFIX)) for name in facts):
        return None
    message = facts.get(KAFKA_PREFIX + "message", "")
    raised = facts.get(OUR_PREFIX + "exception", "")
    is_empty = record.key is None and record.value is None
    return DeadLetter(
        topic=place[0],
        partition=place[1],
        offset=record.offset,
        timestamp=record.timestamp,
        status=LetterStatus.WAITING,
        source_topic=facts.get(KAFKA_PREFIX + "topic"),
        source_partition=_number(facts.get(KAFKA_PREFIX + "partition")),
        source_offset=_number(facts.get(KAFKA_PREFIX + "offset")),
        group_id=facts.get(KAFKA_PREFIX + "group"),
        delivery_count=_number(facts.get(KAFKA_PREFIX + "delivery.count")),
        message=message,
        kind=facts.get(OUR_PREFIX + "cause") or message,
        exception=raised.partition(":")[0] or None,
        traceback_hash=facts.get(OUR_PREFIX + "traceback.hash") or None,
        is_copied=not is_empty and facts.get(OUR_PREFIX + "copied") != "false",
    )


def _cause(key: str, letters: Sequence[DeadLetter]) -> Cause:
    newest = max(letters, key=lambda letter: letter.timestamp)
    counts = {status: sum(letter.status is status for letter in letters) for status in LetterStatus}
    return Cause(
        id=key,
        text=newest.message or newest.kind or "(it does not say)",
        kind=newest.kind,
        exception=newest.exception,
        group_id=newest.group_id,
        count=len(letters),
        waiting=counts[LetterStatus.WAITING],
        claimed=counts[LetterStatus.CLAIMED],
        redriven=counts[LetterStatus.REDRIVEN],
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
    if MARK not in _texts(record.headers):
        return None
    try:
        said = json.loads(record.value or b"")
        return {**said, "action": str(said["action"]), "id": str(said["id"]), "offsets": said["offsets"]}
    except (ValueError, TypeError, KeyError):
        return None


def _spans(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for offset in sorted(offsets):
        if first is None or last is None:
            first = last = offset
        elif offset == last + 1:
            last = offset
        else:
            yield first, last
            first = last = offset
    if first is not None and last is not None:
        yield first, last


def _offsets(spans: Any, lowest: int, highest: int) -> Iterator[int]:
    """Those within bounds: whoever may write to the topic can write a mark, with anything in it."""
    for span in spans if isinstance(spans, list) else ():
        match span:
            case [int() as first, int() as last]:
                yield from range(max(first, lowest), min(last, highest) + 1)


def _texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: (value or b"").decode(errors="replace") for name, value in headers}


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
