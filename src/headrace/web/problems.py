"""What went wrong, as an HTTP status and a sentence: one table for pages and API alike."""

import msgspec

from headrace.web.site import NotThere, TooLate
from headrace.wire.errors import ErrorCode, KafkaError

STATUSES: dict[ErrorCode, int] = {
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.INVALID_PARTITIONS: 400,
    ErrorCode.INVALID_REPLICATION_FACTOR: 400,
    ErrorCode.INVALID_RECORD_STATE: 409,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_CONFIG: 400,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.INVALID_GROUP_ID: 400,
    ErrorCode.UNSUPPORTED_VERSION: 501,
}
EXPECTED = (KafkaError, NotThere, TooLate, msgspec.ValidationError, msgspec.DecodeError, ValueError, OSError)


def status_of(error: Exception) -> int:
    if isinstance(error, NotThere):
        return 404
    if isinstance(error, TooLate):
        return 409
    if isinstance(error, (ConnectionError, TimeoutError)):
        return 503
    if isinstance(error, KafkaError):
        return STATUSES.get(error.code, 502)
    return 400


def sentence_of(error: Exception) -> str:
    return str(error) or type(error).__name__
