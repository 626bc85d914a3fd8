"""The table of the contest of TLS."""

import pytest

from bench.contest import Contest
from bench.tasks import PRODUCE, PRODUCE_CPU
from bench.tls import NAMES, PLAINTEXT, TLS, Figures, tabulate

RATES = {
    (PLAINTEXT, "headrace"): [100.0, 400.0],
    (TLS, "headrace"): [50.0, 100.0],
    (PLAINTEXT, "apache"): [100.0, 100.0],
    (TLS, "apache"): [100.0, 25.0],
}


@pytest.fixture
def contest() -> Contest:
    figures: Figures = {(line, *where): rounds for line in NAMES for where, rounds in RATES.items()}
    made = Contest("TLS.", reference="apache")
    tabulate(made, figures, ["headrace", "apache"])
    return made


def rows(contest: Contest, measure: str) -> list[list[str]]:
    cells = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in contest.render_markdown().splitlines()
    )
    return [row for row in cells if row and row[0] == measure]


def test_each_measure_has_both_brokers_without_tls_then_with_tls_then_what_tls_costs(
    contest: Contest,
) -> None:
    for name in NAMES.values():
        assert [tuple(row[1:3]) for row in rows(contest, name)] == [
            ("PLAINTEXT", "headrace"),
            ("PLAINTEXT", "apache"),
            ("TLS", "headrace"),
            ("TLS", "apache"),
            ("TLS / PLAINTEXT", "headrace"),
            ("TLS / PLAINTEXT", "apache"),
        ]


def test_what_tls_costs_is_taken_round_by_round(contest: Contest) -> None:
    ours, apache = rows(contest, NAMES[PRODUCE])[4:]
    assert ours[3:6] == ["0.375", "[0.25 - 0.5]", "times"]
    assert apache[3:6] == ["0.625", "[0.25 - 1]", "times"]


def test_brokers_are_compared_within_a_listener_and_by_what_tls_costs_them(contest: Contest) -> None:
    assert [row[6] for row in rows(contest, NAMES[PRODUCE_CPU])] == [
        "2.50 [1.00 - 4.00]",
        "",
        "2.25 [0.50 - 4.00]",
        "",
        "0.75 [0.50 - 1.00]",
        "",
    ]
