"""What the APIs of the share coordinator (83-87) have in common: partitions of one group, each with its answer."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from headrace.broker.later import Later, resolved, when_all
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.share_state import ShareKey


class AskedPartition(Protocol):
    @property
    def partition(self) -> int: ...


P = TypeVar("P", bound=AskedPartition)
P_co = TypeVar("P_co", bound=AskedPartition, covariant=True)
R = TypeVar("R")


class AskedTopic(Protocol[P_co]):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[P_co]: ...


def answer_each(
    group_id: str,
    topics: Sequence[AskedTopic[P]],
    act: Callable[[ShareKey, P], Later[R]],
    refused: Callable[[int, KafkaError], R],
) -> Later[list[tuple[bytes, list[R]]]]:
    """The answers by topic, once all of them are durable. A request without a group has, as in Kafka, no answers."""
    if not group_id:
        return resolved([])

    def answer(topic_id: bytes, asked: P) -> Later[R]:
        try:
            if asked.partition < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
            return act(ShareKey(group_id, topic_id, asked.partition), asked)
        except KafkaError as error:
            return resolved(refused(asked.partition, error))

    def answer_topic(topic: AskedTopic[P]) -> Later[tuple[bytes, list[R]]]:
        answers = [answer(topic.topic_id, partition) for partition in topic.partitions]
        return when_all(answers).map(lambda results: (topic.topic_id, results))

    return when_all([answer_topic(topic) for topic in topics])
