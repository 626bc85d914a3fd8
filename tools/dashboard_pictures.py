"""Takes the pictures of the dashboard in docs/pictures/: a kitchen at work on our broker, in a headless Chromium.

Run it when the pages have changed: .venv/bin/python tools/dashboard_pictures.py
With a folder, it takes every page instead, narrow and wide, light and dark, to be looked at.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer
from dashboard_programs import mail_invoice, print_receipt, queue
from playwright.sync_api import ViewportSize, sync_playwright

from headrace import Admin, Broker
from headrace.cli.web_schedule import schedules_of
from headrace.client.settings import ClientSettings
from headrace.web.embedded import EmbeddedView
from headrace.web.options import WebOptions
from headrace.web.server import WebServer

FOLDER_OF_PROGRAMS = Path(__file__).resolve().parent
FOLDER = FOLDER_OF_PROGRAMS.parent / "docs" / "pictures"
SETTLE_S = 60.0
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ITEMS = ("flour", "oats", "rye", "barley", "spelt")
SPARK_START_S_MAX = 120.0
Shots = tuple[tuple[Literal["light", "dark"], int, tuple[str, ...]], ...]
SHOTS: Shots = (
    (
        "light",
        1280,
        (
            "overview",
            "group",
            "record",
            "history",
            "topic",
            "dead-letters",
            "dead-letter",
            "scheduled",
            "workers",
        ),
    ),
    ("dark", 1280, ("group",)),
    ("light", 400, ("group",)),
)
GONE: Shots = (("light", 1280, ("gone",)),)
PAGES = (*SHOTS[0][2], "groups", "topics", "all-dead-letters", "not-found")
WIDTHS: tuple[tuple[Literal["light", "dark"], int], ...] = (
    ("light", 390),
    ("dark", 390),
    ("light", 1280),
    ("dark", 1280),
)
BROKER = {"errors.deadletterqueue.auto.create.topics.enable": "true"}


class Kitchen:
    """Producers and members that behave like people's: uneven, sometimes wrong."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.stopping = threading.Event()
        self.threads: list[threading.Thread] = []
        self.chance = random.Random(7)

    def run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self.threads.append(thread)

    def stop(self) -> None:
        self.stopping.set()
        end = time.monotonic() + 10
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))

    def sell(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        number = 0
        while not self.stopping.is_set():
            for _ in range(self.chance.randint(4, 26)):
                order = {
                    "order": number,
                    "item": self.chance.choice(ITEMS),
                    "kilos": self.chance.randint(1, 90),
                }
                key = f"customer-{number % 31}"
                producer.produce("orders", key=key, value=json.dumps(order), headers={"source": "shop"})
                number += 1
            if self.chance.random() < 0.6:
                producer.produce("emails", key="receipt", value=f"your order {number} is on its way")
            producer.poll(0)
            self.stopping.wait(0.2)
        producer.flush(5)

    def cook(self, topic: str, group: str, name: str, seconds: float) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "client.id": name,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": "150",
                "log_level": 3,
            }
        )
        consumer.subscribe([topic])
        try:
            while not self.stopping.is_set():
                self._work(consumer, seconds)
        finally:
            consumer.close()

    def _work(self, consumer: Any, seconds: float) -> None:
        messages = [message for message in consumer.poll(timeout=1.0) if not message.error()]
        self.chance.shuffle(messages)  # work of uneven length ends in any order
        for position, message in enumerate(messages):
            self.stopping.wait(seconds * self.chance.random())
            draw = self.chance.random()
            answer = AcknowledgeType.ACCEPT
            if draw < 0.03:
                answer = AcknowledgeType.REJECT
            elif draw < 0.22:
                answer = AcknowledgeType.RELEASE
            consumer.acknowledge(message, answer)
            if position % 10 == 9:
                consumer.commit_async()
        consumer.commit_async()

    def dream(self) -> None:
        """A member that takes records and never answers: its locks run out."""
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": "kitchen",
            "client.id": "dreamer",
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": "20",
            "log_level": 3,
        }
        consumer = ShareConsumer(settings)
        consumer.subscribe(["orders"])
        self.stopping.wait(SETTLE_S - 8)
        consumer.poll(timeout=5.0)
        self.stopping.wait()
        consumer.close()

    def bill(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "billing",
                "client.id": "billing-1",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
            }
        )
        consumer.subscribe(["orders"])
        while not self.stopping.is_set():
            consumer.poll(0.05)
        consumer.close()


