"""Several tasks on one topic, on Headrace's broker and on Apache Kafka."""

from collections import Counter

from tests.conformance.worker.test_worker import read


def test_records_of_one_topic_find_their_tasks(queue, work, broker, unique):
    seen: Counter[str] = Counter()

    @queue.task(unique, type="number", dead_letter=f"{unique}.dead")
    async def number(body: int) -> None:
        seen[f"number {body}"] += 1

    @queue.task(unique, type="text", dead_letter=f"{unique}.dead")
    def text(body: str) -> None:
        seen[f"text {body}"] += 1

    for each in range(10):
        number.send(each, key=str(each))
        text.send(str(each), key=str(each))
    queue.send(unique, b"nobody's", headers={"headrace.type": "new"})
    work(queue).wait_for(succeeded=20, dead_lettered=1)

    assert seen == Counter([f"number {each}" for each in range(10)] + [f"text {each}" for each in range(10)])
    (letter,) = read(broker.bootstrap_servers, f"{unique}.dead", 1)
    assert (letter["headrace.type"], letter["headrace.dlq.cause"]) == ("new", "unreadable")
