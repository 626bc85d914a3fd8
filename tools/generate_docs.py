"""Writes the generated parts of docs/: settings, errors, APIs, KIPs, differences, states. `make docs` runs it.

A part lies between two comments, `<!-- begin NAME -->` and `<!-- end NAME -->`; the text around it is written by hand.
tests/unit/tools/test_generate_docs.py holds the pages to what this would write.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import generate_cli_docs  # noqa: E402
import generate_client_docs  # noqa: E402
import generate_kip_docs  # noqa: E402
import generate_metrics_docs  # noqa: E402
import generate_python_docs  # noqa: E402
import generate_settings_docs  # noqa: E402
import generate_state_picture  # noqa: E402
import generate_suites_docs  # noqa: E402

from headrace.broker.handlers import SERVED, handler_of  # noqa: E402
from headrace.wire.apis import NAMES, request_class  # noqa: E402


def api_table() -> str:
    lines = ["| key | API | versions | in Kafka 4.4 | what it does |", "|---|---|---|---|---|"]
    for key in sorted(SERVED):
        handler = handler_of(key)
        low, high = handler.VERSIONS
        purpose = (handler.__doc__ or "").strip().splitlines()[0].partition(": ")[2].rstrip(".")
        name = "".join(word.capitalize() for word in NAMES[key].split("_"))
        oldest, newest = request_class(key).VERSIONS
        lines.append(f"| {key} | {name} | {low}-{high} | {oldest}-{newest} | {purpose} |")
    return "\n".join(lines) + "\n"


def unserved_apis() -> str:
    """Requests that we can read and write, as a client does, but do not answer."""
    names = (
        "".join(word.capitalize() for word in NAMES[key].split("_"))
        for key in sorted(set(NAMES) - set(SERVED))
    )
    return ", ".join(f"`{name}`" for name in names) + "\n"


def differences() -> str:
    """Tests that Apache Kafka passes and our broker does not, on purpose."""
    listed = tomllib.loads((ROOT / "tests" / "conformance" / "differences.toml").read_text())["difference"]
    lines = ["| the test | why we differ |", "|---|---|"]
    for one in listed:
        sentence = one["test"].partition("::test_")[2].partition("[")[0].replace("_", " ")
        lines.append(f"| {sentence} | {one['reason']} |")
    return "\n".join(lines) + "\n"


PARTS = {
    "docs/reference/apis.md": {"apis": api_table},
    "docs/reference/cli.md": {
        "connection": generate_cli_docs.connection_options,
        "commands": generate_cli_docs.commands,
    },
    "docs/reference/client-settings.md": {
        "client": generate_client_docs.client_settings,
        "share": generate_client_docs.share_settings,
        "producer": generate_client_docs.producer_settings,
        "refused-producer": generate_client_docs.refused_producer_settings,
        "refused": generate_client_docs.refused_settings,
    },
    "docs/how-to/spark.md": {"options": generate_client_docs.spark_options},
    "docs/reference/client-errors.md": {"errors": generate_client_docs.client_errors},
    "docs/reference/kips.md": {"kips": generate_kip_docs.kip_table},
    "docs/reference/python.md": {"names": generate_python_docs.python_names},
    "docs/reference/suites.md": {
        "overview": generate_suites_docs.overview,
        "details": generate_suites_docs.details,
    },
    "docs/concepts/headrace-and-kafka.md": {"unserved": unserved_apis, "differences": differences},
    "docs/reference/metrics.md": {
        "broker": generate_metrics_docs.broker_table,
        "sampled": generate_metrics_docs.sampled_table,
        "worker": generate_metrics_docs.worker_table,
        "spark": generate_metrics_docs.spark_table,
        "missing": generate_metrics_docs.missing_table,
    },
}


def render(page: str) -> str:
    text = (ROOT / page).read_text()
    for name, make in PARTS[page].items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"{page} has no place for {name}"
        text = before + begin + make() + end + after
    return text


def main() -> None:
    generate_settings_docs.TARGET.write_text(generate_settings_docs.render())
    generate_state_picture.TARGET.write_text(generate_state_picture.render())
    for page in PARTS:
        (ROOT / page).write_text(render(page))
    print(
        f"wrote {generate_settings_docs.TARGET.name}, {generate_state_picture.TARGET.name}, "
        + ", ".join(PARTS)
    )


if __name__ == "__main__":
    main()
