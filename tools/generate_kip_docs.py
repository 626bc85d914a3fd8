"""Which Kafka Improvement Proposals are supported, by the tests that hold them up; for docs/reference/kips.md.

A test cites a proposal by its number, KIP-932, in its own text (name, docstring, comment) or in its module's docstring;
`KIPS` can also name whole folders, modules or single tests that are about a proposal without saying its number. The
page cannot be made, and `make docs` and the tests fail, when a proposal in `KIPS` has no test, when something named
there is no test, or when a test cites a proposal that is not in `KIPS`.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CITED = re.compile(r"KIP-(\d+)")
FILES_SHOWN = 3
BOTH_BROKERS = ("tests/conformance/", "tests/stories/")


class KipError(Exception):
    """The table and the tests do not agree."""


@dataclass(frozen=True, slots=True)
class Kip:
    brings: str
    here: str
    about: tuple[str, ...] = ()
    """Folders, modules or tests (`path::name`) that are about it, beside those that cite it."""
    is_in_oracle: bool = True
    """Whether the Apache Kafka of our tests has it."""


@dataclass(frozen=True, slots=True)
class FoundTest:
    path: str
    name: str
    cites: frozenset[int]

    @property
    def id(self) -> str:
        return f"{self.path}::{self.name}"


SHARE = "tests/conformance/share/"
TRANSACTIONS = "tests/unit/broker/transactions/test_handlers.py"
KIPS: dict[int, Kip] = {
    932: Kip(
        "share groups: queues on topics",
        "broker, client, admin, workers, Spark source",
        (SHARE, "tests/conformance/client/", "tests/unit/share/", "tests/property/test_share_partition.py"),
    ),
    1323: Kip("offsets of a share group from a file", "`headrace group reset`"),
    1319: Kip(
        "offsets in transactions, with topic IDs",
        "broker",
        ("tests/unit/broker/groups/test_kafka_4_4.py::test_topics_are_named_by_id",),
        is_in_oracle=False,
    ),
    1242: Kip(
        "clients notice that an address has passed to another cluster",
        "broker",
        (
            "tests/unit/broker/groups/test_kafka_4_4.py::test_a_client_that_expects_another_broker_must_bootstrap_again",
        ),
        is_in_oracle=False,
    ),
    1206: Kip("`record_limit`: never more records than asked for", "broker, client"),
    1222: Kip("RENEW: a lock's time starts anew", "broker, client; `auto_renew` is ours"),
    1226: Kip(
        "the lag of share groups",
        "broker, admin",
        (
            f"{SHARE}test_admin.py::test_lag_is_known_from_the_first_acknowledgement_on",
            "tests/conformance/client_admin/test_share_offsets.py::test_start_end_and_lag_are_shown",
        ),
    ),
    1240: Kip("limits as configs of each share group", "broker"),
    1263: Kip(
        "assignments computed at most once in an interval",
        "broker",
        (f"{SHARE}test_membership.py::test_a_new_group_has_its_assignment_after_the_assignment_interval",),
    ),
    1191: Kip(
        "dead-letter queues of share groups (Kafka 4.4)",
        "broker; workers write the same headers on any broker",
        ("tests/unit/broker/share/test_dead_letters.py", "tests/crash/test_share.py"),
        is_in_oracle=False,
    ),
    848: Kip("consumer groups by heartbeats, assigned by the broker", "broker"),
    1082: Kip("members of such groups choose their own ids", "broker, client"),
    1251: Kip(
        "a commit of an older epoch is good for partitions held since",
        "broker",
        (
            "tests/unit/broker/groups/test_offset_requests.py"
            "::test_a_commit_from_an_older_epoch_is_good_for_partitions_held_since",
        ),
    ),
    1043: Kip("groups of all kinds in one administration", "broker, admin"),
    518: Kip(
        "groups listed by state",
        "broker, admin",
        ("tests/unit/broker/groups/test_share_types.py::test_share_groups_are_listed_by_state_and_type",),
    ),
    345: Kip("static members of classic groups", "broker"),
    814: Kip("a static leader that comes back need not assign anew", "broker"),
    98: Kip("idempotent producers and transactions", "broker"),
    360: Kip("producers that get a new epoch instead of failing", "broker"),
    890: Kip("an epoch for each transaction", "broker"),
    994: Kip("long transactions listed", "broker", (f"{TRANSACTIONS}::test_by_duration",)),
    1152: Kip(
        "transactions listed by a pattern of their id",
        "broker",
        (f"{TRANSACTIONS}::test_by_pattern_of_the_whole_id",),
    ),
    227: Kip("fetch sessions: only what changed is asked and answered", "broker"),
    74: Kip("a batch larger than the limit still comes", "broker"),
    110: Kip("zstd", "broker, client"),
    534: Kip(
        "tombstones stay for `delete.retention.ms` after compaction",
        "broker",
        ("tests/unit/log/test_compaction.py::test_a_tombstone_stays_for_its_time_and_then_goes",),
    ),
    595: Kip(
        "a fetch that knows another history is told where they part", "broker; no quorum of controllers"
    ),
    511: Kip("clients say their name and version, and learn the broker's versions", "broker, client"),
    951: Kip("a new leader is named in the refusal", "client"),
}


def tests_of(path: str, text: str) -> Iterator[FoundTest]:
    """Every test function of a module, with the proposals that it or its module's docstring cites."""
    module = ast.parse(text)
    lines = text.splitlines()
    shared = _cited(ast.get_docstring(module) or "")
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
            yield FoundTest(path, node.name, shared | _cited("\n".join(lines[first : node.end_lineno])))


