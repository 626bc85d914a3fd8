"""Takes the pictures of the dashboard in docs/pictures/: a kitchen at work on our broker, in a headless Chromium.

Run it when the pages have changed: .venv/bin/python tools/dashboard_pictures.py
"""

import json
import os
import random
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer
from playwright.sync_api import ViewportSize, sync_playwright

from headrace import Admin, Broker
from headrace.client.settings import ClientSettings
from headrace.web.embedded import EmbeddedView
from headrace.web.options import WebOptions
from headrace.web.server import WebServer

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SETTLE_S = 60.0
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ITEMS = ("flour", "oats", "rye", "barley", "spelt")
SHOTS: tuple[tuple[Literal["light", "dark"], int, tuple[str, ...]], ...] = (
    ("light", 1280, ("overview", "group", "record", "history", "topic", "dead-letters", "dead-letter")),
    ("dark", 1280, ("group",)),
    ("light", 400, ("group",)),
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
        for thread in self.threads:
            thread.join(10)

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


def watch(url: str, seconds: float) -> None:
    """As somebody with an open page does: the dashboard samples often only while it is watched."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{url}/api/v1/overview") as answer:
            answer.read()
        time.sleep(1)


def take_pictures(url: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        for scheme, width, names in SHOTS:
            size: ViewportSize = {"width": width, "height": 860}
            context = browser.new_context(viewport=size, color_scheme=scheme)
            page = context.new_page()
            for name in names:
                page.goto(url + address_of(name, page, url))
                page.wait_for_timeout(2500)
                suffix = (
                    "" if (scheme, width) == ("light", 1280) else f"-{scheme if width > 400 else 'narrow'}"
                )
                page.screenshot(
                    path=FOLDER / f"{name}{suffix}.png", full_page=width > 400 and name != "dead-letters"
                )
            context.close()
        browser.close()


def address_of(name: str, page: Any, url: str) -> str:
    match name:
        case "overview":
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
        case "history":
            return "/history?group=kitchen&topic=orders&partition=0"
        case "dead-letter":
            letters = page.request.get(f"{url}/api/v1/dead-letters?topic=dlq.orders").json()["letters"]
            return f"/dead-letter?topic=dlq.orders&partition={letters[0]['partition']}&offset={letters[0]['offset']}"
    return "/dead-letters?topic=dlq.orders"


def main() -> None:
    with TemporaryDirectory() as folder, Broker(data_dir=folder, settings=BROKER) as broker:
        settings = ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)
        with WebServer(settings, WebOptions(sample_s=1.0), EmbeddedView(broker)) as web:
            kitchen = open_kitchen(broker.bootstrap_servers)
            try:
                watch(web.url, SETTLE_S)  # the charts want some history
                take_pictures(web.url)
            finally:
                kitchen.stop()
    print(f"wrote {', '.join(sorted(path.name for path in FOLDER.glob('*.png')))}")


if __name__ == "__main__":
    main()
