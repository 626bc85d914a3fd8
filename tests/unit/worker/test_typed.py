"""Several tasks on one topic: which one a record is for, and what cannot be declared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.worker import Backoff, Batch, Queue, QueueError
from headrace.worker.outcomes import BodyError
from headrace.worker.typed import TypedTasks, type_of


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="orders") as queue:
        yield queue


def number(body: int) -> None: ...


def text(body: str) -> None: ...


def other(body: bytes) -> None: ...


def header(kind: str | bytes | None):
    return "headrace.type", kind.encode() if isinstance(kind, str) else kind


class TestDispatch:
    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
    def test_a_record_goes_to_the_task_of_its_type_and_others_to_the_one_without(self, queue, order):
        kinds = (("number", number), ("text", text), (None, other))
        declared = {kinds[n][0]: queue.task("orders", type=kinds[n][0])(kinds[n][1]) for n in order}
        tasks = queue.tasks["orders"]

        assert tasks.codec.read(b"7", [header("number")]) == (declared["number"], 7)
        assert tasks.codec.read(b"7", [header("text")]) == (declared["text"], "7")
        assert tasks.codec.read(b"7", [header("unknown")]) == (declared[None], b"7")
        assert tasks.codec.read(b"7", []) == (declared[None], b"7")
        assert tasks.name_for([header("text")]) == declared["text"].name
        assert set(tasks.members) == set(declared.values())

    def test_without_such_a_task_a_record_of_unknown_type_is_unreadable(self, queue):
        queue.task("orders", type="number")(number)
        queue.task("orders", type="text")(text)
        tasks = queue.tasks["orders"]

        with pytest.raises(
            BodyError, match="has the type 'new', and topic 'orders' has no task for it; its types"
        ):
            tasks.codec.read(b"7", [header("new")])
        with pytest.raises(
            BodyError, match=r"has no header headrace.type, .* its types are 'number', 'text'"
        ):
            tasks.codec.read(b"7", [("other", b"x"), header(None)])
        assert tasks.name_for([]) == "orders.types"

    @given(
        st.lists(
            st.sampled_from(
                [header(b"number"), header("text"), header(None), header(b"\xff"), ("x", b"number")]
            )
        )
    )
    def test_the_last_type_counts(self, headers):
        with Queue("localhost:1", group_id="orders") as queue:
            declared = {
                "number": queue.task("orders", type="number")(number),
                None: queue.task("orders")(other),
            }
            tasks = queue.tasks["orders"]
            assert isinstance(tasks, TypedTasks)
            given = [value for name, value in headers if name == "headrace.type" and value is not None]
            wanted = "number" if given and given[-1] == b"number" else None
            assert tasks.find(headers) is declared[wanted]
            assert (type_of(headers) is None) == (not given)


class TestDeclarations:
    def test_two_tasks_of_one_type_are_refused(self, queue):
        queue.task("orders", type="number")(number)
        with pytest.raises(QueueError, match=r"has a task already, .*number: .* give each task a type="):
            queue.task("orders", type="number")(text)
        queue.task("orders")(other)
        with pytest.raises(QueueError, match="has a task already"):
            queue.task("orders")(text)

    def test_options_are_those_of_the_topic_but_for_the_pool(self, queue):
        queue.task("orders", type="number", concurrency=4, retries=Backoff(first=2))(number)
        queue.task("orders", type="text", concurrency=4, retries=Backoff(first=2), pool="process")(text)
        with pytest.raises(
            QueueError, match="concurrency must be 4 as in another task of topic 'orders', got 16"
        ):
            queue.task("orders")(other)
        assert len(queue.tasks["orders"].members) == 2

    def test_batches_have_their_topic_alone(self, queue):
        def bulk(bodies: list[int]) -> None: ...

        with pytest.raises(
            ValueError, match="type must be omitted with batch=, which needs a topic of its own"
        ):
            queue.task("orders", type="number", batch=Batch())(bulk)
        queue.task("orders", batch=Batch())(bulk)
        with pytest.raises(QueueError, match="has a task already"):
            queue.task("orders", type="number")(number)

    @pytest.mark.parametrize("kind", ["", 7, b"x"])
    def test_a_type_is_a_text(self, queue, kind):
        with pytest.raises(ValueError, match=r"type must be a non-empty string or None, got"):
            queue.task("orders", type=kind)(number)
