"""Random requests that a client could send: every field valid on the wire, its value ordinary, strange or extreme.

`RequestMaker` draws requests of every served API and version. It knows which fields name things (topics, groups,
members, producers, offsets) and takes most of their values from what exists, so that requests get past the first check.
How many of the others are extremes of their type differs from request to request. `RequestTrial` sends them to a whole
core in memory and checks each answer.
"""

import logging
import random
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.call import Call, CloseConnection
from headrace.broker.clock import Clock
from headrace.broker.core import BrokerCore
from headrace.broker.handlers import SERVED, served_versions
from headrace.broker.later import Later
from headrace.broker.runner import Done, Work
from headrace.broker.settings import Settings
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.apis import NAMES, request_class
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import F, Message
from headrace.wire.records import NewRecord, build_batch, build_marker

INTEGERS = {"int8": 8, "int16": 16, "uint16": 17, "int32": 32, "uint32": 33, "int64": 64}
TEXTS = [
    "",
    "orders",
    "x" * 249,
    "x" * 300,
    "é",
    "a.b",
    "a_b",
    "__consumer_offsets",
    "..",
    "a b",
    "\0",
    "-1",
    "1",
]
CONFIG_NAMES = [
    "retention.ms", "cleanup.policy", "segment.bytes", "share.auto.offset.reset", "share.isolation.level",
    "consumer.session.timeout.ms", "max.connections", "interval.ms", "match", "metrics", "min.insync.replicas",
    "num.io.threads", "headrace.topics", "leader.replication.throttled.replicas",
]  # fmt: skip
VALUES = [
    "",
    "1",
    "-1",
    "0",
    "latest",
    "earliest",
    "by_duration:PT1S",
    "compact",
    "delete",
    "100000",
    "DEBUG",
    "9" * 30,
]
MAY_BE_UNKNOWN = frozenset({"share_fetch", "share_acknowledge", "write_txn_markers"})
"""What Kafka answers with UNKNOWN_SERVER_ERROR too: share state that was never initialized, markers of nobody."""
PARTITIONS_MAX = 5
"""Of a topic that is made here: many partitions are slow to make, and show nothing more."""


class StillClock(Clock):
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms + 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms


class AtOnce:
    def run(self, work: Work, done: Done) -> None:
        work()
        done(None)

    run_slow = run


@dataclass
class Known:
    """What earlier answers have named."""

    topics: list[str] = field(default_factory=lambda: ["orders", "payments", "gone"])
    topic_ids: list[bytes] = field(default_factory=list)
    groups: list[str] = field(default_factory=lambda: ["g1", "g2", "g3", "g4", "g5"])
    members: list[str] = field(default_factory=lambda: ["m1", "m2"])
    transactional_ids: list[str] = field(default_factory=lambda: ["t1", "t2"])
    producers: list[tuple[int, int]] = field(default_factory=lambda: [(1000, 0)])


