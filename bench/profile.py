"""`python -m bench.profile produce`: where our broker's time goes while a client loads it.

The broker runs in this process and its event-loop thread under cProfile; the client runs in its own. cProfile makes
small functions look dearer than they are: read the order and the counts, and measure a change with `python -m bench`.
"""

import argparse
import cProfile
import os
import pstats
import tempfile
from pathlib import Path

from bench.brokers import SAME_SETTINGS, Policy, Running
from bench.tasks import Load, consume, fetch_raw, latency, preload, produce, produce_raw
from headrace import Broker

TASKS = {
    "produce": produce,
    "produce-raw": produce_raw,
    "consume": consume,
    "fetch-raw": fetch_raw,
    "latency": latency,
}
POLICIES = {"os": Policy.PAGE_CACHE, "fsync": Policy.FSYNC}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--policy", choices=list(POLICIES), default="os")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--sort", default="tottime", help="as pstats has it: tottime, cumtime, ncalls")
    chosen = parser.parse_args()
    policy = POLICIES[chosen.policy]
    load = Load(seconds=chosen.seconds, partitions=1, preload_records=600_000)
    profiler = cProfile.Profile()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-profile-") as folder,
        Broker(data_dir=Path(folder) / "data", settings={**SAME_SETTINGS, **policy.ours}) as broker,
    ):
        running = Running("headrace", policy, broker.bootstrap_servers, pid=os.getpid(), start_s=0.0)
        if chosen.task in ("consume", "fetch-raw"):
            preload(running, load)
        broker.call(profiler.enable)
        values = TASKS[chosen.task](running, load)
        broker.call(profiler.disable)
    for line, value in values.items():
        print(f"{line.measure}: {value:,.3f} {line.unit} (profiled)")
    pstats.Stats(profiler).strip_dirs().sort_stats(chosen.sort).print_stats(chosen.rows)


if __name__ == "__main__":
    main()
