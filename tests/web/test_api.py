"""The JSON API over a broker with a known state: every answer, every action, every refusal."""

import pytest

from headrace.web.api import BODY_MAX
from headrace.web.bodies import WHOLE_MAX
from tests.conformance.share.share_client import ShareMember, new_member_id, set_group, start_at
from tests.conformance.steps import GROUP, new_topic, now_ms, set_config, wait_for
from tests.web.conftest import DEAD, KITCHEN, ORDERS, World


def test_the_overview_shows_brokers_topics_and_groups(world: World) -> None:
    world.serve_orders()
    wait_for(lambda: world.get("/overview")["dead_letters"] == 1)
    overview = world.get("/overview")
    assert [broker["address"] for broker in overview["brokers"]] == [world.broker.bootstrap_servers]
    topics = {topic["name"]: topic for topic in overview["topics"]}
    assert (topics[ORDERS]["partitions"], topics[ORDERS]["records"]) == (2, 20)
    assert topics["__share_group_state"]["is_internal"]
    (group,) = overview["groups"]
    assert (group["group_id"], group["type"], group["state"], group["members"]) == (
        KITCHEN,
        "share",
        "Stable",
        1,
    )
    assert (group["lag"], group["in_flight"], overview["is_embedded"]) == (16, 12, True)
    assert world.get("/groups")["groups"] == overview["groups"]
    assert {one["name"] for one in world.get("/topics")["topics"]} == set(topics)
    assert (overview["dead_letters"], overview["disks"][0]["node_id"]) == (1, 1)


def test_a_share_group_shows_members_and_windows_to_the_record(world: World) -> None:
    member = world.serve_orders()
    page = world.get("/group", group=KITCHEN)
    (row,) = page["members"]
    assert (row["member_id"], row["client_id"], row["holds"]) == (member.member_id, "cook-1", 6)
    assert row["assignment"] == ["orders-0", "orders-1"]
    window = page["windows"][0]
    assert [(run["first"], run["last"], run["state"], run["delivery_count"]) for run in window["runs"]] == [
        (0, 2, "acquired", 1),
        (3, 5, "acknowledged", 1),
        (6, 7, "available", 1),
        (8, 8, "archived", 1),
        (9, 11, "acquired", 1),
    ]
    assert window["runs"][0]["holder"] == member.member_id
    left_later = world.broker.share_state(KITCHEN)[ORDERS, 0].runs[0].lock_ms_left
    assert left_later is not None
    assert left_later <= window["runs"][0]["lock_ms_left"] <= 30_000
    assert (window["lag"], window["in_flight"], window["window_max"]) == (16, 12, 2000)
    assert window["states"] == {"acquired": 6, "acknowledged": 3, "available": 2, "archived": 1}
    assert window["deliveries"] == {"1": 12}
    assert page["dead_letter_topic"] == DEAD


def test_lock_time_outs_are_counted_by_window(world: World) -> None:
    member = world.serve_orders()
    world.broker.advance(31)
    window = world.get("/group", group=KITCHEN)["windows"][0]
    assert window["lock_timeouts"] == 6
    assert window["states"]["available"] == 8
    assert member.member_id


def test_a_record_is_shown_with_its_state_holder_and_content(world: World) -> None:
    member = world.serve_orders()
    held = world.get("/record", group=KITCHEN, topic=ORDERS, partition=0, offset=1)
    assert (held["state"], held["holder"], held["delivery_count"], held["delivery_limit"]) == (
        "acquired",
        member.member_id,
        1,
        5,
    )
    assert held["may_release"]
    assert held["record"]["value"] == {
        "kind": "json",
        "text": '{\n  "order": 1\n}',
        "size": 12,
        "is_cut": False,
    }
    assert held["record"]["key"]["text"] == "customer-1"
    assert held["record"]["headers"] == [["source", "shop"]]
    states = {
        offset: world.get("/record", group=KITCHEN, topic=ORDERS, partition=0, offset=offset)["state"]
        for offset in (4, 6, 8, 15, 99)
    }
    assert states == {4: "acknowledged", 6: "available", 8: "archived", 15: "waiting", 99: "not there"}


def test_a_record_can_be_looked_at_without_a_group(world: World) -> None:
    world.serve_orders()
    page = world.get("/record", topic=ORDERS, partition=0, offset=3)
    assert (page["state"], page["record"]["offset"], page["group_id"]) == ("in the log", 3, None)


