"""Writes answers.json anew from Apache Kafka: `python -m tests.conformance.access.record`."""

import json
from contextlib import ExitStack
from pathlib import Path

from tests.conformance.access.site import CASES
from tests.conformance.access.sites import apache_site

ANSWERS = Path(__file__).with_name("answers.json")


def main() -> None:
    with ExitStack() as stack:
        site = apache_site(stack)
        site.prepare()
        answers = {case.name: site.ask(case) for case in CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
