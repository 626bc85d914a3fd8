"""What parts of the broker refuse, in the error codes that clients get."""

from headrace.share import errors
from headrace.share.errors import ShareError
from headrace.wire.errors import ErrorCode, KafkaError

ENGINE_CODES: dict[type[ShareError], ErrorCode] = {
    errors.CorruptState: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.GroupMaxSizeReached: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.InvalidRecordState: ErrorCode.INVALID_RECORD_STATE,
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.InvalidSessionEpoch: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    errors.SessionLimitReached: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    errors.SessionNotFound: ErrorCode.SHARE_SESSION_NOT_FOUND,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
}
"""What the share engine refuses. A test holds it complete."""
JOURNAL_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""When a coordinator's own topic refuses an append, as in Kafka: clients look for the coordinator again."""
SHARE_STATE_CODES = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.KAFKA_STORAGE_ERROR,  # the state topic is damaged there
}
"""When the share coordinator refuses a share-partition's state. Anything else is UNKNOWN_SERVER_ERROR."""


def engine_error(error: ShareError) -> KafkaError:
    return KafkaError(ENGINE_CODES[type(error)], str(error))


def journal_error(error: KafkaError) -> KafkaError:
    return KafkaError(JOURNAL_CODES.get(error.code, error.code), error.message)


def share_state_error(error: KafkaError) -> KafkaError:
    code = SHARE_STATE_CODES.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return KafkaError(code, "Error in write state RPC. " + (error.message or error.code.name))
