"""A transactional producer's identity, for batches that coordinators write on its behalf."""

from typing import NamedTuple


class ProducerIdAndEpoch(NamedTuple):
    id: int
    epoch: int
