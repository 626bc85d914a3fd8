"""Which node holds a partition: always this one. What is left is to refuse requests that ask for others."""

from collections.abc import Sequence

from headrace.wire.errors import ErrorCode, KafkaError


def check_assignment(broker_ids: Sequence[int], node_id: int) -> None:
    """Refuses, with Kafka's texts, a list of replicas that is not just this node."""
    if not broker_ids:
        raise _refusal("an empty replica list.")
    stranger = next((broker_id for broker_id in sorted(broker_ids) if broker_id != node_id), None)
    if stranger is not None:
        raise _refusal(f"broker {stranger}, but no such broker is registered.")
    if len(broker_ids) > 1:
        raise _refusal(f"the broker {node_id} more than once.")


def _refusal(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}"
    )
