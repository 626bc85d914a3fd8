"""The queue's declaration: tasks stay callable, and what cannot be is refused before anything runs."""

import pytest

from headrace.client.errors import ConfigError
from headrace.worker import Backoff, Queue, QueueError, Task


@pytest.fixture
def queue():
    return Queue("localhost:9092", group_id="mailers")


def test_a_task_is_still_its_function(queue):
    @queue.task("emails")
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert isinstance(double, Task)
    assert double(21) == 42
    assert double.__doc__ == "Twice as much."
    assert double.topic == "emails"


def test_options_have_defaults_that_retry(queue):
    @queue.task("emails")
    async def send(body: bytes) -> None: ...

    assert send.options.retries == Backoff()
    assert send.options.dead_letter is None
    assert send.options.concurrency == 16


def test_a_topic_has_one_task(queue):
    @queue.task("emails")
    async def first(body: bytes) -> None: ...

    with pytest.raises(QueueError, match="'emails' has a task already"):

        @queue.task("emails")
        async def second(body: bytes) -> None: ...


def test_only_functions_are_tasks(queue):
    with pytest.raises(TypeError, match="declare a function"):
        queue.task("emails")(print)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"group_id": ""}, "group_id must be .*, got ''"),
        ({"group_id": "g", "start_from": "middle"}, "start_from must be .*, got 'middle'"),
        ({"group_id": "g", "drain_timeout": -1}, "drain_timeout must be .*, got -1"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(given, named):
    with pytest.raises(QueueError, match=named):
        Queue("localhost:9092", **given)


def test_settings_are_checked_when_the_queue_is_made():
    with pytest.raises(ConfigError, match="securty"):
        Queue("localhost:9092", group_id="g", settings={"securty.protocol": "SSL"})


def test_settings_may_be_given_in_either_spelling_and_the_later_wins():
    queue = Queue("localhost:9092", group_id="g", settings={"client.id": "a"}, client_id="b")

    queue.configure(bootstrap_servers="elsewhere:9093", settings={"client.id": "c"})

    assert queue.bootstrap_servers == "elsewhere:9093"


def test_a_queue_goes_back_to_where_it_was(queue):
    undo = queue.configure(bootstrap_servers="elsewhere:9093")
    undo()

    assert queue.bootstrap_servers == "localhost:9092"


def test_a_change_that_is_refused_changes_nothing(queue):
    with pytest.raises(ConfigError):
        queue.configure(bootstrap_servers="elsewhere:9093", settings={"retry.backoff.ms": "soon"})

    assert queue.bootstrap_servers == "localhost:9092"


def test_a_queue_without_tasks_does_not_run(queue):
    with pytest.raises(QueueError, match="has no tasks"):
        queue.run()


def test_a_queue_that_never_ran_has_no_metrics(queue):
    assert queue.metrics() == {}
