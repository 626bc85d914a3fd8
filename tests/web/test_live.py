"""Pages are kept current by server-sent events: what changed is sent, what did not is not."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import Broker
from headrace.client.settings import ClientSettings
from headrace.web import pages
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from headrace.web.site import STREAMS_MAX
from tests.web.conftest import KITCHEN, ORDERS, World


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def patches(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    return (said for name, said in events(lines) if name == "patch")


def test_the_first_patch_has_every_region_and_later_ones_what_changed(world: World) -> None:
    member = world.serve_orders()
    with world.http.stream("GET", "/live/group", params={"group": KITCHEN}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        sent = patches(stream.iter_lines())
        assert set(next(sent)) == {"group_tiles", "windows", "members", "offsets"}
        assert member.ack((0, 2, 1)) == 0
        for patch in sent:
            if "state-acquired" in patch.get("windows", "") and 'data-first="6"' in patch["windows"]:
                break
        assert "offsets" not in patch


def test_a_page_whose_group_is_gone_says_so_and_goes_on(world: World) -> None:
    with world.http.stream("GET", "/live/group", params={"group": "nobody"}) as stream:
        name, said = next(one for one in events(stream.iter_lines()) if one[0] != "pulse")
    assert (name, said["status"]) == ("trouble", 404)
    assert "nobody" in said["error"]


def test_a_cluster_that_is_gone_is_told_on_every_page_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace")
    with Broker(data_dir=tmp_path) as broker:
        address = broker.bootstrap_servers
        broker.call(lambda: broker.core.topics.create(ORDERS, partitions=1, configs={}))
    settings = ClientSettings.parse(bootstrap_servers=address)
    port = int(address.rpartition(":")[2])
    with Broker(data_dir=tmp_path, port=port) as broker, WebServer(settings, WebOptions(sample_s=0.2)) as web:
        for path in ("/live/", f"/live/topic?topic={ORDERS}"):
            with httpx.stream("GET", web.url + path, timeout=60) as stream:
                told = (said["kind"] for name, said in events(stream.iter_lines()) if name == "pulse")
                assert next(told) == "live"
                broker.stop()
                assert next(kind for kind in told if kind != "live") == "gone"
                problem = httpx.get(f"{web.url}/topic?topic={ORDERS}", timeout=60)
                assert (problem.status_code, "does not respond" in problem.text) == (503, True)
                broker = Broker(data_dir=tmp_path, port=port).start()
                assert "live" in told
        broker.stop()


def test_nobody_waits_for_the_next_patch_to_be_told_that_the_cluster_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the sampler's own deadlines (tests/unit/web/test_sampler.py) it is told within three seconds."""
    caplog.set_level(logging.CRITICAL, "headrace")
    monkeypatch.setattr(pages, "PATCH_S", 3_600.0)
    with Broker(data_dir=tmp_path) as broker:
        address = broker.bootstrap_servers
        port = int(address.rpartition(":")[2])
        settings = ClientSettings.parse(bootstrap_servers=address)
        with (
            WebServer(settings, WebOptions(sample_s=0.2)) as web,
            httpx.stream("GET", web.url + "/live/", timeout=60) as stream,
        ):
            told = (said["kind"] for name, said in events(stream.iter_lines()) if name == "pulse")
            assert next(told) == "live"
            broker.stop()
            assert next(told) == "gone"
            broker = Broker(data_dir=tmp_path, port=port).start()
            assert next(told) == "live"
        broker.stop()


def test_samples_are_told_to_the_charts(world: World) -> None:
    with world.http.stream("GET", "/live/") as stream:
        ticks = (said for name, said in events(stream.iter_lines()) if name == "tick")
        assert next(ticks)["sampled_at"] < next(ticks)["sampled_at"]


def test_the_tail_shows_new_records_of_all_partitions_as_text(world: World) -> None:
    world.serve_orders()
    with world.http.stream("GET", "/tail", params={"topic": ORDERS}) as stream:
        lines = stream.iter_lines()
        next(lines)
        world.produce(ORDERS, "<b>bold</b>", partition=0)
        world.produce(ORDERS, "other", partition=1)
        html = ""
        for name, said in events(lines):
            assert name == "records"
            html += said["html"]
            if "other" in html and "bold" in html:
                break
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert '"order": 1' not in html


def test_a_tail_that_is_too_fast_passes_records_over_and_says_how_many(world: World) -> None:
    world.serve_orders()
    with world.http.stream("GET", "/tail", params={"topic": ORDERS, "partition": "0"}) as stream:
        lines = stream.iter_lines()
        next(lines)
        world.produce(ORDERS, *(f"record {number}" for number in range(200)))
        _, said = next(events(lines))
    assert said["passed_over"] == 150
    assert said["html"].count("<tr") == 50


def test_a_tail_of_nothing_is_refused(world: World) -> None:
    assert world.http.get("/tail", params={"topic": "nothing"}).status_code == 404
    world.serve_orders()
    assert world.http.get("/tail", params={"topic": ORDERS, "partition": "9"}).status_code == 404


def test_only_so_many_pages_are_watched_at_once(world: World) -> None:
    site = world.web._app.state.site
    site.streams = STREAMS_MAX
    assert world.http.get("/live/").status_code == 503
    assert world.http.get("/tail", params={"topic": "x"}).status_code == 503
    site.streams = 0
