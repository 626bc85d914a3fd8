"""`python -m tests.simulation`: run seeds, replay one, shrink a failure. See the package's docstring."""

import argparse
import sys

from tests.simulation import running


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--path",
        choices=sorted(running.PATHS),
        default=running.BROKER,
        help="the broker alone, the whole path with real clients and workers, or that of the Spark source",
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many lives")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=500, help="steps of each life")
    parser.add_argument(
        "--jobs", type=int, default=0, help="processes; as many as there are cores if not given"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this one and print its trail")
    parser.add_argument("--only", metavar="STEPS", help="with --replay: only these steps, such as 3,7,20-25")
    parser.add_argument("--digest", action="store_true", help="print each seed and the hash of its trail")
    parser.add_argument("--file", metavar="FILE", help="run the seeds of a file instead")
    parser.add_argument(
        "--until-found", action="store_true", help="stop at the first violation, do not shrink it"
    )
    parser.add_argument("--shrink-s", type=float, default=60.0, help="longest time to shrink one failure")
    given = parser.parse_args()
    return running.run(given)


if __name__ == "__main__":
    sys.exit(main())