def all_tests(root: Path = ROOT) -> list[FoundTest]:
    return [
        test
        for path in sorted((root / "tests").rglob("test_*.py"))
        if path.name != "test_generate_kip_docs.py"  # its examples are no citations
        for test in tests_of(path.relative_to(root).as_posix(), path.read_text())
    ]


def render_table(kips: dict[int, Kip], tests: Iterable[FoundTest]) -> str:
    tests = list(tests)
    unknown = {number: test.id for test in tests for number in test.cites if number not in kips}
    if unknown:
        raise KipError(f"cited by tests, but not in the table of tools/generate_kip_docs.py: {unknown}")
    lines = [
        "| KIP | what it brings | where it is here | tests | on Apache Kafka too |",
        "|---|---|---|---|---|",
    ]
    for number, kip in sorted(kips.items(), key=lambda item: (item[0] != 932, -item[0])):
        found = _holding_up(number, kip, tests)
        is_on_both = kip.is_in_oracle and any(test.path.startswith(BOTH_BROKERS) for test in found)
        both = "yes" if is_on_both else "no" if kip.is_in_oracle else "no: 4.3 lacks it"
        lines.append(f"| KIP-{number} | {kip.brings} | {kip.here} | {_places(kip, found)} | {both} |")
    return "\n".join(lines) + "\n"


def _holding_up(number: int, kip: Kip, tests: list[FoundTest]) -> list[FoundTest]:
    found = [test for test in tests if number in test.cites]
    for place in kip.about:
        named = [test for test in tests if test.id == place or test.path == place]
        named += [test for test in tests if place.endswith("/") and test.path.startswith(place)]
        if not named:
            raise KipError(f"KIP-{number} names {place}, which is no test")
        found += named
    if not found:
        raise KipError(f"KIP-{number} has no test: no test cites it, and the table names none")
    return found


def _places(kip: Kip, found: list[FoundTest]) -> str:
    folders = [place for place in kip.about if place.endswith("/")]
    files = sorted({test.path for test in found if not test.path.startswith(tuple(folders))})
    shown = [f"`{place.removeprefix('tests/')}`" for place in [*folders, *files]]
    more = len(shown) - FILES_SHOWN
    return ", ".join(shown[:FILES_SHOWN]) + (" and others" if more > 0 else "")


def _cited(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in CITED.findall(text))


def kip_table() -> str:
    return render_table(KIPS, all_tests())