def test_records_are_read_from_an_offset_a_time_or_the_end(world: World) -> None:
    world.serve_orders()

    def offsets(**choice: object) -> list[int]:
        page = world.get("/records", topic=ORDERS, **choice)
        return [record["offset"] for record in page["records"]]

    assert offsets(offset=5, limit=3) == [5, 6, 7]
    assert offsets(limit=2) == [18, 19]
    assert offsets(time=0, limit=1) == [0]
    assert offsets(time=now_ms() + 60_000) == []
    page = world.get("/records", topic=ORDERS, offset=5, limit=3)
    assert (page["start_offset"], page["end_offset"], page["next_offset"]) == (0, 20, 8)


def test_a_topic_shows_partitions_and_configs(world: World) -> None:
    world.serve_orders()
    page = world.get("/topic", topic=ORDERS)
    assert [(one["partition"], one["start_offset"], one["end_offset"]) for one in page["partitions"]] == [
        (0, 0, 20),
        (1, 0, 0),
    ]
    assert "retention.ms" in {config["name"] for config in page["configs"]}


def test_dead_letters_are_shown_by_cause_and_redriven_once(world: World) -> None:
    world.serve_orders()
    page = world.get("/dead-letters")
    assert (page["topics"], page["topic"], page["total"], page["waiting"]) == ([DEAD], DEAD, 1, 1)
    (cause,) = page["causes"]
    assert (cause["text"], cause["count"], cause["group_id"]) == ("Offset rejected by client.", 1, KITCHEN)
    assert page["letters"][0]["source"] == "orders-0@8"
    planned = world.do("/dead-letters/redrive", topic=DEAD, cause=cause["id"])
    assert (planned["is_dry_run"], planned["chosen"], planned["targets"]) == (True, 1, {ORDERS: 1})
    assert len(world.get("/records", topic=ORDERS)["records"]) == 20
    done = world.do("/dead-letters/redrive", topic=DEAD, cause=cause["id"], dry_run=False)
    assert done["redriven"] == 1
    newest = world.get("/records", topic=ORDERS, limit=1)["records"][0]
    assert (newest["offset"], newest["value"]["text"]) == (20, '{"order": 8}')
    assert world.do("/dead-letters/redrive", topic=DEAD, dry_run=False)["chosen"] == 0
    assert world.get("/dead-letters", topic=DEAD)["letters"][0]["status"] == "redriven"


def test_a_stuck_record_is_released_and_its_holder_refused(world: World) -> None:
    member = world.serve_orders()
    record = {"group": KITCHEN, "topic": ORDERS, "partition": 0, "offset": 1}
    assert member.member_id in world.do("/record/release", **record)["message"]
    assert world.get("/record", **record)["state"] == "available"
    assert member.ack((1, 1, 1)) == 121
    again = world.post("/record/release", **record)
    assert (again.status_code, again.json()["error"]) == (
        409,
        "INVALID_RECORD_STATE: record 1 of orders-0 is not acquired",
    )


def test_offsets_are_reset_only_after_a_look_and_only_without_members(world: World) -> None:
    member = world.serve_orders()
    busy = world.post("/group/reset", group=KITCHEN, to="earliest")
    assert busy.status_code == 409
    assert KITCHEN in busy.json()["error"]
    world.leave(member)
    planned = world.do("/group/reset", group=KITCHEN, to="offset", topic=ORDERS, partition=0, offset=15)
    assert planned == {
        "is_dry_run": True,
        "changes": [{"topic": ORDERS, "partition": 0, "before": 0, "after": 15}],
    }
    assert world.get("/group", group=KITCHEN)["windows"][0]["start_offset"] == 0
    world.do("/group/reset", group=KITCHEN, to="offset", topic=ORDERS, partition=0, offset=15, dry_run=False)
    assert world.get("/group", group=KITCHEN)["windows"][0]["start_offset"] == 15
    world.do("/group/reset", group=KITCHEN, to="latest", dry_run=False)
    assert world.get("/group", group=KITCHEN)["windows"][0]["start_offset"] == 20
    world.do("/group/reset", group=KITCHEN, to="time", time=0, dry_run=False)
    assert world.get("/group", group=KITCHEN)["windows"][0]["start_offset"] == 0


