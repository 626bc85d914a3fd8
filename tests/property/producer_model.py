"""A model of Kafka's brokers for a producer: what they write, refuse, forget and answer late.

The rules for sequence numbers are those of Kafka's `ProducerAppendInfo`: a producer that a partition does not know may
begin anywhere, a new epoch begins at 0, and the last five batches are known again. A restart keeps only the last one,
as Kafka's snapshots do.
"""

from dataclasses import dataclass, field

from headrace.client.producing.core import Result
from headrace.wire.batches import SEQUENCE_MAX, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import read_records

KNOWN_MAX = 5
SIZE_MAX = 400


@dataclass
class Known:
    """What a partition knows of a producer."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First sequence, last sequence, base offset."""


class ModelPartition:
    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.producers: dict[int, Known] = {}

    def append(self, batch: bytes) -> Result:
        header = read_header(batch)
        if len(batch) > SIZE_MAX:
            return Result(ErrorCode.MESSAGE_TOO_LARGE)
        if header.producer_id >= 0:
            refusal = self._check(header.producer_id, header.producer_epoch, header.base_sequence, header)
            if refusal is not None:
                return refusal
        base_offset = len(self.log)
        self.log += [record.value or b"" for record in read_records(batch)]
        if header.producer_id >= 0:
            known = self.producers.get(header.producer_id)
            if known is None or known.epoch != header.producer_epoch:
                known = self.producers[header.producer_id] = Known(header.producer_epoch)
            known.batches.append((header.base_sequence, header.last_sequence, base_offset))
            del known.batches[:-KNOWN_MAX]
        return Result(0, None, base_offset)

    def _check(self, producer_id: int, epoch: int, first: int, header: object) -> Result | None:
        known = self.producers.get(producer_id)
        if known is None:
            return None
        if epoch < known.epoch:
            return Result(ErrorCode.INVALID_PRODUCER_EPOCH)
        if epoch > known.epoch:
            return None if first == 0 else Result(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        for low, high, offset in known.batches:
            if (low, high) == (first, header.last_sequence):  # type: ignore[attr-defined]
                return Result(0, None, offset)
        if known.batches and first != (known.batches[-1][1] + 1) & SEQUENCE_MAX:
            return Result(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return None

    def restart(self) -> None:
        for known in self.producers.values():
            del known.batches[:-1]


class ModelCluster:
    """Partitions 0 to n - 1 of topic "t", each led by one of the nodes; the log is the same on all of them."""

    def __init__(self, partitions: int, nodes: int) -> None:
        self.partitions = [ModelPartition() for _ in range(partitions)]
        self.leaders = {index: index % nodes for index in range(partitions)}
        self.producer_ids = 100

    def new_producer_id(self) -> int:
        self.producer_ids += 1
        return self.producer_ids

    def produce(
        self, node: int, batches: dict[int, bytes], refusal: int = 0
    ) -> dict[tuple[str, int], Result]:
        """`refusal` is an error that every partition of the request gets, after or instead of the append."""
        results = {}
        for index, batch in batches.items():
            if self.leaders[index] != node:
                results["t", index] = Result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif refusal in (0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT):
                result = self.partitions[index].append(batch)
                results["t", index] = result if result.code or not refusal else Result(refusal)
            else:
                results["t", index] = Result(refusal)
        return results
