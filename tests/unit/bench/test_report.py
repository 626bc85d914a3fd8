"""Ratios are made round by round, and the table tells the median, the spread and whether a target was met."""

import json

from bench.report import Results, Series, render_caveats, render_number, render_table
from bench.tasks import MEMORY_REST, PRODUCE, PRODUCE_BUSY, START, Line

PLAIN = Line("latency", "confluent", "ms", False)


def series(line: Line, ours: list[float], apache: list[float]) -> Series:
    return Series(line, "fsync", {"headrace": ours, "apache": apache})


def test_the_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_medians() -> None:
    found = series(PRODUCE, [10, 30, 80], [10, 10, 40])
    assert found.ratios == [1.0, 3.0, 2.0]
    assert found.ratio == 2.0


def test_a_target_is_a_least_ratio_where_more_is_better() -> None:
    assert series(PRODUCE, [11], [10]).verdict == "met: wanted >= 1"
    assert series(PRODUCE, [9], [10]).verdict == "MISSED: wanted >= 1"


def test_a_target_is_a_greatest_ratio_where_less_is_better() -> None:
    assert series(START, [100], [1000]).verdict == "met: wanted <= 0.2"
    assert series(START, [300], [1000]).verdict == "MISSED: wanted <= 0.2"


def test_a_limit_is_for_our_own_figure() -> None:
    assert series(MEMORY_REST, [60], [400]).verdict == "met: wanted < 100 MB"
    assert series(MEMORY_REST, [130], [400]).verdict == "MISSED: wanted < 100 MB"


def test_what_only_explains_a_figure_is_not_in_the_table() -> None:
    assert len(render_table([series(PRODUCE_BUSY, [1], [1])]).splitlines()) == 2


def test_without_a_target_the_table_says_which_way_is_good() -> None:
    assert series(PLAIN, [1], [2]).verdict == "less is better"


def test_every_row_names_its_durability_and_its_spread() -> None:
    table = render_table([series(PRODUCE, [300_000, 200_000], [200_000, 200_000])])
    row = table.splitlines()[2]
    assert "fsync" in row
    assert "1.25" in row
    assert "[1.00 - 1.50]" in row
    assert "250,000" in row


def test_numbers_keep_three_digits() -> None:
    assert [render_number(value) for value in (1_234_567, 1234, 47.11, 0.08349)] == [
        "1,230,000",
        "1,230",
        "47.1",
        "0.0835",
    ]


def test_the_json_holds_every_round_and_the_noise_of_the_machine() -> None:
    results = Results()
    for ours, apache in ((2.0, 1.0), (3.0, 1.0)):
        results.add(PLAIN, "fsync", "headrace", ours)
        results.add(PLAIN, "fsync", "apache", apache)
    results.spins_s += [1.0, 1.5]
    written = json.loads(json.dumps(results.as_json({"cores": 2})))
    assert written["machine"]["noise"] == 0.5
    (line,) = written["lines"]
    assert line["values"] == {"headrace": [2.0, 3.0], "apache": [1.0, 1.0]}
    assert (line["ratio"], line["ratio_min"], line["ratio_max"]) == (2.5, 2.0, 3.0)


def results_of(apache: list[float], spins_s: list[float]) -> Results:
    results = Results()
    for value in apache:
        results.add(PRODUCE, "fsync", "headrace", 1.0)
        results.add(PRODUCE, "fsync", "apache", value)
    results.spins_s += spins_s
    return results


def test_figures_of_a_quiet_machine_and_a_warm_apache_need_no_caveat() -> None:
    assert render_caveats(results_of([100, 105], [1.0, 1.1]), load=0.3, cores=2) == []


def test_a_busy_machine_is_told() -> None:
    (by_load,) = render_caveats(results_of([100, 105], [1.0, 1.1]), load=3.0, cores=2)
    (by_noise,) = render_caveats(results_of([100, 105], [1.0, 2.0]), load=0.3, cores=2)
    assert "busy" in by_load
    assert "busy" in by_noise


def test_an_apache_that_still_warms_up_is_told() -> None:
    (caveat,) = render_caveats(results_of([100, 150], [1.0]), load=0.3, cores=2)
    assert "not warm: produce (confluent, fsync)" in caveat