class RequestMaker:
    def __init__(self, chance: random.Random, known: Known) -> None:
        self._chance = chance
        self._known = known
        self._strangeness = 0.0

    def draw(self) -> tuple[Message, int]:
        self._strangeness = self._chance.choice([0.0, 0.1, 0.25])
        key = self._chance.choice(SERVED)
        versions = served_versions(key)
        assert versions is not None
        version = self._chance.randint(*versions)
        return self.message(request_class(key), version), version

    def message(self, message: type[Message], version: int) -> Message:
        fields = [each for each in message.SCHEMA if each.versions[0] <= version <= each.versions[1]]
        return message(**{each.name: self._value(message.__name__, each, version) for each in fields})

    def _value(self, owner: str, field: F, version: int) -> Any:
        chance = self._chance
        if (
            field.nullable is not None
            and field.nullable[0] <= version <= field.nullable[1]
            and chance.random() < 0.15
        ):
            return None
        element = field.kind.removeprefix("[]")
        if element == field.kind:
            return self._one(owner, field, element, version)
        return [self._one(owner, field, element, version) for _ in range(chance.choice([0, 1, 1, 1, 2, 3]))]

    def _one(self, owner: str, field: F, kind: str, version: int) -> Any:
        chance = self._chance
        if field.struct is not None:
            return self.message(field.struct, version)
        if kind == "bool":
            return chance.random() < 0.5
        if kind == "float64":
            return chance.choice([0.0, -1.0, 1e308, float("inf")])
        if kind == "uuid":
            return chance.choice([*self._known.topic_ids[-8:], bytes(16), chance.randbytes(16)])
        if kind in ("bytes", "records"):
            return self._bytes(kind)
        if kind == "string":
            return self._text(owner, field.name)
        return self._integer(field.name, kind)

    def _text(self, owner: str, name: str) -> str:
        chance, known = self._chance, self._known
        if chance.random() < self._strangeness:
            return chance.choice(TEXTS)
        if "group" in name and "instance" not in name:
            return chance.choice(known.groups)
        if "member" in name:
            return chance.choice(["", *known.members[-4:]])
        if "transactional" in name or name == "key":
            return chance.choice([*known.transactional_ids, *known.groups])
        if name in ("value", "config_value"):
            return chance.choice(VALUES)
        if "Config" in owner and name == "name":
            return chance.choice(CONFIG_NAMES)
        if name == "resource_name":
            return chance.choice([*known.topics, *known.groups, "1", ""])
        if "topic" in name or name == "name":
            return chance.choice(known.topics)
        if "protocol" in name:
            return chance.choice(["consumer", "range"])
        return chance.choice(TEXTS)

    def _integer(self, name: str, kind: str) -> int:
        high = 2 ** (INTEGERS[kind] - 1) - 1
        low = 0 if kind.startswith("u") else -high - 1
        return max(low, min(self._number(name, low, high), high))

    def _number(self, name: str, low: int, high: int) -> int:
        chance = self._chance
        if name in ("num_partitions", "count"):
            return chance.choice([-1, 0, 1, 2, PARTITIONS_MAX, high])
        if chance.random() < self._strangeness:
            return chance.choice([low, high, low + 1, high - 1])
        if "producer_id" in name:
            return chance.choice(self._known.producers[-6:])[0]
        if "producer_epoch" in name:
            return chance.choice(self._known.producers[-6:])[1]
        if "partition" in name:
            return chance.choice([0, 0, 0, 1, 2, -1])
        if "epoch" in name or "generation" in name:
            return chance.choice([-1, -1, 0, 0, 1, 2, 3])
        if "offset" in name:
            return chance.choice([-2, -1, 0, 0, 1, 2, 5, 10])
        if name == "resource_type":
            return chance.choice([2, 4, 8, 16, 32])
        if name in ("max_wait_ms", "timeout_ms"):
            return chance.choice([0, 0, 1, 100, 60_000])
        if "ms" in name.split("_") or "timeout" in name:
            return chance.choice([0, 1, 10_000, 45_000, 60_000])
        return chance.choice([0, 0, 1, 1, 2, 3, 4, 10, 100, 1 << 20])

    def _bytes(self, kind: str) -> bytes:
        chance = self._chance
        if kind == "bytes" or chance.random() < 0.15:
            return chance.choice(
                [b"", b"\0", b"\0\0", b"\0\x01\0\0\0\0\xff\xff\xff\xff", chance.randbytes(30)]
            )
        count = chance.choice([1, 1, 2, 10])
        now_ms = 1_700_001_000_000 + chance.choice([0, 0, 0, -(10**9), 10**9])
        records = [
            NewRecord(chance.choice([None, b"k"]), chance.choice([None, b"v"]), timestamp=now_ms)
        ] * count
        if chance.random() < 0.5:
            return build_batch(records)
        producer_id, epoch = chance.choice(self._known.producers[-6:])
        if chance.random() < 0.05:
            return build_marker(
                producer_id=producer_id,
                producer_epoch=epoch,
                commit=True,
                coordinator_epoch=0,
                timestamp=now_ms,
            )
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=chance.choice([0, 0, 1, 10, 2**31 - 1]),
            is_transactional=chance.random() < 0.5,
        )


class Violation(AssertionError):
    """An answer that no request may get."""


