"""Every API with every permission and with each of them missing: our answers are those that Apache Kafka gave.

`answers.json` has what Apache Kafka answered (record.py); the test on Apache Kafka shows that it still does.
"""

import json

import pytest

from headrace.broker.handlers import SERVED
from headrace.broker.security.needs import NEEDS
from headrace.wire.apis import NAMES
from tests.conformance.access.record import ANSWERS
from tests.conformance.access.rows import ROWS
from tests.conformance.access.site import CASES, Site

EXPECTED = json.loads(ANSWERS.read_text())
WITHOUT_PERMISSIONS = {"sasl_handshake", "sasl_authenticate"}
"""Log-in itself."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_api_answers_as_recorded(site: Site, case: object) -> None:
    assert site.ask(case) == EXPECTED[case.name]  # type: ignore[arg-type, attr-defined]


def test_alter_share_group_offsets_tells_the_id_of_a_topic_that_it_refuses(site: Site) -> None:
    (case,) = (case for case in CASES if case.name == "alter_share_group_offsets v0, no READ topic")
    topics = {topic["topic_name"]: topic["topic_id"] for topic in site.told(case)["responses"]}
    assert topics == {"{topic}": "{topic_id}", "{hidden}": "{hidden_id}", "{missing}": "none"}


def test_every_api_that_is_served_has_rules_and_a_case() -> None:
    served = {NAMES[key] for key in SERVED}
    assert served <= NEEDS.keys()
    assert served - WITHOUT_PERMISSIONS == {row.api for row in ROWS} & served
    assert {case.name for case in CASES} <= EXPECTED.keys()