def open_kitchen(servers: str) -> Kitchen:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("orders", 3)
        admin.create_topic("emails", 1)
        for group in ("kitchen", "mailers"):
            admin.set_group_config(group, {"share.auto.offset.reset": "earliest"})
        dead_letters = {
            "errors.deadletterqueue.topic.name": "dlq.orders",
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        admin.set_group_config("kitchen", dead_letters)
    kitchen = Kitchen(servers)
    kitchen.run(kitchen.sell)
    for number in range(1, 5):
        kitchen.run(kitchen.cook, "orders", "kitchen", f"cook-{number}", 0.11)
    kitchen.run(kitchen.cook, "emails", "mailers", "mailer-1", 0.2)
    kitchen.run(kitchen.bill)
    kitchen.run(kitchen.dream)
    return kitchen


def watch(urls: tuple[str, ...], ending: threading.Event) -> None:
    """As somebody with an open page does: a dashboard samples often only while it is watched."""
    while not ending.wait(1):
        for url in urls:
            with urllib.request.urlopen(f"{url}/api/v1/overview") as answer:
                answer.read()


def take_pictures(url: str, folder: Path, shots: Shots) -> None:
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        for scheme, width, names in shots:
            size: ViewportSize = {"width": width, "height": 860}
            context = browser.new_context(viewport=size, color_scheme=scheme)
            page = context.new_page()
            for name in names:
                page.goto(url + address_of(name, page, url))
                page.wait_for_timeout(2500)
                is_whole = folder != FOLDER or (width > 400 and name != "dead-letters")
                page.screenshot(
                    path=folder / f"{name}{suffix_of(folder, scheme, width)}.png", full_page=is_whole
                )
                if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                    print(f"{name}, {scheme}: {wide} pixels wide on a screen of {width}")
            context.close()
        browser.close()


def suffix_of(folder: Path, scheme: str, width: int) -> str:
    if folder != FOLDER:
        return f"-{width}-{scheme}"
    if width <= 400:
        return "-narrow"
    return "-dark" if scheme == "dark" else ""


def address_of(name: str, page: Any, url: str) -> str:
    match name:
        case "overview" | "gone":
            return "/"
        case "group":
            return "/group?group=kitchen"
        case "topic":
            return "/topic?topic=orders&limit=20"
        case "record":
            answer = page.request.get(f"{url}/api/v1/group?group=kitchen").json()
            (dreamer,) = (one["member_id"] for one in answer["members"] if one["client_id"] == "dreamer")
            held = [
                (window["topic"], window["partition"], run)
                for window in answer["windows"]
                for run in window["runs"]
                if run["holder"] is not None
            ]
            topic, partition, run = max(
                held, key=lambda one: (one[2]["holder"] == dreamer, one[2]["held_ms"])
            )
            offset = run["last"]
            return f"/record?group=kitchen&topic={topic}&partition={partition}&offset={offset}"
        case "scheduled":
            return "/group/scheduled?group=receipts"
        case "workers":
            return "/processes"
        case "groups" | "topics":
            return f"/{name}"
        case "all-dead-letters":
            return "/dead-letters"
        case "not-found":
            return "/group?group=nobody"
        case "login":
            return "/login"
        case "history":
            return "/history?group=kitchen&topic=orders&partition=0"
        case "dead-letter":
            letters = page.request.get(f"{url}/api/v1/dead-letters?topic=dlq.orders").json()["letters"]
            return f"/dead-letter?topic=dlq.orders&partition={letters[0]['partition']}&offset={letters[0]['offset']}"
    return "/dead-letters?topic=dlq.orders"


@contextmanager
def programs(servers: str, worker: str, spark: str, folder: str) -> Iterator[None]:
    """A worker and a Spark query, as processes of their own, and what they work on."""
    queue.configure(bootstrap_servers=servers)
    with queue, ExitStack() as closing:
        for number in range(1_200):
            print_receipt.send(f"receipt {number}")
            if number % 4 == 0:
                mail_invoice.send(f"invoice {number}")
        for number in range(12):
            print_receipt.send(f"reminder {number}", delay=600.0 + 3_600 * number)
        for command in (
            ["headrace", "worker", "dashboard_programs:queue", "-b", servers, "--http", worker],
            ["dashboard_programs", servers, spark, folder],
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=FOLDER_OF_PROGRAMS,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )
            closing.callback(process.wait)
            closing.callback(process.kill)
        yield


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def leave_labels(servers: str) -> None:
    """A group whose only member went, with records left."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("labels", 1)
        admin.set_group_config("labelers", {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": servers})
    for number in range(420):
        producer.produce("labels", value=f"label {number}")
    producer.flush(10)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": "labelers",
            "client.id": "labeler-1",
            "max.poll.records": "20",
            "log_level": 3,
        }
    )
    consumer.subscribe(["labels"])
    while not consumer.poll(timeout=1.0):
        pass
    consumer.close()


def wait_for_query(url: str) -> None:
    end = time.monotonic() + SPARK_START_S_MAX
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{url}/api/v1/processes") as answer:
            if any(one["micro_batch"] for one in json.load(answer)["queries"]):
                return
        time.sleep(1)
    raise SystemExit(f"the Spark query had no micro-batch within {SPARK_START_S_MAX:.0f} s")


def wait_until_gone(url: str) -> None:
    while True:
        with urllib.request.urlopen(f"{url}/api/v1/overview") as answer:
            if json.load(answer)["error"]:
                return
        time.sleep(0.5)


def take_all(folder: Path) -> None:
    """The pictures of the documentation, or of every page at every width if `folder` is another one."""
    is_for_docs = folder == FOLDER
    shots = SHOTS if is_for_docs else tuple((*one, PAGES) for one in WIDTHS)
    gone = GONE if is_for_docs else tuple((*one, ("gone",)) for one in WIDTHS)
    worker, spark = free_address(), free_address()
    with ExitStack() as closing:
        data = closing.enter_context(TemporaryDirectory())
        results = closing.enter_context(TemporaryDirectory())
        broker = closing.enter_context(Broker(data_dir=data, settings=BROKER))
        names = {"bootstrap.servers": broker.bootstrap_servers}
        settings = ClientSettings.parse(names)
        options = WebOptions(sample_s=1.0, processes=(worker, spark))
        web = closing.enter_context(WebServer(settings, options, EmbeddedView(broker), schedules_of(names)))
        remote = closing.enter_context(WebServer(settings, WebOptions(sample_s=1.0)))
        kitchen = open_kitchen(broker.bootstrap_servers)
        closing.callback(kitchen.stop)
        leave_labels(broker.bootstrap_servers)
        closing.enter_context(programs(broker.bootstrap_servers, worker, spark, results))
        ending = threading.Event()
        closing.callback(ending.set)
        kitchen.run(watch, (web.url, remote.url), ending)
        time.sleep(SETTLE_S)  # the charts want some history
        wait_for_query(web.url)
        take_pictures(web.url, folder, shots)
        if not is_for_docs:
            options = WebOptions(viewers=frozenset({"*"}))
            with WebServer(settings, options, EmbeddedView(broker)) as closed:
                take_pictures(closed.url, folder, tuple((*one, ("login",)) for one in WIDTHS))
        broker.stop()
        wait_until_gone(remote.url)
        take_pictures(remote.url, folder, gone)


def main() -> None:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FOLDER
    take_all(folder)
    print(f"wrote {', '.join(sorted(path.name for path in folder.glob('*.png')))}")


if __name__ == "__main__":
    main()
