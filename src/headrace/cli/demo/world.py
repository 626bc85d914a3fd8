"""Where a story is played: the broker (ours, or one that is given), its folder, its dashboard, and the audience.

Everything that a story makes has a name of its own, so that the demo can be pointed at a cluster that is in use; the
topics and groups it made there are removed at the end.
"""

import contextlib
import itertools
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from headrace.cli.demo.orders import key_of, value_of
from headrace.cli.failures import Refused
from headrace.wire.acls import AclResourceType

if TYPE_CHECKING:
    from headrace.cli.demo.broker_process import BrokerProcess
    from headrace.cli.demo.security import DemoSecurity
    from headrace.client.admin import Admin
    from headrace.client.producing.sync import Producer
    from headrace.client.sync import ShareConsumer

T = TypeVar("T")
PARTITIONS = 2
WAIT_S_MAX = 180.0
"""No story waits longer than this for anything."""
TICK_S = 0.1


class TookTooLong(Refused):
    """A story did not come to its end; the message says what it was waiting for."""


class World:
    """One run of the demo."""

    def __init__(self, settings: Mapping[str, str], folder: Path, console: Console) -> None:
        self.settings = dict(settings)
        self.folder = folder
        self.console = console
        self.broker: BrokerProcess | None = None
        """Ours; None when the demo runs against another."""
        self.security: DemoSecurity | None = None
        """TLS, users and ACLs of our broker, if it was started with them."""
        self.kills = 0
        """How often something was killed with -9."""
        self._acts: Iterator[int] | None = None
        self.run_id = secrets.token_hex(3)
        self.stopping = threading.Event()
        self.groups: set[str] = set()
        self.topics: dict[str, int] = {}
        """With their numbers of partitions."""
        self._stack = contextlib.ExitStack()
        self.admin: Admin
        self.producer: Producer

    @property
    def is_live(self) -> bool:
        """Someone watches on a terminal."""
        return self.console.is_terminal and not self.console.record

    def number_acts(self) -> None:
        """Several stories are played one after the other."""
        self._acts = itertools.count(1)

    def act(self) -> str:
        return "" if self._acts is None else f"{next(self._acts)}. "

    def say(self, text: str = "", *, bold: bool = False) -> None:
        self.console.print(text, highlight=False, style="bold" if bold else None)

    def name(self, word: str) -> str:
        return word if self.broker is not None else f"headrace-demo-{self.run_id}-{word}"

    def topic(self, word: str, *, partitions: int = PARTITIONS) -> str:
        name = self.name(word)
        if name not in self.topics:
            self.admin.create_topic(name, partitions=partitions)
            self._allow(AclResourceType.TOPIC, name)
            self.topics[name] = partitions
        return name

    def group(self, word: str, *, is_share: bool = True) -> str:
        """A share group begins at the beginning here."""
        name = self.name(word)
        self._allow(AclResourceType.GROUP, name)
        self.groups.add(name)
        if is_share:
            self.admin.set_group_config(name, {"share.auto.offset.reset": "earliest"})
        return name

    def _allow(self, kind: AclResourceType, name: str) -> None:
        from headrace.cli.demo.security import rights

        if self.security is not None:
            self.admin.create_acls(rights(kind, name))

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

    def produce_fast(self, topic: str, numbers: range) -> None:
        """All at once, as many to each partition, and all acknowledged when it returns."""
        partitions = self.topics[topic]
        sent = [
            self.producer.send(topic, value_of(number), key=key_of(number), partition=number % partitions)
            for number in numbers
        ]
        for one in sent:
            one.result()

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits for something that must come."""
        for _ in range(int(WAIT_S_MAX / TICK_S)):
            if is_so():
                return
            self.stopping.wait(TICK_S)
        raise TookTooLong(
            f"waited {WAIT_S_MAX:.0f} s for {what}. If the machine is busy, try again later, or play one part "
            "with --story. Otherwise this is a fault in Headrace, please report it."
        )

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

    def settings_file(self) -> Path:
        """For other processes of a story. There may be a password in it, and everybody can read arguments."""
        path = self.folder / "client.json"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self.settings, file)
        return path

    def open(self, *, is_embedded: bool, is_secure: bool = False) -> None:
        from headrace.client.admin import Admin
        from headrace.client.producing.sync import Producer

        if is_embedded:
            from headrace.cli.demo.broker_process import BrokerProcess

            if is_secure:
                from headrace.cli.demo.security import SHOP, DemoSecurity

                self.security = DemoSecurity(self.folder)
                self.settings |= self.security.login(SHOP)
            self.broker = BrokerProcess(self.folder, self.security)
            self._stack.callback(self.broker.kill)
            self.broker.start()
            self.settings["bootstrap.servers"] = self.broker.bootstrap_servers
        self.admin = self._stack.enter_context(Admin(self.admin_settings()))
        self.producer = self._stack.enter_context(Producer(self.settings))

    def admin_settings(self) -> dict[str, str]:
        from headrace.cli.demo.security import ADMIN

        return self.settings if self.security is None else {**self.settings, **self.security.login(ADMIN)}

    def open_dashboard(self) -> str | None:
        if self.broker is not None:
            return self.broker.dashboard
        from headrace.cli.failures import Refused
        from headrace.cli.web import Access, open_dashboard

        try:
            dashboard, address = open_dashboard(self.settings, "127.0.0.1:0", Access())
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
def opened(
    settings: Mapping[str, str],
    *,
    folder: Path | None,
    is_embedded: bool,
    is_secure: bool = False,
    console: Console | None = None,
) -> Iterator[World]:
    """A world in a folder of its own, which is removed at the end unless it was given."""
    place = Path(tempfile.mkdtemp(prefix="headrace-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    for name in ("aiokafka", "headrace"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a broker that goes away is part of the story
    if console is None:
        console = Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty())
    world = World(settings, place, console)
    try:
        world.open(is_embedded=is_embedded, is_secure=is_secure)
        yield world
    finally:
        world.close()
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
