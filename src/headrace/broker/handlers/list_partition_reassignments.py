"""ListPartitionReassignments (46), v0: partitions on their way to other brokers. There are no others, so none."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from headrace.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
