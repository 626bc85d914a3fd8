"""The dashboard reads any Kafka: the same scene on our broker, seen from outside, and on Apache Kafka."""

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from headrace import Broker, Queue
from headrace.cli.web_schedule import schedules_of
from headrace.client.settings import ClientSettings
from headrace.testing import ApacheKafka
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from headrace.wire.records import NewRecord, build_batch
from tests.conformance.share.share_client import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareMember,
    new_queue,
    wait_until_share_coordinators_are_ready,
)
from tests.conformance.steps import (
    end_offset,
    new_topic,
    now_ms,
    produced,
    wait_for,
    wait_until_coordinators_are_ready,
)
from tests.conformance.wire_client import WireClient


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    with ApacheKafka() as cluster:
        with WireClient(cluster.bootstrap_servers) as wire:
            wait_until_coordinators_are_ready(wire)
            wait_until_share_coordinators_are_ready(wire)
        yield cluster


@pytest.fixture(scope="module")
def headrace() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param).bootstrap_servers)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def http(servers: str, closing: ExitStack) -> httpx.Client:
    settings = ClientSettings.parse(bootstrap_servers=servers)
    schedules = schedules_of({"bootstrap.servers": servers})
    web = closing.enter_context(WebServer(settings, WebOptions(sample_s=0.3), None, schedules))
    return closing.enter_context(httpx.Client(base_url=web.url, timeout=20))


def test_pages_and_actions_work_without_the_brokers_own_view(
    servers: str, http: httpx.Client, closing: ExitStack, unique: str
) -> None:
    wire = closing.enter_context(WireClient(servers))
    topic_id = new_queue(wire, unique, 12)
    member = ShareMember(closing.enter_context(WireClient(servers, client_id="cook-1")), unique, topic_id)
    member.join(unique)
    member.take(12, 0)
    assert member.ack((3, 5, ACCEPT), (6, 7, RELEASE), (8, 8, REJECT)) == 0

    def get(path: str, **parameters: object) -> dict[str, object]:
        answer = http.get("/api/v1" + path, params={key: str(value) for key, value in parameters.items()})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def runs() -> list[tuple[int, int, str]]:
        windows = get("/group", group=unique)["windows"]
        assert isinstance(windows, list)
        return [(run["first"], run["last"], run["state"]) for run in windows[0]["runs"]]

    # What was released came back with one delivery, and nothing is written of locks.
    expected = [(0, 2, "unknown"), (3, 5, "acknowledged"), (6, 7, "available"), (8, 8, "archived")]
    wait_for(lambda: runs()[:4] == expected)
    page = get("/group", group=unique)
    assert (page["state"], page["is_live"], page["windows_error"]) == ("Stable", False, None)
    assert [row["client_id"] for row in page["members"]] == ["cook-1"]  # type: ignore[attr-defined, index]
    seen = get("/record", group=unique, topic=unique, partition=0, offset=1)
    assert (seen["state"], seen["holder"], seen["may_release"]) == ("unknown", None, False)
    records = get("/records", topic=unique, offset=2, limit=2)["records"]
    assert [record["offset"] for record in records] == [2, 3]  # type: ignore[attr-defined, index]
    wait_for(lambda: unique in [one["group_id"] for one in get("/groups")["groups"]])  # type: ignore[attr-defined, index]

    secret = {"x-csrf-token": str(get("/session")["csrf_token"])}

    def post(path: str, **wanted: object) -> httpx.Response:
        return http.post("/api/v1" + path, json=wanted, headers=secret)

    release = post("/record/release", group=unique, topic=unique, partition=0, offset=1)
    assert (release.status_code, "serve --http" in release.json()["error"]) == (404, True)
    assert post("/group/reset", group=unique, to="latest").status_code == 409
    changed = post("/group/config", group=unique, changes={"share.delivery.count.limit": "7"})
    assert changed.status_code == 200, changed.text
    member.close()
    member.heartbeat(-1)
    planned = wait_for(
        lambda: found if (found := post("/group/reset", group=unique, to="latest")).is_success else None
    )
    assert [change["after"] for change in planned.json()["changes"]] == [12]
    assert post("/group/reset", group=unique, to="latest", dry_run=False).status_code == 200
    assert post("/group/delete", group=unique).status_code == 200
    for path in ("/", "/groups", "/topics", f"/topic?topic={unique}", "/dead-letters", "/metrics", "/readyz"):
        assert http.get(path).status_code == 200, path
    page = http.get(f"/group?group={unique}")
    assert page.status_code == 404
    assert f"Group &#39;{unique}&#39;" in page.text


def test_dead_letters_of_a_worker_are_redriven_on_any_kafka(
    servers: str, http: httpx.Client, closing: ExitStack, unique: str
) -> None:
    wire = closing.enter_context(WireClient(servers))
    dead = f"{unique}.dead"
    new_topic(wire, unique)
    new_topic(wire, dead)
    facts = {
        "topic": unique,
        "partition": 0,
        "offset": 7,
        "group": "g",
        "delivery.count": 5,
        "message": "no such account",
    }
    headers = [(f"__dlq.errors.{name}", str(fact).encode()) for name, fact in facts.items()]
    letters = [NewRecord(b"k", b"body %d" % number, headers, now_ms()) for number in range(3)]
    produced(wire, dead, build_batch(letters))
    wait_for(lambda: dead in http.get("/api/v1/dead-letters").json()["topics"], timeout_s=30)
    page = http.get("/api/v1/dead-letters", params={"topic": dead}).json()
    assert [(cause["text"], cause["waiting"]) for cause in page["causes"]] == [("no such account", 3)]
    secret = {"x-csrf-token": http.get("/api/v1/session").json()["csrf_token"]}

    def redrive(**wanted: object) -> dict[str, object]:
        answer = http.post("/api/v1/dead-letters/redrive", json={"topic": dead, **wanted}, headers=secret)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    assert redrive(limit=2)["chosen"] == 2
    assert redrive(limit=2, dry_run=False)["redriven"] == 2
    assert redrive(dry_run=False)["redriven"] == 1
    assert redrive(dry_run=False)["redriven"] == 0
    assert end_offset(wire, unique) == 3


def test_what_is_scheduled_is_listed_and_canceled_on_any_kafka(
    servers: str, http: httpx.Client, unique: str
) -> None:
    def ids(group: str) -> list[str]:
        answer = http.get("/api/v1/group/scheduled", params={"group": group})
        assert answer.status_code == 200, answer.text
        return [row["id"] for row in answer.json()["records"]]

    assert [ids(group) for group in (f"{unique}-other", "of/no topic")] == [[], []]
    with Queue(servers, group_id=unique) as queue:
        later, sooner = (queue.schedule("emails", "ada", delay=delay) for delay in (7200, 3600))
        assert ids(unique) == [sooner.id, later.id]
        secret = {"x-csrf-token": http.get("/api/v1/session").json()["csrf_token"]}
        wanted = {"group": unique, "id": sooner.id}
        answer = http.post("/api/v1/group/scheduled/cancel", json=wanted, headers=secret)
        assert answer.status_code == 200, answer.text
        assert ids(unique) == [later.id]
        assert [each.id for each in queue.scheduled()] == [later.id]
