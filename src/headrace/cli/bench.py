"""`headrace bench`: the side-by-side figures. They need Apache Kafka and a checkout: `bench/` is in no package."""

import subprocess
import sys
from pathlib import Path

import typer

import headrace
from headrace.cli.failures import Refused

CHECKOUT = Path(headrace.__file__).resolve().parents[2]


def bench(ctx: typer.Context) -> None:
    """Compare this broker with Apache Kafka. Requires a checkout of Headrace and takes minutes.

    Options are passed to `python -m bench`. `headrace bench -- --help` lists them.

    \b
    headrace bench
    headrace bench --quick
    """
    raise typer.Exit(run(ctx.args))


def run(arguments: list[str], checkout: Path = CHECKOUT) -> int:
    if not (checkout / "bench" / "__main__.py").is_file():
        raise Refused(
            "the benchmarks are not in the package; run it in a checkout of Headrace (git clone, then `make bench`)."
        )
    return subprocess.run([sys.executable, "-m", "bench", *arguments], cwd=checkout, check=False).returncode
