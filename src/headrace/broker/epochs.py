"""Leader epochs: a client that names the epoch it believes in is told when it is behind or ahead (KIP-320)."""

from headrace.log.partition_log import PartitionLog
from headrace.wire.errors import ErrorCode, KafkaError

NOT_GIVEN = -1


def check_leader_epoch(log: PartitionLog, epoch: int) -> None:
    if epoch == NOT_GIVEN or epoch == log.leader_epoch:
        return
    if epoch < log.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
