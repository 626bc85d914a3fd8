"""Placement: a list of replicas is this node, or it is refused. The texts are held by the CreateTopics tests."""

import pytest

from headrace.broker.placement import check_assignment
from headrace.wire.errors import ErrorCode, KafkaError


def test_this_node_alone_is_taken() -> None:
    check_assignment([7], 7)


@pytest.mark.parametrize("broker_ids", [[], [1], [7, 7], [7, 8], [-1]])
def test_anything_else_is_refused(broker_ids: list[int]) -> None:
    with pytest.raises(KafkaError) as error:
        check_assignment(broker_ids, 7)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
