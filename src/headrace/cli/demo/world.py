"""Where a story is played: the broker (ours, or one that is given), its folder, its dashboard, and the audience.

Everything that a story makes has a name of its own, so that the demo can be pointed at a cluster that is in use; the
topics and groups it made there are removed at the end.
"""

import contextlib
import json
import logging
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from headrace.cli.demo.orders import key_of, value_of

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.client.admin import Admin
    from headrace.client.producing.sync import Producer
    from headrace.client.sync import ShareConsumer

T = TypeVar("T")
PARTITIONS = 2
WAIT_S_MAX = 90.0
"""No story waits longer than this for anything."""
TICK_S = 0.1


class TookTooLong(Exception):
    """A story did not come to its end; the message says what it was waiting for."""


class World:
    """One run of the demo."""

    def __init__(self, settings: Mapping[str, str], folder: Path, console: Console) -> None:
        self.settings = dict(settings)
        self.folder = folder
        self.console = console
        self.broker: Broker | None = None
        """Ours, in this process; None when the demo runs against another."""
        self.run_id = secrets.token_hex(3)
        self.stopping = threading.Event()
        self.groups: set[str] = set()
        self.topics: set[str] = set()
        self.broker_start_ms = 0.0
        self._stack = contextlib.ExitStack()
        self.admin: Admin
        self.producer: Producer

    @property
    def is_live(self) -> bool:
        """Someone watches on a terminal."""
        return self.console.is_terminal

    def say(self, text: str = "") -> None:
        self.console.print(text, highlight=False)

    def name(self, word: str) -> str:
        return word if self.broker is not None else f"headrace-demo-{self.run_id}-{word}"

    def topic(self, word: str, *, partitions: int = PARTITIONS) -> str:
        name = self.name(word)
        if name not in self.topics:
            self.admin.create_topic(name, partitions=partitions)
            self.topics.add(name)
        return name

    def group(self, word: str, *, is_share: bool = True) -> str:
        """A share group begins at the beginning here."""
        name = self.name(word)
        self.groups.add(name)
        if is_share:
            self.admin.set_group_config(name, {"share.auto.offset.reset": "earliest"})
        return name

    def share_consumer(self, group: str, topic: str, **settings: object) -> "ShareConsumer":
        from headrace.client.sync import ShareConsumer

        chosen: dict[str, object] = {
            **self.settings,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": 10,
        }
        consumer = ShareConsumer({**chosen, **settings})
        consumer.subscribe([topic])
        return consumer

    def produce(self, topic: str, numbers: range, *, per_second: float | None = None) -> None:
        """Orders by their numbers, each acknowledged before the next is sent."""
        for number in numbers:
            if self.stopping.is_set():
                return
            self.producer.send(topic, value_of(number), key=key_of(number)).result()
            if per_second is not None:
                self.stopping.wait(1 / per_second)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits for something that must come."""
        for _ in range(int(WAIT_S_MAX / TICK_S)):
            if is_so():
                return
            self.stopping.wait(TICK_S)
        raise TookTooLong(f"{what} did not come within {WAIT_S_MAX:.0f} s")

    def drained(self, group: str, topic: str) -> bool:
        """Every record of the topic has come to an end in this share group."""
        from headrace.client.errors import GroupIdNotFoundError

        try:
            offsets = self.admin.share_group_offsets(group, [topic]).values()
        except GroupIdNotFoundError:  # nobody has joined it yet
            return False
        return all(one.lag == 0 or (one.lag is None and not one.end_offset) for one in offsets)

    @contextlib.contextmanager
    def crew(self, *jobs: Callable[[], T]) -> Iterator[list[Future[T]]]:
        """Runs each job on a thread of its own; they end when `stopping` is set, as it is when the block ends."""
        with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
            futures = [pool.submit(job) for job in jobs]
            try:
                yield futures
            finally:
                self.stopping.set()
                wait(futures)
                self.stopping.clear()

    def open(self, *, is_embedded: bool) -> None:
        from headrace.client.admin import Admin
        from headrace.client.producing.sync import Producer

        if is_embedded:
            from headrace.broker.embedded import Broker

            started = time.monotonic()
            self.broker = self._stack.enter_context(Broker(data_dir=self.folder / "broker"))
            self.broker_start_ms = (time.monotonic() - started) * 1000
            self.settings["bootstrap.servers"] = self.broker.bootstrap_servers
        self.admin = self._stack.enter_context(Admin(self.settings))
        self.producer = self._stack.enter_context(Producer(self.settings))

    def restart_broker(self) -> None:
        """Ours, on the same address and data; clients live through it."""
        from headrace.broker.embedded import Broker

        assert self.broker is not None
        host, port = self.settings["bootstrap.servers"].rsplit(":", 1)
        self.broker.stop()
        self.broker = self._stack.enter_context(
            Broker(data_dir=self.folder / "broker", host=host, port=int(port))
        )

    def open_dashboard(self) -> str | None:
        """Its address; None where its packages are not installed."""
        from headrace.cli.failures import Refused
        from headrace.cli.web import open_dashboard
        from headrace.client.settings import ClientSettings

        detail = None
        try:
            if self.broker is not None:
                from headrace.web.embedded import Detail

                detail = Detail(self.broker)
            dashboard, address = open_dashboard(
                ClientSettings.parse(self.settings),
                "127.0.0.1:0",
                token=None,
                read_only=False,
                detail=detail,
            )
        except (Refused, ModuleNotFoundError):
            return None
        self._stack.callback(dashboard.stop)
        return address

    def close(self) -> None:
        """Stops everything, and takes back what was made on a cluster that is not ours."""
        from headrace.wire.errors import KafkaError

        self.stopping.set()
        if self.broker is None and hasattr(self, "admin"):
            for remove, names in (
                (self.admin.delete_groups, self.groups),
                (self.admin.delete_topics, self.topics),
            ):
                try:
                    if names:
                        remove(sorted(names))
                except (KafkaError, ExceptionGroup) as error:
                    self.say(
                        f"   Left behind: {error}"
                    )  # a member that was killed is one until its session ends
        self._stack.close()


@contextlib.contextmanager
def opened(settings: Mapping[str, str], *, folder: Path | None, is_embedded: bool) -> Iterator[World]:
    """A world in a folder of its own, which is removed at the end unless it was given."""
    place = Path(tempfile.mkdtemp(prefix="headrace-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    for name in ("aiokafka", "headrace"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a broker that goes away is part of the story
    world = World(settings, place, Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty()))
    try:
        world.open(is_embedded=is_embedded)
        yield world
    finally:
        world.close()
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)


def settings_text(settings: Mapping[str, str]) -> str:
    """For a process that is told by one argument."""
    return json.dumps(dict(settings))
