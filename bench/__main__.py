"""`python -m bench`: brokers, clients and task queues side by side in one run. See docs/benchmarks.md."""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import machine, slow
from bench.brokers import APACHE_HEAP, Policy
from bench.contest import Contest, replace_between
from bench.contests import CONTESTS, run_contest
from bench.report import EXPLANATION, Results, render_caveats, render_table
from bench.run import DEFAULT, QUICK, Plan, run, say
from bench.spark import plot as spark_plot
from bench.spark import run as spark_run
from headrace.testing.kafka_jars import KAFKA_VERSION

POLICIES = {"os": Policy.PAGE_CACHE, "fsync": Policy.FSYNC}
BROKER_TASKS = ("start", "produce", "consume", "latency", "share")


def main() -> int:
    parser = _parser()
    chosen = parser.parse_args()
    drawn = "spark" if "spark" in chosen.only else "slow"
    if chosen.svg and chosen.only and drawn not in chosen.only:
        parser.error("--svg draws the slow work: add --only slow, or --only spark")
    if chosen.case and chosen.only != ["spark"]:
        parser.error("--case names a part of the contest of Spark: add --only spark, and nothing else")
    if chosen.case and (chosen.page or (chosen.svg and "slow" not in chosen.case)):
        parser.error("--case leaves out what --page or --svg needs")
    started = time.monotonic()
    load_before = machine.load_average()
    # Filters of the brokers' tasks leave nothing of the contests.
    is_everything = not (chosen.only or chosen.client or chosen.policy)
    named = CONTESTS if is_everything else [name for name in CONTESTS if name in chosen.only]
    results, contests = Results(), dict[str, Contest]()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=chosen.data) as name:
        folder = Path(name)
        fdatasync_ms = machine.fdatasync_ms(folder)
        if not named or is_everything or set(chosen.only) - set(CONTESTS):
            policies = [POLICIES[policy] for policy in chosen.policy]
            results = run(_plan(chosen), folder, only=chosen.only, clients=chosen.client, policies=policies)
            print(render_table(results.series), EXPLANATION, sep="\n\n", end="\n\n", flush=True)
        for contest_name in named:
            contest = contests[contest_name] = run_contest(
                contest_name,
                folder / contest_name,
                rounds=1 if chosen.quick else chosen.rounds,
                seconds=chosen.seconds,
                before=chosen.before,
                cases=chosen.case,
                quick=chosen.quick,
                spins_s=results.spins_s,
                say=say,
            )
            print(contest.render(), end="\n\n", flush=True)
    if chosen.svg:
        draw = spark_plot.draw if drawn == "spark" else slow.draw
        chosen.svg.write_text(draw(contests[drawn]))
    facts = {
        "machine": machine.describe(),
        "load_before": load_before,
        "fdatasync_ms": fdatasync_ms,
        "apache_kafka": KAFKA_VERSION,
        "apache_heap": APACHE_HEAP,
        "seconds": time.monotonic() - started,
    }
    told = _print_facts(facts, results, is_quick=chosen.quick)
    if chosen.page:
        page = chosen.page.read_text()
        for contest_name, contest in contests.items():
            text = f"{contest.render_markdown()}\n\n{told}"
            page = replace_between(page, contest_name, text)
        chosen.page.write_text(page)
    if chosen.json:
        written = results.as_json(facts)
        written["contests"] = {name: contest.as_json() for name, contest in contests.items()}
        chosen.json.write_text(json.dumps(written, indent=2) + "\n")
    return 0


def _print_facts(facts: dict[str, Any], results: Results, *, is_quick: bool) -> str:
    """Also returns them."""
    told = (
        f"{facts['machine']}; load {facts['load_before']:.2f} before the run; fdatasync of 16 kB"
        f" {facts['fdatasync_ms']:.2f} ms; a fixed piece of work varied by {results.noise:.0%};"
        f" Apache Kafka {KAFKA_VERSION}, heap {APACHE_HEAP}; {facts['seconds']:.0f} s in all."
    )
    print(told)
    caveats = render_caveats(results, load=facts["load_before"], cores=machine.cores())
    if is_quick:
        caveats.insert(0, "A quick run: too short for the JVM to warm up, so it flatters us. Not for citing.")
    for caveat in caveats:
        print(f"NOTE: {caveat}")
    return told


def _plan(chosen: argparse.Namespace) -> Plan:
    plan = QUICK if chosen.quick else DEFAULT
    load = replace(
        plan.load,
        seconds=chosen.seconds or plan.load.seconds,
        partitions=chosen.partitions or plan.load.partitions,
    )
    return replace(plan, rounds=chosen.rounds or plan.rounds, load=load)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Brokers, clients and task queues side by side.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer and shorter rounds: under 5 minutes",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[*BROKER_TASKS, *CONTESTS],
        help="measure this; may be repeated",
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        choices=spark_run.CASES,
        help="of --only spark: measure this, in every round; may be repeated",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        choices=["confluent", "raw", "share"],
        help="load by this client only",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        choices=list(POLICIES),
        help="under this durability policy only",
    )
    parser.add_argument("--rounds", type=int, help="measured rounds; best an even number")
    parser.add_argument("--seconds", type=float, help="load of each task in each round")
    parser.add_argument("--partitions", type=int, help="partitions of each topic (1)")
    parser.add_argument(
        "--data", type=Path, help="where the brokers keep their files (the system's temporary folder)"
    )
    parser.add_argument(
        "--before",
        type=Path,
        metavar="FOLDER",
        help="an older checkout of this repository: one more contender of the bounds",
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="put the contests' tables there, each between its marks"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the slow work there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