def test_a_group_is_deleted_only_without_members(world: World) -> None:
    member = world.serve_orders()
    busy = world.post("/group/delete", group=KITCHEN)
    assert busy.status_code == 409
    world.leave(member)
    assert world.do("/group/delete", group=KITCHEN)["message"] == f"Group {KITCHEN} is deleted."
    wait_for(lambda: world.get("/groups")["groups"] == [] or None)
    assert world.refused("/group", group=KITCHEN)[0] == 404


def test_configs_are_set_and_put_back(world: World) -> None:
    def value() -> tuple[str, bool]:
        configs = {config["name"]: config for config in world.get("/group/config", group="new")["configs"]}
        found = configs["share.delivery.count.limit"]
        return found["value"], found["is_set"]

    assert value() == ("5", False)
    world.do("/group/config", group="new", changes={"share.delivery.count.limit": "7"})
    assert value() == ("7", True)
    world.do("/group/config", group="new", changes={"share.delivery.count.limit": None})
    assert value() == ("5", False)
    wrong = world.post("/group/config", group="new", changes={"share.delivery.count.limit": "many"})
    assert wrong.status_code == 400
    assert "share.delivery.count.limit" in wrong.json()["error"]


def test_a_consumer_group_shows_its_offsets(world: World) -> None:
    world.serve_orders()
    partition = {"partition_index": 0, "committed_offset": 12, "committed_metadata": ""}
    world.wire.ask(
        "offset_commit",
        8,
        group_id="billing",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": ORDERS, "partitions": [partition]}],
    )
    page = world.get("/group", group="billing")
    assert [(one["offset"], one["end_offset"], one["lag"]) for one in page["offsets"]] == [(12, 20, 8)]
    world.wait_for_sample()
    rows = {row["group_id"]: row for row in world.get("/groups")["groups"]}
    assert rows["billing"]["lag"] == 8


def test_charts_hold_a_point_for_each_sample(world: World) -> None:
    world.serve_orders()
    world.wait_for_sample()
    charts = {chart["id"]: chart for chart in world.get("/charts", group=KITCHEN)["charts"]}
    assert set(charts) == {"lag", "acknowledged", "in-flight"}
    assert charts["lag"]["series"][0]["values"][-1] == 16
    assert len(charts["lag"]["times"]) == len(charts["lag"]["series"][0]["values"]) > 2
    whole = {chart["id"]: chart for chart in world.get("/charts")["charts"]}
    assert ORDERS in [series["name"] for series in whole["in"]["series"]]


@pytest.mark.parametrize(
    ("path", "parameters", "status", "said"),
    [
        ("/group", {"group": "nobody"}, 404, "nobody"),
        ("/group", {}, 400, "group"),
        ("/group", {"group": "g", "color": "red"}, 400, "'color' is unknown; expected one of group"),
        ("/topic", {"topic": "nothing"}, 404, "nothing"),
        ("/records", {"topic": "nothing"}, 404, "nothing"),
        ("/records", {"topic": "t", "limit": "9999"}, 400, "<= 500"),
        ("/records", {"topic": "t", "offset": "-1"}, 400, ">= 0"),
        ("/records", {"topic": "t", "offset": "first"}, 400, "Expected `int"),
        ("/dead-letters", {"topic": "nothing"}, 404, "nothing"),
        ("/nonsense", {}, 404, "/api/v1/nonsense"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    world: World, path: str, parameters: dict[str, str], status: int, said: str
) -> None:
    code, sentence = world.refused(path, **parameters)
    assert code == status
    assert said in sentence


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"group": "g", "to": "somewhere"}, "Invalid enum value 'somewhere'"),
        ({"group": "g", "to": "time"}, "to=time needs a time"),
        ({"group": "g", "to": "offset"}, "to=offset needs a topic"),
        ({"group": "g", "to": "latest", "dry_run": "no"}, "Expected `bool`"),
        ({"group": "g", "to": "latest", "dryrun": False}, "'dryrun' is unknown"),
    ],
)
def test_a_request_that_is_not_understood_changes_nothing(
    world: World, wanted: dict[str, object], said: str
) -> None:
    answer = world.post("/group/reset", **wanted)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_a_body_that_is_no_json_or_too_long_is_refused(world: World) -> None:
    headers = {"x-csrf-token": world.get("/session")["csrf_token"], "content-type": "application/json"}
    for body, said in (
        (b"{", "truncated"),
        (b"[]", "expected an object"),
        (b" " * (BODY_MAX + 1), "longer than"),
        (b"[" * 60_000, "nested too deeply"),
    ):
        answer = world.http.post("/api/v1/group/delete", content=body, headers=headers)
        assert answer.status_code == 400
        assert said in answer.json()["error"]
    plain = world.http.post(
        "/api/v1/group/delete", content=b"{}", headers={**headers, "content-type": "text/plain"}
    )
    assert "application/json" in plain.json()["error"]


