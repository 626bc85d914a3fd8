"""A part of other projects' suites that takes a minute or two; `make suites` runs all of them."""

import pytest

from tests.suites import apache, franz_go, python_suites
from tests.suites.apache import CLIENTS, CONSUMER, REQUESTS, TOOLS, Selection
from tests.suites.franz_go import Variant
from tests.suites.results import Outcome, SuiteRun, excused, excuses, stale

SHARE_TESTS = (
    "testAcknowledgementSentOnSubscriptionChange",
    "testControlRecordsSkipped",
    "testExplicitAcknowledgeReleaseAccept",
    "testMultipleConsumersInGroupSequentialConsumption",
    "testSubscribeAndPollNoRecords",
)
OTHER_CLASSES = (
    f"{CLIENTS}.TransactionsWithMaxInFlightOneTest",
    f"{CLIENTS}.admin.DynamicGroupConfigIntegrationTest",
    f"{CLIENTS}.producer.ProducerCompressionTest",
    f"{REQUESTS}.ShareGroupDescribeRequestTest",
    f"{TOOLS}.consumer.group.AuthorizerIntegrationTest",
)
GO_TESTS = (
    "TestConsumeRegex",
    "TestGroupSimple",
    "TestIssue523",
    "TestPing",
    "TestSCRAMAuth",
    "TestShareGroup",
    "TestShareGroupAckOnClose",
)


def check(run: SuiteRun, expected: int) -> None:
    assert [f"{one.id}: {one.reason}" for one in run.of(Outcome.FAILED)] == []
    assert len(run.of(Outcome.PASSED)) >= expected, run.results


@pytest.mark.needs_apache_tests
@pytest.mark.timeout(300)
def test_apache_kafkas_share_consumer_tests_pass() -> None:
    selected = tuple(f"{CONSUMER}.ShareConsumerTest#{name}" for name in SHARE_TESTS)
    check(apache.run(Selection("apache-share", selected, 4)), len(SHARE_TESTS))


@pytest.mark.needs_apache_tests
@pytest.mark.timeout(300)
def test_a_class_each_of_apache_kafkas_tests_of_other_kinds_passes() -> None:
    check(apache.run(Selection("apache-selected", OTHER_CLASSES, 4)), 8)


@pytest.mark.needs_franz_go
@pytest.mark.timeout(300)
def test_franz_gos_tests_of_share_groups_and_consumers_pass() -> None:
    selected = Variant("franz-go", tests=f"^({'|'.join(GO_TESTS)})$")
    check(franz_go.run(selected, minutes=4), len(GO_TESTS))


PYTHON_TESTS = {
    "kombu": "TestFailover or TestExchangeTypes or TestMessage or TestTimeToLive",
    "dramatiq": "test_callbacks or test_composition",
    "taskiq": "test_requeue or test_progress_tracker",
}


@pytest.mark.needs_python_suites
@pytest.mark.timeout(300)
@pytest.mark.parametrize("suite", python_suites.SUITES, ids=lambda suite: suite.suite)
def test_tests_of_other_task_frameworks_pass(suite: python_suites.PythonSuite) -> None:
    run = python_suites.run(suite, only=PYTHON_TESTS[suite.suite])
    assert stale(run, excuses()) == []
    check(excused(run, excuses()), 5)
