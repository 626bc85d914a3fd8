"""Every page and every action in a real, headless Chromium, over a broker with a known state.

A page that loads something from another host, breaks its own security policy or throws in a script fails its test.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headrace import Queue
from headrace.web.spark_metrics import spark_families
from headrace.web.worker_metrics import MetricsServer, worker_families
from headrace.wire.dead_letter import kafka_headers
from headrace.wire.records import NewRecord, build_batch
from headrace.worker import Scheduled
from headrace.worker.metrics import RUN_SECONDS_BOUNDS, TaskMetrics
from tests import needs
from tests.conformance.share.share_client import ACCEPT, start_at
from tests.conformance.share.share_state import write_state
from tests.conformance.steps import new_topic, now_ms, produced, wait_for
from tests.web.accessibility import problems
from tests.web.conftest import DEAD, KITCHEN, ORDERS, NewWorld, World

pytestmark = pytest.mark.needs_chromium
GROUP = f"/group?group={KITCHEN}"
RECORD = f"/record?group={KITCHEN}&topic={ORDERS}&partition=0&offset="


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # In a container we are often root, and Chromium has no sandbox for root. It sees our own pages only.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=needs.chromium(), args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page of a world, and watches over it."""
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    troubles: list[str] = []
    contexts = []

    def open_one(world: World, path: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
        page.on(
            "console",
            lambda said: (
                troubles.append(f"console: {said.text}")
                if said.type == "error" and "status of" not in said.text
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                troubles.append(f"foreign: {request.url}")
                if not request.url.startswith(world.web.url)
                else None
            ),
        )
        page.goto(world.web.url + path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert troubles == []


def expect(found: Any) -> Any:
    from playwright.sync_api import expect as expect_of

    return expect_of(found)


def test_the_overview_shows_the_cluster_and_leads_to_its_parts(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, "/")
    lag = page.locator(".tile", has_text="Lag")
    expect(lag.locator("dd")).to_contain_text("16")
    expect(page.locator("figure.chart canvas")).to_have_count(2)
    expect(page.locator("#pulse")).to_have_text("live")
    page.get_by_role("link", name=KITCHEN).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(KITCHEN)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics").click()
    page.get_by_role("link", name=ORDERS, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(ORDERS)


def test_a_group_shows_its_window_as_a_strip_and_its_members(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, GROUP)
    strip = page.locator(".strip").first
    runs = strip.locator(".run")
    assert [run.get_attribute("class").split()[1] for run in runs.all()] == [
        "state-acquired",
        "state-acknowledged",
        "state-available",
        "state-archived",
        "state-acquired",
    ]
    expect(page.locator("figure.chart canvas")).to_have_count(3)
    expect(page.get_by_role("row", name=re.compile("cook-1"))).to_contain_text("orders-0")
    strip.hover(position={"x": 5, "y": 10})
    expect(page.get_by_role("tooltip")).to_contain_text("held by cook-1@127.0.0.1")


def test_the_page_follows_what_happens_without_a_reload(world: World, open_page: Any) -> None:
    member = world.serve_orders()
    page = open_page(world, GROUP)
    acquired = page.locator(".tile", has_text="Acquired").locator("dd")
    expect(acquired).to_contain_text("6")
    page.evaluate("window.isTheSamePage = true")
    assert member.ack((0, 2, 1)) == 0
    expect(acquired).to_contain_text("3")
    expect(page.locator(".strip .run")).to_have_count(3)
    assert page.evaluate("window.isTheSamePage")


def test_updates_leave_the_keyboard_focus_where_it_is_and_can_be_paused(world: World, open_page: Any) -> None:
    member = world.serve_orders()
    page = open_page(world, GROUP)
    page.locator(".strip").first.focus()
    acquired = page.locator(".tile", has_text="Acquired").locator("dd")
    assert member.ack((0, 2, 1)) == 0
    expect(acquired).to_contain_text("3")
    assert page.evaluate("document.activeElement.classList.contains('strip')")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#pulse")).to_have_text("paused")
    assert member.ack((9, 11, 1)) == 0
    wait_for(lambda: world.get("/group", group=KITCHEN)["windows"][0]["states"].get("acquired", 0) == 0)
    expect(acquired).to_contain_text("3")
    page.get_by_role("button", name="Resume").click()
    expect(acquired).to_contain_text("0")


def test_the_strip_leads_to_a_record_by_pointer_and_by_keyboard(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, GROUP)
    strip = page.locator(".strip").first
    width = strip.bounding_box()["width"]
    strip.click(position={"x": width * 8.5 / 12, "y": 10})
    expect(page.get_by_role("heading", level=1)).to_have_text("Record 8")
    page.go_back()
    page.get_by_role("link", name="orders-0").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip")).to_contain_text("1 ·")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Record 1")


def test_the_microscope_shows_one_record_whole(world: World, open_page: Any) -> None:
    member = world.serve_orders()
    page = open_page(world, RECORD + "1")
    expect(page.locator(".verdict .state")).to_have_text("acquired")
    details = page.locator(".microscope .details")
    for text in ("1 of 5", member.member_id, "customer-1"):
        expect(details).to_contain_text(text)
    expect(page.locator("pre")).to_contain_text('"order": 1')
    expect(page.get_by_role("row", name=re.compile("source"))).to_contain_text("shop")
    world.broker.advance(31)
    expect(page.locator(".verdict .state")).to_have_text("available")
    page.get_by_role("link", name="2 →").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Record 2")


def test_a_stuck_record_is_released_after_a_confirmation(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, RECORD + "1")
    page.get_by_role("button", name="Release…").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".verdict .state")).to_have_text("acquired")
    page.get_by_role("button", name="Release…").click()
    page.get_by_role("button", name="Release record").click()
    expect(page.locator("dialog .good")).to_contain_text("was taken from")
    page.get_by_role("button", name="Close").click()
    expect(page.locator(".verdict .state")).to_have_text("available")


