"""TLS: produce and share consume over a listener with TLS and over one without, on both brokers, in turn."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.contest import Contest, Measure
from bench.encryption import OTHERS, make_encryption, require_suite
from bench.run import in_turn
from bench.share import EXPLICIT, IMPLICIT, consume_150, consume_explicit
from bench.tasks import (
    PRODUCE,
    PRODUCE_CPU,
    PRODUCE_RAW,
    PRODUCE_RAW_CPU,
    Line,
    Load,
    Values,
    produce,
    produce_raw,
)

PLAINTEXT, TLS = "PLAINTEXT", "TLS"
RECORDS = 1_000_000
"""Of the topic that the share groups work off."""
WARM_S = 2.5
TASKS: dict[str, Callable[[Running, Load], Values]] = {
    "produce": produce,
    "produce, raw client": produce_raw,
    "share consume, implicit": consume_150,
    "share consume, explicit": consume_explicit,
}
NAMES = {
    PRODUCE: "produce",
    PRODUCE_CPU: "produce: broker CPU",
    PRODUCE_RAW: "produce, raw client",
    PRODUCE_RAW_CPU: "produce, raw client: broker CPU",
    **{line: line.measure for line in (*IMPLICIT["150"][:2], *EXPLICIT[:2])},
}
"""Of the lines that the table has; there is no column for the client."""
# A member of Apache's share groups has its partitions after its second heartbeat, usually: 5 s, of no interest here.
FAST_JOIN = {"group.share.heartbeat.interval.ms": "500", "group.share.min.heartbeat.interval.ms": "500"}

Figures = dict[tuple[Line, str, str], list[float]]
"""By line, PLAINTEXT or TLS, and broker: a figure of each round."""


def run_tls(
    contest: Contest, folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]
) -> None:
    """Apache is warmed alone; then comes a round that does not count, as in the contest of the brokers."""
    encryption = make_encryption(folder)
    ours = Headrace(
        folder,
        bytecode=folder / "bytecode",
        settings=FAST_JOIN,
        tls=encryption.settings,
        env=encryption.environment,
    )
    apache = Apache(folder, settings=FAST_JOIN, tls=encryption.settings)
    brokers: tuple[BrokerProcess, ...] = (apache, ours)
    load = Load(seconds, 1, RECORDS)
    listeners: list[tuple[str, Running]] = []
    figures: Figures = {}
    with ExitStack() as running_brokers:
        for broker in brokers:
            say(f"tls: starting {broker.name}")
            running_brokers.callback(broker.stop)
            plaintext = broker.start(Policy.PAGE_CACHE)
            over_tls = plaintext.over_tls(encryption.ca)
            suite = require_suite(over_tls.bootstrap_servers, encryption.ca)
            contest.notes.append(f"{broker.name} chose {suite} and refused {' and '.join(OTHERS)}.")
            listeners += [(PLAINTEXT, plaintext), (TLS, over_tls)]
            if broker is apache:
                _warm(listeners, load, say)
        for number in range(rounds + 1):
            for name, task in TASKS.items():
                say(f"tls: round {number} of {rounds}: {name}")
                for transport, running in in_turn(listeners, number):
                    values = task(running, load)
                    if number:
                        for line in NAMES:
                            if line in values:
                                figures.setdefault((line, transport, running.name), []).append(values[line])
    tabulate(contest, figures, [ours.name, apache.name])


def _warm(listeners: list[tuple[str, Running]], load: Load, say: Callable[[str], None]) -> None:
    for name, task in TASKS.items():
        say(f"tls: warming apache up: {name}")
        for _, running in listeners:
            task(running, replace(load, seconds=WARM_S))


def tabulate(contest: Contest, figures: Figures, brokers: list[str]) -> None:
    """For each line the figures without and with TLS, then what TLS makes of them: TLS / PLAINTEXT, round by round."""
    for line in NAMES:
        measure = Measure(NAMES[line], line.unit, line.is_more_better)
        for transport in (PLAINTEXT, TLS):
            for broker in brokers:
                for value in figures[line, transport, broker]:
                    contest.add(measure, transport, broker, value)
        cost = Measure(NAMES[line], "times", line.is_more_better)
        for broker in brokers:
            rounds = zip(figures[line, TLS, broker], figures[line, PLAINTEXT, broker], strict=True)
            for encrypted, plain in rounds:
                contest.add(cost, f"{TLS} / {PLAINTEXT}", broker, encrypted / plain)