def test_names_with_any_signs_in_them_work(world: World) -> None:
    name = f"a/b?c&d=<e> ü {new_member_id()}"
    world.do("/group/config", group=name, changes={"share.auto.offset.reset": "earliest"})
    configs = {row["name"]: row["value"] for row in world.get("/group/config", group=name)["configs"]}
    assert configs["share.auto.offset.reset"] == "earliest"


def test_a_group_in_trouble_says_why_and_comes_first(world: World) -> None:
    member = world.serve_orders()
    start_at(world.wire, "auditors", ORDERS, {0: 20, 1: 0})
    wait_for(lambda: [one["dead_letters"] for one in world.get("/groups")["groups"]] == [1, 0])
    kitchen, auditors = world.get("/groups")["groups"]
    assert (kitchen["level"], kitchen["reasons"]) == ("warning", ["1 dead letter waiting"])
    assert (auditors["level"], auditors["reasons"], auditors["drain"]) == ("ok", [], "done")
    assert kitchen["oldest_age_s"] >= 0
    world.leave(member)
    wait_for(lambda: world.get("/groups")["groups"][0]["level"] == "critical")
    (first, *_) = world.get("/groups")["groups"]
    assert first["reasons"] == ["No members, and 16 records to go", "1 dead letter waiting"]


def test_a_group_that_has_settled_nothing_yet_has_a_lag_and_says_what_blocks_it(world: World) -> None:
    topic_id = new_topic(world.wire, "letters")
    set_group(world.wire, "mailers", auto_offset_reset="earliest")
    set_config(world.wire, GROUP, "mailers", "share.partition.max.record.locks", "100")
    world.produce("letters", *(str(number) for number in range(150)))
    member = ShareMember(world.connect("mailer-1"), "mailers", topic_id)
    member.join("letters")
    member.take(150, 0, max_records=150)  # one batch, which is delivered whole
    world.wait_for_sample()
    (row,) = world.get("/groups")["groups"]
    assert (row["lag"], row["level"], row["reasons"]) == (
        150,
        "critical",
        ["Window full: nothing new is delivered"],
    )
    assert row["oldest_age_s"] >= 0
    (window,) = world.get("/group", group="mailers")["windows"]
    assert window["lag"] == 150
    assert window["blocked"].startswith("The window has been full since ")
    assert "Its oldest record, offset 0, is held by mailer-1@127.0.0.1 for " in window["blocked"]
    page = world.http.get("/group", params={"group": "mailers"}).text
    assert "Window full: nothing new is delivered." in page
    assert "Its oldest record, offset 0, is held by mailer-1@127.0.0.1" in page


def test_groups_and_topics_are_searched_sorted_and_paged(world: World) -> None:
    world.serve_orders()
    for name in ("b-group", "a-group", "C-Group"):
        start_at(world.wire, name, ORDERS, {1: 0})
    wait_for(lambda: world.get("/groups")["total"] == 4)
    found = world.get("/groups", q="GROUP", sort="name", limit=2)
    assert [one["group_id"] for one in found["groups"]] == ["C-Group", "a-group"]
    assert (found["total"], found["page"], found["pages"]) == (3, 1, 2)
    last = world.get("/groups", q="group", sort="name", limit=2, page=99)
    assert ([one["group_id"] for one in last["groups"]], last["page"]) == (["b-group"], 2)
    assert world.get("/groups", type="classic")["total"] == 0
    topics = world.get("/topics", internal="no", sort="records")["topics"]
    assert [one["name"] for one in topics] == [ORDERS, DEAD]
    assert world.refused("/groups", sort="color")[0] == 400