def test_offsets_are_reset_after_showing_what_would_change(world: World, open_page: Any) -> None:
    member = world.serve_orders()
    page = open_page(world, GROUP)
    page.get_by_role("button", name="Reset offsets…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what would change").click()
    expect(dialog.locator(".trouble")).to_contain_text("NON_EMPTY_GROUP")
    world.leave(member)
    dialog.locator("[name=to]").select_option("latest")
    dialog.get_by_role("button", name="Show what would change").click()
    expect(dialog.get_by_role("row", name=re.compile("orders-0"))).to_contain_text("20")
    assert world.get("/group", group=KITCHEN)["windows"][0]["start_offset"] == 0
    dialog.get_by_role("button", name="Reset offsets").click()
    expect(dialog.locator(".good")).to_contain_text("2 partition(s) moved")
    assert world.get("/group", group=KITCHEN)["windows"][0]["start_offset"] == 20


def test_the_time_of_a_reset_is_in_utc_as_all_times_on_the_pages(world: World, open_page: Any) -> None:
    world.leave(world.serve_orders())
    page = open_page(world, GROUP, timezone_id="Asia/Tokyo")
    page.get_by_role("button", name="Reset offsets…").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=to]").select_option("time")
    dialog.get_by_label("Time (UTC)").fill("2000-01-01T00:00:00")
    with page.expect_request("**/group/reset") as asked:
        dialog.get_by_role("button", name="Show what would change").click()
    assert asked.value.post_data_json["time"] == 946_684_800_000


def test_a_group_is_deleted_after_a_confirmation(world: World, open_page: Any) -> None:
    world.leave(world.serve_orders())
    page = open_page(world, GROUP)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete group").click()
    expect(page.locator("dialog .good")).to_contain_text("is deleted")
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
    expect(page.locator("[data-region=groups]")).to_contain_text("No groups yet")