class _Failures(logging.Handler):
    """Errors of ours: those that come with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.found.append(logging.Formatter().format(record))


class RequestTrial:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._known = Known()
        self._maker = RequestMaker(self._chance, self._known)
        self._clock = StillClock()
        self._waiting: list[tuple[Message, int, Later[Message]]] = []
        self._last = "the start"
        self.codes: dict[int, int] = {}
        self.core = BrokerCore(
            Settings(
                {
                    "offsets.topic.num.partitions": 2,
                    "log.cleaner.backoff.ms": 1000,
                }
            ),
            disk=MemoryDisk(),
            metadata_path=None,
            clock=self._clock,
            runner=AtOnce(),
            on_failure=self._failed,
        )
        self.core.addresses = {"PLAINTEXT": ("localhost", 9092)}
        self._make_topics()

    def _make_topics(self) -> None:
        """Requests delete them too."""
        for name in ("orders", "payments"):
            if self.core.topics.get(name) is None:
                self.core.topics.create(name, partitions=2, configs={})

    def _failed(self, error: Exception) -> None:
        raise Violation(f"the broker has stopped: {error!r}")

    def run(self, count: int) -> None:
        """Raises Violation, also for what the broker has only logged: a timer or a callback that failed."""
        logged = _Failures()
        logging.getLogger("headrace").addHandler(logged)
        try:
            for _ in range(count):
                self.step()
                if logged.found:
                    raise Violation(f"after {self._last}: {logged.found[0]}")
        finally:
            logging.getLogger("headrace").removeHandler(logged)
            self.core.close()

    def step(self) -> None:
        if self._chance.random() < 0.1:
            self._make_topics()
        self._known.topic_ids = [topic.id for topic in self.core.topics]
        request, version = self._maker.draw()
        self._last = f"{request!r} v{version}"
        # Through the codec, as a request from the wire: what a version does not have gets its default.
        request, _ = read_message(type(request), version, encode(request, version))
        call = Call(
            api_version=version,
            client_id=self._chance.choice([None, "", "client", "__admin_client"]),
            connection_id=self._chance.randrange(4),
        )
        before = self.core.failed

        def failed(refused: Message, call: Call, error: Exception) -> Message:
            if not isinstance(error, KafkaError):
                raise Violation(f"{refused!r} v{call.api_version} fails with {error!r}") from error
            return before(refused, call, error)

        self.core.failed = failed  # type: ignore[method-assign]
        try:
            answer = self.core.handle(request, call)
        except CloseConnection as error:
            if NAMES[request.API_KEY] != "produce":
                raise Violation(f"{request!r} v{version} closes the connection: {error}") from error
            return
        finally:
            self.core.failed = before  # type: ignore[method-assign]
        if isinstance(answer, Later):
            self._waiting.append((request, version, answer))
        elif answer is not None:
            self._check(request, version, answer)
        self._pass_time()

    def _pass_time(self) -> None:
        chance = self._chance
        self._clock.now_ms += chance.choice([0, 0, 1, 100, 1_000, 61_000]) if chance.random() < 0.2 else 0
        self.core.settle()
        if chance.random() < 0.02:
            for listener in self.core.on_disconnect:
                listener(chance.randrange(4))
        still = []
        for request, version, later in self._waiting:
            if later.is_done:
                self._check(request, version, later.value)
            else:
                still.append((request, version, later))
        while len(still) > 20:
            still.pop(0)[2].abandon()
        self._waiting = still

    def _check(self, request: Message, version: int, answer: Message) -> None:
        try:
            encoded = encode(answer, version)
        except Exception as error:
            raise Violation(f"the answer to {request!r} v{version} cannot be encoded: {answer!r}") from error
        decoded, size = read_message(type(answer), version, encoded)
        if size != len(encoded):
            raise Violation(f"the answer to {request!r} v{version} does not read back")
        self._note(request, version, decoded, decoded)

    def _note(self, request: Message, version: int, whole: Message, part: Message) -> None:
        for each in part.SCHEMA:
            value = getattr(part, each.name)
            if each.name.endswith("error_code"):
                self.codes[value] = self.codes.get(value, 0) + 1
                if value == ErrorCode.UNKNOWN_SERVER_ERROR and NAMES[request.API_KEY] not in MAY_BE_UNKNOWN:
                    raise Violation(f"{request!r} v{version} is answered with -1: {whole!r}")
            elif each.name == "member_id" and value:
                self._known.members.append(value)
            elif each.name == "producer_id" and value >= 0:
                self._known.producers.append((value, max(0, getattr(part, "producer_epoch", 0))))
            for nested in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(nested, Message):
                    self._note(request, version, whole, nested)