def test_a_dead_letter_is_shown_whole_and_discarded(world: World) -> None:
    world.serve_orders()
    letter = world.get("/dead-letter", topic=DEAD, partition=0, offset=0)
    assert (letter["status"], letter["source_topic"], letter["source_offset"]) == ("waiting", ORDERS, 8)
    assert (letter["group_id"], letter["delivery_count"], letter["attempts"]) == (KITCHEN, 1, None)
    assert '"order": 8' in letter["record"]["value"]["text"]
    place = {"topic": DEAD, "partition": 0, "offset": 0}
    assert world.do("/dead-letters/discard", **place)["chosen"] == 1
    assert world.do("/dead-letters/discard", **place, dry_run=False)["discarded"] == 1
    page = world.get("/dead-letters", topic=DEAD)
    assert (page["waiting"], page["causes"][0]["discarded"]) == (0, 1)
    assert world.refused("/dead-letter", topic=DEAD, partition=0, offset=1)[0] == 404
    wait_for(lambda: world.get("/overview")["dead_letters"] == 0)


def test_an_edited_letter_goes_back_with_its_new_value(world: World) -> None:
    world.serve_orders()
    done = world.do("/dead-letters/redrive", topic=DEAD, partition=0, offset=0, value="mended", dry_run=False)
    assert (done["redriven"], done["targets"]) == (1, {ORDERS: 1})
    sent = world.get("/record", topic=ORDERS, partition=0, offset=20)["record"]
    assert (sent["value"]["text"], sent["key"]["text"]) == ("mended", "customer-8")


def test_a_letter_of_any_size_that_a_page_shows_can_be_edited(world: World) -> None:
    world.serve_orders()
    value = '"' * WHOLE_MAX
    place = {"topic": DEAD, "partition": 0, "offset": 0}
    assert world.do("/dead-letters/redrive", **place, value=value, dry_run=False)["redriven"] == 1
    sent = world.get("/record", topic=ORDERS, partition=0, offset=20)["record"]
    assert sent["value"]["text"] == value


def test_a_record_whose_json_is_no_unicode_can_be_looked_at(world: World) -> None:
    new_topic(world.wire, ORDERS)
    world.produce(ORDERS, '{"half": "\\ud800"}')
    record = world.get("/record", topic=ORDERS, partition=0, offset=0)["record"]
    assert record["value"]["text"] == '{\n  "half": "\\ud800"\n}'


def test_all_dead_letter_topics_are_listed_with_their_most_frequent_cause(world: World) -> None:
    world.serve_orders()
    new_topic(world.wire, "dlq.payments")
    wait_for(lambda: len(world.get("/dead-letters")["overview"]) == 2)
    first, second = world.get("/dead-letters")["overview"]
    assert (first["topic"], first["letters"], first["waiting"], first["cause_share"]) == (DEAD, 1, 1, 1.0)
    assert (second["topic"], second["letters"], second["newest"], second["cause"]) == (
        "dlq.payments",
        0,
        None,
        None,
    )


def test_a_topic_shows_who_reads_it_and_how_far_behind(world: World) -> None:
    world.serve_orders()
    new_topic(world.wire, "payments")
    start_at(world.wire, "clerks", "payments", {0: 0})
    wait_for(lambda: world.get("/groups")["total"] == 2)
    page = world.get("/topic", topic=ORDERS)
    assert [(one["group_id"], one["lag"], one["members"]) for one in page["readers"]] == [(KITCHEN, 16, 1)]
    assert (page["records"], page["retention_ms"], page["cleanup"]) == (20, 604_800_000, "delete")


def test_records_are_found_by_key_and_by_text_in_all_partitions(world: World) -> None:
    world.serve_orders()
    world.produce(ORDERS, "needle in partition 1", partition=1)

    def found(**choice: object) -> list[tuple[int, int]]:
        page = world.get("/records", topic=ORDERS, **choice)
        return [(one["partition"], one["offset"]) for one in page["records"]]

    assert found(value="needle") == [(1, 0)]
    assert found(key="customer-3") == [(0, 3), (0, 15)]
    assert found(key="customer-3", value="15") == [(0, 15)]
    assert found(key="customer-3", partition=1) == []
    assert len(found()) == 21
    page = world.get("/records", topic=ORDERS, partition=0, offset=0, key="customer-3", limit=1)
    assert (page["scanned"], page["is_cut"], page["next_offset"]) == (4, True, 4)


def test_topics_are_created_and_deleted_with_their_name_given_twice(world: World) -> None:
    world.do("/topic/create", topic="new", partitions=3, configs={"retention.ms": "1000"})
    page = world.get("/topic", topic="new")
    assert (len(page["partitions"]), page["retention_ms"], page["readers"]) == (3, 1000, [])
    assert world.post("/topic/create", topic="new").status_code == 409
    refused = world.post("/topic/delete", topic="new", confirm="old")
    assert (refused.status_code, "type the topic" in refused.json()["error"]) == (400, True)
    world.do("/topic/delete", topic="new", confirm="new")
    assert world.refused("/topic", topic="new")[0] == 404


