"""Records a run of `headrace demo` as a picture for the README: `.venv/bin/python tools/record_demo.py docs/demo.svg`.

The run is a real one, 80 columns wide. Of each act the last frame is in the picture.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from headrace.cli.demo.command import Story, run

WIDTH = 80


def main(target: str, story: str = "all") -> None:
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    if not run(Story(story), {}, console=console):
        raise SystemExit("the account does not hold; no picture was written")
    Path(target).write_text(without_addresses(console.export_svg(title="headrace demo")), encoding="utf-8")


def without_addresses(svg: str) -> str:
    """Nothing of ours fetches from other hosts: the machine's own monospaced font will do."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


if __name__ == "__main__":
    main(*sys.argv[1:])
