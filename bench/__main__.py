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
from bench.report import EXPLANATION, render_caveats, render_table
from bench.run import DEFAULT, QUICK, Plan, run
from headrace.testing.kafka_jars import KAFKA_VERSION

POLICIES = {"os": Policy.PAGE_CACHE, "fsync": Policy.FSYNC}


def main() -> int:
    chosen = _parser().parse_args()
    started = time.monotonic()
    load_before = machine.load_average()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=chosen.data) as name:
        folder = Path(name)
        fdatasync_ms = machine.fdatasync_ms(folder)
        policies = [POLICIES[policy] for policy in chosen.policy]
        results = run(_plan(chosen), folder, only=chosen.only, clients=chosen.client, policies=policies)
    seconds = time.monotonic() - started
    print(render_table(results.series), EXPLANATION, sep="\n\n")
    print(
        f"{machine.describe()}; load {load_before:.2f} before the run; fdatasync of 16 kB {fdatasync_ms:.2f} ms;"
        f" a fixed piece of work varied by {results.noise:.0%}; Apache Kafka {KAFKA_VERSION}, heap {APACHE_HEAP};"
        f" {seconds:.0f} s in all."
    )
    caveats = render_caveats(results, load=load_before, cores=machine.cores())
    if chosen.quick:
        caveats.insert(0, "A quick run: too short for the JVM to warm up, so it flatters us. Not for citing.")
    for caveat in caveats:
        print(f"NOTE: {caveat}")
    if chosen.json:
        facts = {
            "machine": machine.describe(),
            "load_before": load_before,
            "fdatasync_ms": fdatasync_ms,
            "apache_kafka": KAFKA_VERSION,
            "apache_heap": APACHE_HEAP,
            "seconds": seconds,
        }
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
        choices=["start", "produce", "consume", "latency", "share"],
        help="measure this; may be repeated",
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