def test_a_share_partition_is_shown_as_it_was_with_who_held_what(world: World) -> None:
    member = world.serve_orders()
    place = {"group": KITCHEN, "topic": ORDERS, "partition": 0}
    before = world.get("/history", **place)
    assert before["window"]["states"] == {"acquired": 6, "acknowledged": 3, "available": 2, "archived": 1}
    assert (before["names_holders"], before["knows_current"]) == (True, True)
    name = "cook-1@127.0.0.1"
    runs = {run["first"]: run for run in before["window"]["runs"]}
    assert (runs[0]["state"], runs[0]["holder"], runs[0]["holder_name"]) == (
        "acquired",
        member.member_id,
        name,
    )
    assert (runs[0]["past"]["ended_at"], runs[0]["past"]["words"]) == (None, "")
    ends = {first: (runs[first]["past"]["name"], runs[first]["past"]["ends"]) for first in (3, 6, 8)}
    assert ends == {3: (name, ["accepted"]), 6: (name, ["released"]), 8: (name, ["rejected"])}
    assert [(one["first"], one["last"], one["words"]) for one in before["ended"]] == [
        (8, 8, "rejected"),
        (6, 7, "released"),
        (3, 5, "accepted"),
    ]
    wait_for(lambda: now_ms() > before["last"])
    assert member.ack((0, 2, 1), (9, 11, 1)) == 0
    after = wait_for(
        lambda: (
            found
            if (found := world.get("/history", **place))["changes_total"] > before["changes_total"]
            else None
        )
    )
    assert after["window"]["states"]["acknowledged"] == 9
    # What the broker knew then, the records since then say now.
    then = world.get("/history", **place, at=before["last"])
    assert (then["window"]["states"], then["changes"]) == (before["window"]["states"], before["changes"])
    (held,) = then["held"]  # all that was acquired together is one row
    assert (held["first"], held["last"], held["count"], held["ranges"]) == (0, 11, 6, 2)
    assert (held["name"], held["words"], held["ends"]) == (name, "accepted", ["accepted"])
    assert all(one["acquired_at"] <= before["last"] < one["ended_at"] for one in then["held"])
    assert {one["acquired_at"] for one in then["held"]} <= set(then["times"])
    assert world.get("/history", **place, at=0)["at"] == then["first"]
    assert world.refused("/history", group=KITCHEN, topic=ORDERS, partition=7)[0] == 404
    assert world.refused("/history", group="nobody", topic=ORDERS, partition=0)[0] == 404


class TestScale:
    def test_members_for_the_lag_come_with_the_reason(self, world: World) -> None:
        world.serve_orders()
        wait_for(lambda: world.get("/overview")["groups"])
        found = world.get("/group/scale", group=KITCHEN, drain_s=2, rate=2, min=1, max=3)
        assert (found["group_id"], found["members"], found["lag"]) == (KITCHEN, 1, 16)
        assert (found["desired_members"], found["rate_per_member"]) == (3, 2.0)
        assert found["reason"] == "16 records in 2 s at 2 records/s for each member; max is 3"
        assert 0 < found["sampled_at"] <= now_ms()
        assert world.get("/group/scale", group=KITCHEN, drain_s=2, rate=2)["desired_members"] == 4

    def test_what_cannot_be_answered_is_refused(self, world: World) -> None:
        world.serve_orders()
        wait_for(lambda: world.get("/overview")["groups"])
        assert world.refused("/group/scale", group="pantry")[0] == 404
        for wrong in ({"drain_s": 0}, {"drain_s": "soon"}, {"min": -1}, {"min": 3, "max": 2}, {"rate": 0}):
            assert world.refused("/group/scale", group=KITCHEN, **wrong)[0] == 400
        assert world.refused("/group/scale", group=KITCHEN, min=3, max=2)[1] == (
            "expected 0 <= min <= max <= 10000, got min=3 and max=2"
        )

    def test_old_figures_are_refused(self, world: World) -> None:
        world.serve_orders()
        wait_for(lambda: world.get("/overview")["groups"])
        world.broker.stop()
        wait_for(lambda: world.get("/overview")["gone_since"] is not None)
        status, text = world.refused("/group/scale", group=KITCHEN)
        assert (status, "not respond" in text) == (503, True)