def test_configs_are_edited_and_reviewed(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, GROUP)
    page.get_by_role("button", name="Config…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.locator(".trouble")).to_have_text("Nothing is changed yet.")
    dialog.get_by_label("share.delivery.count.limit").fill("many")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.get_by_role("row", name=re.compile("share.delivery.count.limit"))).to_contain_text("many")
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.locator(".trouble")).to_contain_text("share.delivery.count.limit")
    dialog.get_by_label("share.delivery.count.limit").fill("7")
    dialog.get_by_role("button", name="Review changes").click()
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.locator(".good")).to_contain_text("1 config of group kitchen changed")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".facts")).to_contain_text("at most 7 deliveries")


def test_dead_letters_are_shown_by_cause_and_redriven(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, "/dead-letters")
    row = page.get_by_role("row", name=re.compile("Offset rejected by client"))
    expect(row.first).to_contain_text(KITCHEN)
    row.first.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what would be sent").click()
    expect(dialog.get_by_role("row", name=re.compile(ORDERS))).to_contain_text("1")
    dialog.get_by_role("button", name="Redrive", exact=True).click()
    expect(dialog.locator(".good")).to_have_text("1 sent back.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".badge-redriven")).to_have_text("redriven")
    assert world.get("/topic", topic=ORDERS)["partitions"][0]["end_offset"] == 21


def test_records_are_browsed_by_offset_and_tailed(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, f"/topic?topic={ORDERS}")
    expect(page.locator("#records tr")).to_have_count(20)
    page.get_by_label("From offset").fill("5")
    page.locator("[name=limit]").select_option("20")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#records tr").first).to_contain_text('{"order": 5}')
    page.wait_for_load_state()
    page.get_by_role("button", name="Tail").click()
    expect(page.locator("#tail-note")).to_contain_text("Waiting for new records")
    wait_for(lambda: world.web._app.state.site.streams == 2)
    world.produce(ORDERS, "fresh <b>bread</b>", partition=1)
    expect(page.locator("#records tr").first).to_contain_text("fresh <b>bread</b>")
    page.get_by_role("button", name="Stop tail").click()
    expect(page.locator("#tail-note")).to_have_text("Stopped.")


def test_browsing_by_time_begins_at_that_time_in_utc(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, f"/topic?topic={ORDERS}", timezone_id="Asia/Tokyo")
    page.get_by_label("or from time (UTC)").fill("2000-01-01T00:00:00")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(re.compile(r"time=946684800000"))
    expect(page.locator("#records tr").first).to_contain_text('{"order": 0}')


def test_what_is_not_there_has_a_page_that_says_so(world: World, open_page: Any) -> None:
    for path, said in ((f"{GROUP}x", "kitchenx"), ("/nowhere", "nothing at /nowhere"), ("/topic", "topic")):
        page = open_page(world, path)
        expect(page.locator("main")).to_contain_text(said)
        expect(page.get_by_role("link", name="To the overview")).to_be_visible()


def test_the_token_is_asked_for_and_opens_the_dashboard(open_world: NewWorld, open_page: Any) -> None:
    world = open_world(token="a-token-of-enough-length")
    page = open_page(world, "/groups")
    page.get_by_label("Token").fill("a-token-of-enough-length")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
    expect(page.locator("#pulse")).to_have_text("live")


def test_names_are_never_taken_for_markup(world: World, open_page: Any) -> None:
    name = "<img src=x onerror=alert(1)>"
    world.do("/group/config", group=name, changes={"share.auto.offset.reset": "earliest"})
    page = open_page(world, "/group?group=" + name)
    expect(page.locator("main")).to_contain_text("<img")
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_narrow_and_wide_windows_in_light_and_dark(
    world: World, open_page: Any, scheme: str, width: int
) -> None:
    world.serve_orders()
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    for path in ("/", GROUP, RECORD + "1", f"/topic?topic={ORDERS}", f"/dead-letters?topic={DEAD}"):
        page = open_page(world, path, **options)
        expect(page.locator("main")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        colors = page.evaluate("[getComputedStyle(document.documentElement).backgroundColor]")
        assert (colors == ["rgb(16, 22, 26)"]) == (scheme == "dark")


OUTSIDE = """
    [...document.querySelectorAll("button, .button")]
        .filter((one) => {
            const [inner, outer] = [one, one.closest(".scroll, dialog, main, header") ?? document.body]
                .map((each) => each.getBoundingClientRect());
            return inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1);
        })
        .map((one) => one.textContent)
"""
PAGES_OF_A_CLUSTER = ("/", "/groups", "/topics", "/dead-letters", "/processes", "/nothing-here")
LONG = "name-" * 24


def fits(page: Any, world: World, path: str) -> None:
    page.goto(world.web.url + path)
    expect(page.locator("main")).to_be_visible()
    place = (path, page.viewport_size["width"])
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], place
    assert page.evaluate(OUTSIDE) == [], place


@pytest.mark.parametrize("width", [360, 390, 1280, 1920])
def test_an_empty_page_never_scrolls_sideways(world: World, open_page: Any, width: int) -> None:
    page = open_page(world, "/", viewport={"width": width, "height": 900})
    for path in PAGES_OF_A_CLUSTER:
        fits(page, world, path)
    new_topic(world.wire, ORDERS)
    new_topic(world.wire, DEAD)
    start_at(world.wire, KITCHEN, ORDERS, {0: 0})
    wait_for(lambda: world.get("/groups")["total"] == 1)
    history = f"/history?group={KITCHEN}&topic={ORDERS}&partition=0"
    for path in (GROUP, f"/topic?topic={ORDERS}", f"/dead-letters?topic={DEAD}", RECORD + "0", history):
        fits(page, world, path)


@pytest.mark.parametrize("width", [360, 390, 1280, 1920])
def test_a_full_page_never_scrolls_sideways_and_keeps_its_buttons_in_its_tables(
    open_world: NewWorld, open_page: Any, width: int
) -> None:
    tasks = {f"mail.{LONG}": TaskMetrics(running=1)}
    run = {"topic": LONG, "partition": 0, "offset": 17, "attempt": 2, "seconds": 3.5}
    status = {"group": LONG, "tasks": {f"mail.{LONG}": {"state": "running", "runs_now": [run]}}}
    families = partial(worker_families, tasks, RUN_SECONDS_BOUNDS, group=LONG)
    with MetricsServer("127.0.0.1", 0, families, lambda: status) as worker:
        world = open_world(processes=(worker.url.removeprefix("http://").removesuffix("/metrics"),))
        world.serve_orders()
        why = kafka_headers(LONG, 0, 3, "g" * 200, 5, "ValueError: " + "cannot be read " * 20)
        letter = NewRecord(b"key", b"value", why, now_ms())
        produced(world.wire, DEAD, build_batch([letter]))
        wait_for(lambda: world.get("/overview")["dead_letters"] == 2)
        page = open_page(world, "/", viewport={"width": width, "height": 900})
        for path in (*EVERY_PAGE, f"/dead-letters?topic={DEAD}"):
            fits(page, world, path)
        page.goto(f"{world.web.url}/dead-letters?topic={DEAD}")
        expect(page.get_by_role("button", name="Discard…")).to_have_count(2)
        page.goto(f"{world.web.url}/processes")
        names = page.get_by_title(f"mail.{LONG}")  # shortened to its function: that is what tells tasks apart
        expect(names).to_have_text([LONG, LONG])


def test_a_spark_query_with_large_figures_fits_a_screen(open_world: NewWorld, open_page: Any) -> None:
    names = (
        "lag",
        "held",
        "ahead",
        "unconfirmed",
        "delivered",
        "redelivered",
        "confirmed",
        "refused",
        "lost",
    )
    reported = dict.fromkeys((*names, "released", "rejected"), 12345) | {"delivered": 1_234_567}
    progress = {
        "name": "revenue",
        "batchId": 12_345,
        "inputRowsPerSecond": 1234.5,
        "processedRowsPerSecond": 12345.6,
        "batchDuration": 1_234,
        "sources": [{"latestOffset": json.dumps(reported)}],
    }
    with MetricsServer("127.0.0.1", 0, lambda: spark_families([progress])) as driver:
        world = open_world(processes=(driver.url.removeprefix("http://").removesuffix("/metrics"),))
        page = open_page(world, "/processes")
        expect(page.locator("tbody tr")).to_have_count(1)
        hidden = page.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth")
        assert hidden == 0  # the last columns are those that tell of trouble


def test_a_settled_record_has_no_delivery_count(world: World, open_page: Any) -> None:
    member = world.serve_orders()
    assert member.ack((0, 2, ACCEPT)) == 0
    page = open_page(world, RECORD + "0")
    expect(page.locator("main")).to_contain_text("Below the start offset")
    expect(page.locator("dl > div", has_text="Deliveries").locator("dd")).to_have_text("\N{EN DASH}")


def schedule_three(world: World) -> tuple[Scheduled, Scheduled]:
    with Queue(world.broker.bootstrap_servers, group_id=KITCHEN) as queue:
        queue.schedule("emails", "cy", delay=0)
        later = queue.schedule(LONG, "ada", delay=7200, key=LONG * 4)
        return later, queue.schedule("emails", "bob", delay=3600)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_scheduled_record_is_canceled_after_a_confirmation(
    world: World, open_page: Any, width: int
) -> None:
    world.serve_orders()
    with ThreadPoolExecutor(1) as apart:  # Playwright has an event loop on this thread
        stays, goes = apart.submit(schedule_three, world).result()
    world.wait_for_sample()
    page = open_page(world, GROUP, viewport={"width": width, "height": 900})
    page.get_by_role("link", name="scheduled records").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Scheduled records")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody tr").first).to_contain_text("due")
    fits(page, world, SCHEDULED)
    assert problems(page) == []
    head, *below = (cell.bounding_box()["x"] for cell in page.locator(":is(th, td):last-child").all())
    assert below == [head] * 3  # the buttons cover columns behind them, and their head does, too
    page.get_by_role("button", name=f"Cancel {goes.id}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Record {goes.id} will not be sent")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dialog.get_by_role("button", name="Keep it").click()
    assert goes.id in [row["id"] for row in world.get("/group/scheduled", group=KITCHEN)["records"]]
    page.get_by_role("button", name=f"Cancel {goes.id}").click()
    dialog.get_by_role("button", name="Cancel the record").click()
    expect(dialog).to_contain_text(f"Record {goes.id} is canceled.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name=f"Cancel {stays.id}")).to_be_visible()


def test_a_window_with_nothing_in_flight_leads_to_its_history(world: World, open_page: Any) -> None:
    world.leave(world.serve_orders())
    world.do("/group/reset", group=KITCHEN, to="latest", dry_run=False)
    page = open_page(world, GROUP)
    window = page.locator("article.window").first
    expect(window).to_contain_text("Nothing in flight")
    window.get_by_role("link", name="history").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("History of orders-0")


def test_control_characters_and_marks_of_direction_in_names_are_escaped(world: World, open_page: Any) -> None:
    name, shown = "RTL\u202egnp\x1b[2J", "RTL\\u202egnp\\x1b[2J"
    new_topic(world.wire, ORDERS)
    start_at(world.wire, name, ORDERS, {0: 0})
    wait_for(lambda: world.get("/groups")["total"] == 1)
    page = open_page(world, "/groups")
    page.get_by_role("link", name=shown, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(shown)
    for path in ("/", "/groups", f"/topic?topic={ORDERS}", "/group?group=" + quote(name)):
        page.goto(world.web.url + path)
        expect(page.locator("main")).to_contain_text(shown)
        assert not re.search("[\u202e\x1b]", page.locator("body").inner_text()), path
    # What scripts send is the name itself.
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete group").click()
    expect(page.locator("dialog .good")).to_contain_text(f"{shown} is deleted")
    wait_for(lambda: world.get("/groups")["total"] == 0)


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(world: World, open_page: Any) -> None:
    world.serve_orders()
    nameless = """
        [...document.querySelectorAll('a, button, input:not([type=hidden]), select, [tabindex]')]
            .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.title))
            .map((one) => one.outerHTML)
    """
    for path in ("/", GROUP, RECORD + "1", f"/topic?topic={ORDERS}", "/dead-letters", "/groups", "/topics"):
        page = open_page(world, path)
        assert page.evaluate(nameless) == [], path
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to content")
        assert page.evaluate("document.querySelectorAll('[tabindex]:not([tabindex=\"0\"])').length") == 0


SCHEDULED = f"/group/scheduled?group={KITCHEN}"
EVERY_PAGE = (
    "/",
    "/groups",
    "/topics",
    "/dead-letters",
    "/processes",
    GROUP,
    SCHEDULED,
    RECORD + "1",
    f"/topic?topic={ORDERS}",
    f"/dead-letter?topic={DEAD}&partition=0&offset=0",
    f"/history?group={KITCHEN}&topic={ORDERS}&partition=0",
    "/nothing-here",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_passes_the_accessibility_checks(world: World, open_page: Any, scheme: str) -> None:
    world.serve_orders()
    for path in EVERY_PAGE:
        page = open_page(world, path, color_scheme=scheme)
        expect(page.locator("main")).to_be_visible()
        assert problems(page) == [], path


def test_the_accessibility_check_finds_what_is_wrong(world: World, open_page: Any) -> None:
    page = open_page(world, "/")
    page.evaluate(
        """() => {
        const main = document.querySelector("main");
        main.insertAdjacentHTML("beforeend", "<button></button><img src=/static/icon.svg><p>pale</p>");
        Object.assign(main.lastElementChild.style, {color: "#ccc", background: "#fff"});
    }"""
    )
    rules = {problem.partition(":")[0] for problem in problems(page)}
    assert {"button-name", "image-alt", "color-contrast"} <= rules


@pytest.mark.parametrize("width", [390, 1280])
def test_long_and_reversed_names_never_break_a_page(world: World, open_page: Any, width: int) -> None:
    long, reversed_name = "t" * 249, "\u202egnirts"
    new_topic(world.wire, long)
    for group in ("g" * 249, reversed_name):
        start_at(world.wire, group, long, {0: 0})
    wait_for(lambda: world.get("/groups")["total"] == 2)
    for path in ("/", "/groups", "/topics", f"/topic?topic={long}", f"/group?group={'g' * 249}"):
        page = open_page(world, path, viewport={"width": width, "height": 800})
        expect(page.locator("main")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page = open_page(world, "/groups", viewport={"width": width, "height": 800})
    assert page.locator("bdi", has_text="\\u202egnirts").count() == 1
    assert page.locator("tbody tr").count() == 2


def test_a_cluster_with_many_groups_is_paged_and_searched(world: World, open_page: Any) -> None:
    new_topic(world.wire, ORDERS)
    for number in range(120):
        start_at(world.wire, f"svc-{number:03}", ORDERS, {0: 0})
    wait_for(lambda: world.get("/groups")["total"] == 120)
    page = open_page(world, "/groups")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator(".pager")).to_contain_text("120 groups, page 1 of 3")
    page.get_by_role("link", name="next →").click()
    expect(page.locator(".pager")).to_contain_text("page 2 of 3")
    page.get_by_label("Search").fill("svc-11")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.goto(world.web.url)
    expect(page.get_by_role("link", name="All 120 groups")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") < 3000


def test_a_dead_letter_is_edited_and_redriven(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, f"/dead-letters?topic={DEAD}")
    page.get_by_role("link", name="0", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letter 0@0")
    expect(page.locator("#pulse")).to_have_attribute("data-kind", "live")  # its scripts run
    page.get_by_role("button", name="Edit and redrive…").click()
    page.get_by_role("textbox", name="Value").fill('{"order": "mended"}')
    page.get_by_role("button", name="Redrive with this value").click()
    expect(page.locator("dialog[open] .good")).to_contain_text("1 sent back")
    page.locator("dialog[open]").get_by_role("button", name="Close").click()
    expect(page.locator(".badge-redriven")).to_be_visible()
    assert "mended" in world.get("/record", topic=ORDERS, partition=0, offset=20)["record"]["value"]["text"]


def test_the_slider_shows_an_earlier_time_and_who_held_what(world: World, open_page: Any) -> None:
    world.serve_orders()
    page = open_page(world, f"/history?group={KITCHEN}&topic={ORDERS}&partition=0")
    region = page.locator("[data-region=history]")
    facts, rows = region.locator(".facts"), region.locator("table.holds tbody tr")
    total = int(facts.inner_text().split(" of ")[1].split()[0])
    expect(facts).to_contain_text(f"{total} of {total} changes")
    expect(rows).to_contain_text(
        ["still held (held then)", "rejected, after", "released, after", "accepted, after"]
    )
    expect(rows.first).to_contain_text("cook-1@127.0.0.1")
    expect(region.locator("rect.state-acquired").first).to_have_attribute(
        "data-title", re.compile("held by cook-1@127.0.0.1 since .* UTC")
    )
    expect(page.locator("main")).to_contain_text("What is held now comes from the broker.")
    expect(page.locator("main")).not_to_contain_text("names no members")
    # The places of the slider are the times of records and of acquisitions, and now.
    times = world.get("/history", group=KITCHEN, topic=ORDERS, partition=0)["times"]
    acquired_at = world.get("/history", group=KITCHEN, topic=ORDERS, partition=0)["held"][0]["acquired_at"]
    earlier, later = (page.get_by_role("button", name=name) for name in ("Earlier", "Later"))
    # The script of the page has begun.
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("Z$"))
    for _ in range(len(times) - 1 - times.index(acquired_at)):
        earlier.click()
    expect(facts).not_to_contain_text(f"{total} of {total} changes")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text([re.compile(r"0.11\s+12\s+cook-1@127\.0\.0\.1")])
    expect(rows).to_contain_text(["accepted, released, rejected, still held (held then)"])
    later.click()
    expect(rows).to_have_count(4)


def test_a_history_that_names_no_members_says_so(world: World, open_page: Any) -> None:
    """Written over the network, as an Apache Kafka would have it."""
    topic_id = new_topic(world.wire, ORDERS)
    start_at(world.wire, KITCHEN, ORDERS, {0: 0})
    world.produce(ORDERS, *"abc")
    batch = {"first_offset": 1, "last_offset": 2, "delivery_state": 2, "delivery_count": 1}
    assert (
        write_state(
            world.wire,
            KITCHEN,
            topic_id,
            state_epoch=-1,
            leader_epoch=0,
            start_offset=0,
            state_batches=[batch],
        )
        == 0
    )
    page = open_page(world, f"/history?group={KITCHEN}&topic={ORDERS}&partition=0")
    expect(page.locator("[data-region=history]")).to_contain_text(
        "Who held records is unknown: __share_group_state names no members. Apache Kafka and older versions of Headrace"
    )
    expect(page.locator("table.holds")).to_have_count(0)
    expect(page.locator("rect.state-acknowledged")).to_have_attribute(
        "data-title", "1 to 2: acknowledged; delivered 1 time"
    )


def test_the_vendored_chart_library_is_the_one_we_looked_at() -> None:
    import hashlib

    folder = Path(__file__).resolve().parents[2] / "src/headrace/web/static/vendor/uplot"
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in folder.iterdir()}
    assert hashes == {
        "LICENSE": "8f989229699b4fe2",
        "uPlot.iife.min.js": "19c8d4c6ad88929a",
        "uPlot.min.css": "df630c6a8d6f8eea",
    }


def test_a_tab_that_nobody_sees_holds_no_connection(world: World, open_page: Any) -> None:
    page = open_page(world, "/")
    site = world.web._app.state.site
    wait_for(lambda: site.streams == 1)
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    wait_for(lambda: site.streams == 0)
    page.evaluate(hide, False)
    wait_for(lambda: site.streams == 1)
