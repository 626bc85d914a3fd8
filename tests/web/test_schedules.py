"""What a queue sends later, on the dashboard: listed, canceled, refused; with records of a real queue."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace import Broker, Queue
from headrace.broker.security.users import both_mechanisms
from headrace.client.settings import ClientSettings
from headrace.web import scheduled
from headrace.web.model import SCHEDULED_MAX, SCHEDULED_PAGES_MAX
from headrace.web.options import WebOptions
from headrace.web.schedules import ScheduledLook
from headrace.web.server import WebServer
from headrace.wire.records import NewRecord, build_batch
from headrace.worker.later import Waiting, headers_for, new_id
from tests.conformance.steps import now_ms, produced
from tests.web.conftest import KITCHEN, NewWorld, World

PAGE, CANCEL = "/group/scheduled", "/group/scheduled/cancel"
HOUR_MS = 3_600_000


@pytest.fixture
def queue(world: World) -> Iterator[Queue]:
    with Queue(world.broker.bootstrap_servers, group_id=KITCHEN) as queue:
        yield queue


def ids(world: World) -> list[str]:
    return [row["id"] for row in world.get(PAGE, group=KITCHEN)["records"]]


def page_of(world: World, group: str = KITCHEN, page: int = 1) -> str:
    answer = world.http.get(PAGE, params={"group": group, "page": page})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_scheduled_records_are_listed_the_next_due_first(world: World, queue: Queue) -> None:
    later = queue.schedule("emails", "ada", delay=7200, key="a")
    sooner = queue.schedule("emails", "bob", delay=3600)
    page = world.get(PAGE, group=KITCHEN)
    assert (page["group_id"], page["has_more"], page["is_whole"]) == (KITCHEN, False, True)
    assert [(row["id"], row["at"], row["topic"], row["is_due"]) for row in page["records"]] == [
        (each.id, round(each.at.timestamp() * 1000), "emails", False) for each in (sooner, later)
    ]
    first, second = page["records"]
    assert (first["key"]["kind"], second["key"]["text"], second["value"]["text"]) == ("null", "a", "ada")
    html = page_of(world)
    assert f"{sooner.at:%Y-%m-%d %H:%M:%S}" in html
    assert html.index(sooner.id) < html.index(later.id)


def test_one_is_canceled_and_the_others_stay(world: World, queue: Queue) -> None:
    first, second = (queue.schedule("emails", name, delay=3600) for name in ("ada", "bob"))
    assert sorted(ids(world)) == sorted([first.id, second.id])
    assert world.do(CANCEL, group=KITCHEN, id=first.id) == {"message": f"Record {first.id} is canceled."}
    assert ids(world) == [second.id]
    assert [each.id for each in queue.scheduled()] == [second.id]


def test_a_record_that_is_due_is_shown_so_and_cannot_be_canceled(world: World, queue: Queue) -> None:
    due = queue.schedule("emails", "ada", delay=0)
    (row,) = world.get(PAGE, group=KITCHEN)["records"]
    assert (row["id"], row["is_due"]) == (due.id, True)
    assert "data-open" not in page_of(world)
    answer = world.post(CANCEL, group=KITCHEN, id=due.id)
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        f"record {due.id} is already due and may have been sent",
    )


def test_a_group_without_a_schedule_has_nothing_to_show_or_cancel(world: World) -> None:
    world.serve_orders()
    assert world.get(PAGE, group=KITCHEN)["records"] == []
    assert "Nothing is scheduled in this group" in page_of(world)
    assert PAGE not in world.http.get("/group", params={"group": KITCHEN}).text
    answer = world.post(CANCEL, group=KITCHEN, id=new_id(now_ms() + HOUR_MS))
    assert answer.status_code == 404
    assert "group 'kitchen' has no schedule" in answer.json()["error"]


@pytest.mark.parametrize("group", ["of/no topic", "g" * 249])
def test_a_group_whose_name_cannot_be_a_topic_has_no_schedule(world: World, group: str) -> None:
    assert world.get(PAGE, group=group)["records"] == []
    assert "Nothing is scheduled in this group" in page_of(world, group)
    answer = world.post(CANCEL, group=group, id=new_id(now_ms() + HOUR_MS))
    assert (answer.status_code, "has no schedule" in answer.text) == (404, True), answer.text


def test_the_page_of_a_group_leads_to_what_it_has_scheduled(world: World, queue: Queue) -> None:
    world.serve_orders()
    queue.schedule("emails", "ada", delay=3600)
    world.wait_for_sample()
    assert f'href="{PAGE}?group={KITCHEN}"' in world.http.get("/group", params={"group": KITCHEN}).text


def test_an_id_that_is_none_is_refused(world: World, queue: Queue) -> None:
    queue.schedule("emails", "ada", delay=3600)
    answer = world.post(CANCEL, group=KITCHEN, id="f" * 30 + "-1")
    assert answer.status_code == 404
    assert "is not the ID of a scheduled record" in answer.json()["error"]
    assert world.post(CANCEL, group=KITCHEN, id="x" * 100).status_code == 400
    assert len(ids(world)) == 1


def test_an_id_that_is_not_scheduled_is_not_said_to_be_canceled(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.schedule("emails", "ada", delay=3600)
    answer = world.post(CANCEL, group=KITCHEN, id=new_id(now_ms() + HOUR_MS))
    assert answer.status_code == 404
    assert "is scheduled in group 'kitchen': it was canceled or sent before" in answer.json()["error"]
    monkeypatch.setattr("headrace.cli.web_schedule.STEP_RECORDS_MAX", 0)  # it might be among those beyond
    assert world.do(CANCEL, group=KITCHEN, id=new_id(now_ms() + HOUR_MS))


def values(page: Any) -> list[str]:
    return [row["value"]["text"] for row in page["records"]]


def test_pages_have_two_hundred_records_each_and_say_how_many_there_are(world: World, queue: Queue) -> None:
    for hours in range(3, 0, -1):  # not in the order in which they are due
        queue.send_many("emails", [str(hours)] * (SCHEDULED_MAX if hours < 3 else 7), delay=hours * 3600)
    first, second, third = (world.get(PAGE, group=KITCHEN, page=page) for page in (1, 2, 3))
    assert [set(values(page)) for page in (first, second, third)] == [{"1"}, {"2"}, {"3"}]
    assert [len(page["records"]) for page in (first, second, third)] == [SCHEDULED_MAX, SCHEDULED_MAX, 7]
    assert {(page["total"], page["pages"], page["is_whole"]) for page in (first, second, third)} == {
        (2 * SCHEDULED_MAX + 7, 3, True)
    }
    assert [page["has_more"] for page in (first, second, third)] == [True, True, False]
    html = page_of(world, page=2)
    assert "407 records, page 2 of 3" in html
    for page in ("", "&amp;page=3"):
        assert f'href="{PAGE}?group={KITCHEN}{page}"' in html


def test_a_page_beyond_the_last_is_the_last(world: World, queue: Queue) -> None:
    queue.schedule("emails", "ada", delay=3600)
    page = world.get(PAGE, group=KITCHEN, page=SCHEDULED_PAGES_MAX)
    assert (page["page"], page["pages"], values(page)) == (1, 1, ["ada"])


def test_there_are_so_many_pages_and_no_more(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled, "SCHEDULED_MAX", 1)
    monkeypatch.setattr(scheduled, "SCHEDULED_PAGES_MAX", 2)
    queue.send_many("emails", ["ada", "bob", "cy"], delay=3600)
    page = world.get(PAGE, group=KITCHEN, page=2)
    assert (page["total"], page["pages"], page["has_more"], len(page["records"])) == (3, 2, True, 1)
    assert "The dashboard has no more pages" in page_of(world, page=2)
    assert "The dashboard has no more pages" not in page_of(world)
    status, error = world.refused(PAGE, group=KITCHEN, page=SCHEDULED_PAGES_MAX + 1)
    assert (status, f"<= {SCHEDULED_PAGES_MAX}" in error) == (400, True), error


def test_a_schedule_that_is_too_long_to_be_read_says_so(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.web_schedule.STEP_RECORDS_MAX", 2)
    queue.send_many("emails", ["ada", "bob", "cy"], delay=3600)
    page = world.get(PAGE, group=KITCHEN)
    assert (len(page["records"]), page["total"], page["is_whole"]) == (2, 2, False)
    html = page_of(world)
    assert "More is scheduled than this page reads" in html
    assert "at least 2 records" in html


def test_what_others_have_written_is_escaped_and_cut(world: World, queue: Queue) -> None:
    queue.schedule("emails", "ada", delay=7200, key="k" * 2000)
    waiting = Waiting("<i>\u202e" + "x" * 100, now_ms() + HOUR_MS, "<b>" + "t" * 300)
    record = NewRecord(b"<u>", b"", list(headers_for(waiting, ())), now_ms())
    produced(world.wire, f"{KITCHEN}.later", build_batch([record]), partition=14)
    first, second = world.get(PAGE, group=KITCHEN)["records"]
    assert (len(first["id"]), len(first["topic"]), len(second["key"]["text"])) == (64, 249, 300)
    html = page_of(world)
    assert not [tag for tag in ("<i>", "<b>", "<u>", "\u202e</td>") if tag in html]
    assert "&lt;i&gt;\\u202exxx" in html
    assert "k" * 301 not in html


def test_a_viewer_sees_what_is_scheduled_and_cannot_cancel_it(open_world: NewWorld) -> None:
    world = open_world(operators=frozenset({"alice"}), viewers=frozenset({"bob"}))
    world.broker.call(
        lambda: world.broker.core.users.add_missing(both_mechanisms({"alice": "one", "bob": "two"}))
    )
    with Queue(world.broker.bootstrap_servers, group_id=KITCHEN) as queue:
        one = queue.schedule("emails", "ada", delay=3600)
        world.http.post("/login", data={"name": "bob", "password": "two"})
        html = page_of(world)
        assert one.id in html
        assert "cancel-dialog" not in html
        refused = world.post(CANCEL, group=KITCHEN, id=one.id)
        assert refused.status_code == 403
        assert "bob may view this dashboard but not change anything" in refused.json()["error"]
        assert ids(world) == [one.id]
        world.http.cookies.clear()
        world.http.post("/login", data={"name": "alice", "password": "one"})
        assert "cancel-dialog" in page_of(world)
        unproven = world.http.post(f"/api/v1{CANCEL}", json={"group": KITCHEN, "id": one.id})
        assert unproven.status_code == 403
        assert world.do(CANCEL, group=KITCHEN, id=one.id)
        assert ids(world) == []


def test_a_dashboard_without_access_to_schedules_says_so() -> None:
    with Broker() as broker, Queue(broker.bootstrap_servers, group_id=KITCHEN) as queue:
        queue.schedule("emails", "ada", delay=3600)
        settings = ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)
        with WebServer(settings, WebOptions()) as web, httpx.Client(base_url=web.url, timeout=10) as http:
            secret = {"x-csrf-token": http.get("/api/v1/session").json()["csrf_token"]}
            wanted = {"group": KITCHEN, "id": "1-2"}
            for answer in (
                http.get(PAGE, params={"group": KITCHEN}),
                http.get(f"/api/v1{PAGE}", params={"group": KITCHEN}),
                http.post(f"/api/v1{CANCEL}", json=wanted, headers=secret),
            ):
                assert answer.status_code == 404
                assert "started without access to schedules" in answer.text


class Stuck:
    """A schedule that never answers."""

    topic = f"{KITCHEN}.later"

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        return now_ms()

    async def look(self, most: int) -> ScheduledLook:
        self.looks += 1
        await asyncio.get_running_loop().create_future()
        return ScheduledLook([], 0, True)

    async def cancel(self, id: str) -> bool:
        await asyncio.get_running_loop().create_future()
        return True


def test_what_takes_too_long_ends_with_a_sentence_and_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduled, "LOOK_S_MAX", 0.01)
    monkeypatch.setattr(scheduled, "CANCEL_S_MAX", 0.01)
    stuck = Stuck()
    with Broker() as broker:
        settings = ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)
        web = WebServer(settings, WebOptions(), open_schedule=lambda _: stuck)
        with web, httpx.Client(base_url=web.url, timeout=10) as http:
            answers = [http.get(f"/api/v1{PAGE}", params={"group": KITCHEN}) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [503, 503]
            assert "what is scheduled in group kitchen cannot be read within" in answers[0].json()["error"]
            assert stuck.looks == 1
            secret = {"x-csrf-token": http.get("/api/v1/session").json()["csrf_token"]}
            wanted = {"group": KITCHEN, "id": "1-2"}
            answer = http.post(f"/api/v1{CANCEL}", json=wanted, headers=secret)
            assert (answer.status_code, "may be canceled all the same" in answer.text) == (503, True)
