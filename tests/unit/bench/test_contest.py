"""Every contender is compared with the reference of its own setting and round."""

import json

import pytest

from bench.contest import Contest, Measure, Target, replace_between

RATE = Measure("drain", "jobs/s", True, {"sync": Target("peer", 1.0), "asyncio": Target("sync", 0.8)})
DELAY = Measure("deliver", "ms", False, {"sync": Target("peer", 1.0)})


def contest(measure: Measure, **values: list[float]) -> Contest:
    made = Contest("A title.", reference="peer")
    for contender, rounds in values.items():
        for value in rounds:
            made.add(measure, "apache", contender, value)
    return made


def test_a_ratio_is_taken_round_by_round() -> None:
    found = contest(RATE, peer=[10, 20], sync=[20, 20])
    assert found.ratios(RATE, "apache", "sync", "peer") == [2.0, 1.0]


def test_where_there_is_no_reference_there_is_no_ratio_and_no_verdict() -> None:
    found = contest(RATE, sync=[20])
    assert found.ratios(RATE, "apache", "sync", "peer") == []
    assert found.verdict(RATE, "apache", "sync") == ""
    assert "20" in found.render()


def test_settings_are_not_mixed() -> None:
    found = contest(RATE, peer=[10])
    found.add(RATE, "headrace", "sync", 30.0)
    assert found.ratios(RATE, "headrace", "sync", "peer") == []


def test_a_target_is_met_or_missed_against_its_own_reference() -> None:
    found = contest(RATE, peer=[100], sync=[90], asyncio=[80])
    assert found.verdict(RATE, "apache", "sync") == "MISSED: wanted >= 1"
    assert found.verdict(RATE, "apache", "asyncio") == "met: 0.89 of sync, wanted >= 0.8"


def test_a_target_bounds_from_above_where_less_is_better() -> None:
    assert contest(DELAY, peer=[2.0], sync=[1.9]).verdict(DELAY, "apache", "sync") == "met: wanted <= 1"
    assert contest(DELAY, peer=[2.0], sync=[2.1]).verdict(DELAY, "apache", "sync") == "MISSED: wanted <= 1"


def test_a_row_tells_the_median_the_spread_and_the_ratio() -> None:
    table = contest(RATE, peer=[1000, 2000], sync=[3000, 4000]).render().splitlines()
    assert table[0] == "A title."
    (row,) = [line for line in table if "sync" in line]
    assert "3,500" in row
    assert "[3,000 - 4,000]" in row
    assert "2.50" in row
    assert "[2.00 - 3.00]" in row


def test_the_json_holds_every_round() -> None:
    written = json.loads(json.dumps(contest(RATE, peer=[1, 2], sync=[3, 4]).as_json()))
    (line,) = written["lines"]
    assert line["values"] == {"peer": [1, 2], "sync": [3, 4]}
    assert line["setting"] == "apache"


def test_a_page_gets_the_rows_that_are_printed() -> None:
    table = contest(RATE, peer=[1000, 2000], sync=[3000, 4000]).render_markdown().splitlines()
    assert table[-1] == "| drain | apache | sync | 3,500 | [3,000 - 4,000] | jobs/s | 2.50 [2.00 - 3.00] |"


def test_only_what_is_between_the_marks_is_replaced() -> None:
    page = "Above.\n<!-- bench slow -->\nold\n<!-- end slow -->\nBelow."
    assert replace_between(page, "slow", "new") == page.replace("old", "new")


@pytest.mark.parametrize("page", ["no marks", "<!-- bench slow --> no end", "<!-- end slow --> no beginning"])
def test_a_page_without_the_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="<!-- bench slow -->"):
        replace_between(page, "slow", "new")


def test_a_measure_with_a_reference_of_its_own_is_compared_with_that_and_the_reader_is_told() -> None:
    own = Measure("send", "messages/s", True, reference="broker")
    found = contest(RATE, peer=[10], sync=[20])
    found.add(own, "apache", "broker", 100.0)
    found.add(own, "apache", "sync", 50.0)
    for rendered in (found.render(), found.render_markdown()):
        assert "/ reference" in rendered
        assert "- The reference is peer for: drain." in rendered
        assert "- The reference is broker for: send." in rendered
    assert "0.50 [0.50 - 0.50]" in found.render_markdown()


def test_notes_stand_below_the_table() -> None:
    found = contest(RATE, peer=[10])
    assert "/ peer" in found.render()
    found.notes.append("Messages of 100 bytes.")
    assert found.render().endswith("\n\n- Messages of 100 bytes.")
    assert found.render_markdown().endswith("\n\n- Messages of 100 bytes.")
    assert found.as_json()["notes"] == ["Messages of 100 bytes."]
