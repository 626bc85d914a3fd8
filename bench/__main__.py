"""`python -m bench`: measures both brokers in one run and prints the ratios. See docs/benchmarks.md."""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench import machine
from bench.brokers import APACHE_HEAP, Policy
from bench.report import EXPLANATION, render_table
from bench.run import DEFAULT, QUICK, Plan, run
from headrace.testing.kafka_jars import KAFKA_VERSION

POLICIES = {"os": Policy.PAGE_CACHE, "fsync": Policy.FSYNC}


def main() -> int:
    chosen = _parser().parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=chosen.data) as name:
        folder = Path(name)
        facts: dict[str, object] = {
            "machine": machine.describe(),
            "load_before": machine.load_average(),
            "fdatasync_ms": machine.fdatasync_ms(folder),
            "apache_kafka": KAFKA_VERSION,
            "apache_heap": APACHE_HEAP,
        }
        policies = [POLICIES[policy] for policy in chosen.policy]
        results = run(_plan(chosen), folder, only=chosen.only, clients=chosen.client, policies=policies)
    facts["seconds"] = time.monotonic() - started
    print(render_table(results.series))
    print()
    print(EXPLANATION)
    print(
        f"Machine: {facts['machine']}; load {facts['load_before']:.2f} before the run; fdatasync of 16 kB"
        f" {facts['fdatasync_ms']:.2f} ms; a fixed piece of work varied by {results.noise:.0%};"
        f" Apache Kafka {KAFKA_VERSION}, heap {APACHE_HEAP}; {facts['seconds']:.0f} s in all."
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(results.as_json(facts), indent=2) + "\n")
    return 0


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
        prog="python -m bench", description="Our broker and Apache Kafka side by side, in one run."
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: under 90 s")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=["start", "memory", "produce", "consume", "latency"],
        help="measure this; may be repeated",
    )
    parser.add_argument(
        "--client", action="append", default=[], choices=["confluent", "raw"], help="load by this client only"
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
