"""What can go wrong, as exceptions: one class per Kafka error code that a client meets, each with its cure.

`except KafkaError` catches every answer of a broker and every failure to get one. `TABLE` is the one place that
says which class a code becomes and what its reader should do next; a code without a row becomes a plain
`BrokerError`. All of them survive pickling, because Spark carries them from its executors to its driver.
"""

from typing import Any

from headrace.wire.error_groups import RETRIABLE
from headrace.wire.errors import TEXTS, ErrorCode
from headrace.wire.errors import KafkaError as KafkaError  # for users of this module, too


class BrokerError(KafkaError):
    """A broker's answer that is an error. `code` and `message` are Kafka's, `about` names what was asked for."""

    def __init__(self, code: ErrorCode, message: str | None = None, about: str = "", cure: str = "") -> None:
        super().__init__(code, message)
        self.about = about
        self.cure = cure

    def __str__(self) -> str:
        sentence = self.message or TEXTS.get(self.code) or SENTENCES.get(self.code, "")
        said = f"{sentence.rstrip('.')} ({self.code.name})." if sentence else f"{self.code.name}."
        return " ".join(part for part in (f"{self.about}:" if self.about else "", said, self.cure) if part)

    def __reduce__(self) -> Any:
        return type(self), (self.code, self.message, self.about, self.cure)


class UnknownServerError(BrokerError): ...


class OffsetOutOfRangeError(BrokerError):
    """The offset is not in the log. `log_start_offset` is the first one that is, where the broker has said it."""

    log_start_offset: int = -1

    def __reduce__(self) -> Any:
        return (*super().__reduce__(), {"log_start_offset": self.log_start_offset})


class CorruptRecordError(BrokerError): ...


class UnknownTopicOrPartitionError(BrokerError): ...


class InvalidFetchSizeError(BrokerError): ...


class LeaderNotAvailableError(BrokerError): ...


class NotLeaderOrFollowerError(BrokerError): ...


class ReplicaNotAvailableError(BrokerError): ...


class RecordTooLargeError(BrokerError): ...


class CoordinatorLoadInProgressError(BrokerError): ...


class CoordinatorNotAvailableError(BrokerError): ...


class NotCoordinatorError(BrokerError): ...


class InvalidTopicError(BrokerError): ...


class NotEnoughReplicasError(BrokerError): ...


class InconsistentGroupProtocolError(BrokerError): ...


class InvalidGroupIdError(BrokerError): ...


class UnknownMemberIdError(BrokerError): ...


class AuthorizationError(BrokerError):
    """The principal may not do this. Ask for the ACL, or use other credentials."""


class TopicAuthorizationError(AuthorizationError): ...


class GroupAuthorizationError(AuthorizationError): ...


class ClusterAuthorizationError(AuthorizationError): ...


class AuthenticationError(BrokerError):
    """The broker and this client could not agree on who is who. Trying again does not help: correct the settings."""


class UnsupportedSaslMechanismError(AuthenticationError): ...


class IllegalSaslStateError(AuthenticationError): ...


class SaslAuthenticationError(AuthenticationError): ...


class UnsupportedVersionError(BrokerError): ...


class TopicExistsError(BrokerError): ...


class InvalidPartitionsError(BrokerError): ...


class InvalidReplicationFactorError(BrokerError): ...


class InvalidReplicaAssignmentError(BrokerError): ...


class InvalidConfigError(BrokerError): ...


class NotControllerError(BrokerError): ...


class InvalidRequestError(BrokerError): ...


class UnsupportedForMessageFormatError(BrokerError): ...


class PolicyViolationError(BrokerError): ...


class SecurityDisabledError(BrokerError): ...


class KafkaStorageError(BrokerError): ...


class NonEmptyGroupError(BrokerError): ...


class GroupIdNotFoundError(BrokerError): ...


class FetchSessionError(BrokerError): ...


class ListenerNotFoundError(BrokerError): ...


class TopicDeletionDisabledError(BrokerError): ...


class FencedLeaderEpochError(BrokerError): ...


class UnknownLeaderEpochError(BrokerError): ...


class UnsupportedCompressionTypeError(BrokerError): ...


class OffsetNotAvailableError(BrokerError): ...


class GroupMaxSizeReachedError(BrokerError): ...


class GroupSubscribedToTopicError(BrokerError): ...


class ThrottlingQuotaExceededError(BrokerError): ...


class ResourceNotFoundError(BrokerError): ...


class InvalidUpdateVersionError(BrokerError): ...


class FeatureUpdateFailedError(BrokerError): ...


class UnknownTopicIdError(BrokerError): ...


class InconsistentTopicIdError(BrokerError): ...


class FencedMemberEpochError(BrokerError): ...


class UnsupportedAssignorError(BrokerError): ...


class StaleMemberEpochError(BrokerError): ...


class InvalidRecordStateError(BrokerError): ...


class ShareSessionNotFoundError(BrokerError): ...


class InvalidShareSessionEpochError(BrokerError): ...


class FencedStateEpochError(BrokerError): ...


class RebootstrapRequiredError(BrokerError): ...


class ShareSessionLimitReachedError(BrokerError): ...


class OutOfOrderSequenceError(BrokerError): ...


class InvalidRecordError(BrokerError): ...


class TransactionError(BrokerError):
    """The transaction cannot go on. Abort it and begin another, unless the producer is fenced."""


class InvalidProducerEpochError(TransactionError): ...


class InvalidTransactionStateError(TransactionError): ...


class TransactionAbortableError(TransactionError): ...


class ConcurrentTransactionsError(TransactionError): ...


class InvalidTransactionTimeoutError(BrokerError): ...


class ProducerFencedError(TransactionError):
    """A newer producer has the same transactional.id. This one can only be closed."""


class TransactionalIdAuthorizationError(AuthorizationError): ...


class BufferFullError(TimeoutError):
    """There was no room in the producer's buffer within max.block.ms. The record was not sent."""


class SomeNotSentError(Exception):
    """Of several records some were not acknowledged. `sent` has the place of each, None for those."""

    def __init__(self, message: str, sent: Any = ()) -> None:
        super().__init__(message)
        self.sent = list(sent)

    def __reduce__(self) -> Any:
        return type(self), (*self.args, self.sent)


class BrokerNotAvailableError(BrokerError, ConnectionError):
    """No connection could be made, so nothing was sent. Check the address and whether the broker runs.

    `hung_up`: somebody was there and ended the talk before it began, as for a wrong security.protocol.
    """

    hung_up: bool = False


class ConnectionLost(BrokerError, ConnectionError):
    """The connection ended before the answer came. Whether the broker did what was asked is unknown.

    `hung_up`: it ended before anything was answered on it, as for a wrong security.protocol.
    """

    hung_up: bool = False


class RequestTimeoutError(BrokerError, TimeoutError):
    """No answer in time. Whether the broker did what was asked is unknown; its connection has been closed."""


class TlsError(AuthenticationError, ConnectionError):
    """TLS could not be agreed on: an untrusted certificate, a wrong host name, or no TLS at the other end."""


class ConfigError(ValueError):
    """A setting that cannot be used. The message names it, the value, and what may be set instead."""


class IllegalStateError(RuntimeError):
    """The call does not fit what the consumer is doing now. The message says what to call first."""


class ConcurrentModificationError(RuntimeError):
    """Two threads used one consumer at the same time. Only `wakeup` may come from another thread."""


class WakeupError(Exception):
    """`wakeup` was called: the waiting call ended early, and nothing is lost."""


class RecordDeserializationError(Exception):
    """A key or value that its deserializer refused. `delivery` is the record, with its raw bytes."""

    def __init__(self, message: str, delivery: Any = None) -> None:
        super().__init__(message)
        self.delivery = delivery


_LEADER = "The client finds the new leader by itself; try again."
_COORDINATOR = "The client finds the coordinator by itself; try again in a moment."
_REJOIN = "The member joins again by itself; its records go to other members."
_SESSION = "The client opens a new share session by itself; try again."
_ABORT = "Abort the transaction and begin another."
_FENCED = "Another producer uses the same transactional.id; close this one."
_ACL = "Grant it with `headrace acl add` or kafka-acls, or use credentials that have it."

TABLE: dict[ErrorCode, tuple[type[BrokerError], str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: (UnknownServerError, "The broker's own log says what went wrong."),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        OffsetOutOfRangeError,
        "Retention or delete-records removed the offset, or it is not written yet: read from the log's start.",
    ),
    ErrorCode.CORRUPT_MESSAGE: (
        CorruptRecordError,
        "The stored bytes are damaged: check the broker's disk; another replica may have them whole.",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        UnknownTopicOrPartitionError,
        "Create the topic, or correct its name or the partition; a topic made just now may need a moment.",
    ),
    ErrorCode.INVALID_FETCH_SIZE: (InvalidFetchSizeError, "Set fetch.max.bytes to more than 0."),
    ErrorCode.LEADER_NOT_AVAILABLE: (
        LeaderNotAvailableError,
        "The partition has no leader at the moment: wait for an election, or start its brokers.",
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (NotLeaderOrFollowerError, _LEADER),
    ErrorCode.REQUEST_TIMED_OUT: (
        RequestTimeoutError,
        "Try again. If it continues, raise request.timeout.ms or reduce the load of the broker.",
    ),
    ErrorCode.BROKER_NOT_AVAILABLE: (
        BrokerNotAvailableError,
        "Check bootstrap.servers, and whether the broker runs and can be reached from here.",
    ),
    ErrorCode.REPLICA_NOT_AVAILABLE: (ReplicaNotAvailableError, _LEADER),
    ErrorCode.MESSAGE_TOO_LARGE: (
        RecordTooLargeError,
        "Send less at once, or raise the topic's max.message.bytes.",
    ),
    ErrorCode.NETWORK_EXCEPTION: (
        ConnectionLost,
        "The client connects again by itself; whether the last request was done is unknown.",
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        CoordinatorLoadInProgressError,
        "The coordinator is starting; try again in a moment.",
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (CoordinatorNotAvailableError, _COORDINATOR),
    ErrorCode.NOT_COORDINATOR: (NotCoordinatorError, _COORDINATOR),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        InvalidTopicError,
        "A topic name has 1 to 249 letters, digits, dots, underscores and dashes; internal topics are Kafka's.",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        NotEnoughReplicasError,
        "Start the missing brokers, or lower min.insync.replicas.",
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        InconsistentGroupProtocolError,
        "The group id is in use by a group of another type: use another group.id.",
    ),
    ErrorCode.INVALID_GROUP_ID: (InvalidGroupIdError, "Give a group id that is not empty."),
    ErrorCode.UNKNOWN_MEMBER_ID: (UnknownMemberIdError, _REJOIN),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        TopicAuthorizationError,
        f"The principal needs READ (or what it wants to do) on the topic. {_ACL}",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        GroupAuthorizationError,
        f"The principal needs READ (or what it wants to do) on the group. {_ACL}",
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        ClusterAuthorizationError,
        f"The principal needs this right on the cluster. {_ACL}",
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: (
        UnsupportedSaslMechanismError,
        "Set sasl.mechanism to one that the listener has (its sasl.enabled.mechanisms).",
    ),
    ErrorCode.ILLEGAL_SASL_STATE: (
        IllegalSaslStateError,
        "The listener does not ask for SASL: set security.protocol to PLAINTEXT or SSL.",
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (
        SaslAuthenticationError,
        "Check sasl.username, sasl.password and sasl.mechanism.",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        UnsupportedVersionError,
        "Share groups need Kafka 4.2 or newer with the feature share.version at 1 or higher.",
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: (TopicExistsError, "Use the topic as it is, or another name."),
    ErrorCode.INVALID_PARTITIONS: (
        InvalidPartitionsError,
        "Give at least 1 partition; a topic can only gain partitions.",
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        InvalidReplicationFactorError,
        "Use at most as many replicas as the cluster has brokers.",
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        InvalidReplicaAssignmentError,
        "Name brokers of the cluster, each at most once for a partition.",
    ),
    ErrorCode.INVALID_CONFIG: (InvalidConfigError, "Correct the setting's name or value."),
    ErrorCode.NOT_CONTROLLER: (NotControllerError, "The client finds the controller by itself; try again."),
    ErrorCode.INVALID_REQUEST: (
        InvalidRequestError,
        "The broker takes the request for a fault in the client; its log may say more.",
    ),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        UnsupportedForMessageFormatError,
        "The log is in a format of before Kafka 0.11; write the records again.",
    ),
    ErrorCode.POLICY_VIOLATION: (
        PolicyViolationError,
        "The cluster's owner forbids it; ask for the policy's rules.",
    ),
    ErrorCode.SECURITY_DISABLED: (
        SecurityDisabledError,
        "Set authorizer.class.name on the brokers to use ACLs.",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: (
        KafkaStorageError,
        "The broker has a disk problem; see its log.",
    ),
    ErrorCode.NON_EMPTY_GROUP: (
        NonEmptyGroupError,
        "Stop the group's members first, or wait for their sessions to end.",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        GroupIdNotFoundError,
        "Check the group's name and type; a group exists once a member has joined it.",
    ),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: (FetchSessionError, _SESSION),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: (FetchSessionError, _SESSION),
    ErrorCode.LISTENER_NOT_FOUND: (
        ListenerNotFoundError,
        "The leader has no listener of this name: give every broker the same listeners.",
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: (
        TopicDeletionDisabledError,
        "Set delete.topic.enable=true on the brokers.",
    ),
    ErrorCode.FENCED_LEADER_EPOCH: (FencedLeaderEpochError, _LEADER),
    ErrorCode.UNKNOWN_LEADER_EPOCH: (UnknownLeaderEpochError, _LEADER),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        UnsupportedCompressionTypeError,
        "Use gzip, snappy, lz4, zstd or none.",
    ),
    ErrorCode.OFFSET_NOT_AVAILABLE: (
        OffsetNotAvailableError,
        "The leader is catching up after an election; try again in a moment.",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        GroupMaxSizeReachedError,
        "Stop members, or raise group.share.max.size on the brokers.",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        GroupSubscribedToTopicError,
        "Stop the group's members first, or unsubscribe them from the topic.",
    ),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (
        ThrottlingQuotaExceededError,
        "Try again later, or raise the quota.",
    ),
    ErrorCode.RESOURCE_NOT_FOUND: (ResourceNotFoundError, "Check the name."),
    ErrorCode.INVALID_UPDATE_VERSION: (
        InvalidUpdateVersionError,
        "Use a version within the range the brokers support.",
    ),
    ErrorCode.FEATURE_UPDATE_FAILED: (FeatureUpdateFailedError, "The controller's log says why."),
    ErrorCode.UNKNOWN_TOPIC_ID: (
        UnknownTopicIdError,
        "The topic was deleted, or created again with the same name: the client looks it up by itself; try again.",
    ),
    ErrorCode.INCONSISTENT_TOPIC_ID: (
        InconsistentTopicIdError,
        "The topic was created again with the same name: the client looks it up by itself; try again.",
    ),
    ErrorCode.FENCED_MEMBER_EPOCH: (FencedMemberEpochError, _REJOIN),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        UnsupportedAssignorError,
        "Use an assignor that the brokers have (group.share.assignors).",
    ),
    ErrorCode.STALE_MEMBER_EPOCH: (StaleMemberEpochError, _REJOIN),
    ErrorCode.INVALID_RECORD_STATE: (
        InvalidRecordStateError,
        "The lock on the record has ended, or it was acknowledged before: it may be delivered again. Work faster "
        "than share.record.lock.duration.ms, or renew.",
    ),
    ErrorCode.SHARE_SESSION_NOT_FOUND: (ShareSessionNotFoundError, _SESSION),
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: (InvalidShareSessionEpochError, _SESSION),
    ErrorCode.FENCED_STATE_EPOCH: (
        FencedStateEpochError,
        "The group's offsets have been changed; try again.",
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        RecordTooLargeError,
        "Send less at once, or raise the topic's segment.bytes.",
    ),
    ErrorCode.INVALID_RECORD: (
        InvalidRecordError,
        "The topic does not take the record: a compacted topic needs keys.",
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        InvalidRecordError,
        "The topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms bound the timestamp.",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        NotEnoughReplicasError,
        "Start the missing brokers, or lower min.insync.replicas.",
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        OutOfOrderSequenceError,
        "The broker no longer knows what this producer sent; read the end of the partition to see whether the records "
        "are there before you send them again.",
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: (
        OutOfOrderSequenceError,
        "The broker no longer knows this producer; read the end of the partition to see whether the records are there "
        "before you send them again.",
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: (InvalidProducerEpochError, _ABORT),
    ErrorCode.INVALID_TXN_STATE: (InvalidTransactionStateError, _ABORT),
    ErrorCode.TRANSACTION_ABORTABLE: (TransactionAbortableError, _ABORT),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (InvalidProducerEpochError, _FENCED),
    ErrorCode.PRODUCER_FENCED: (ProducerFencedError, _FENCED),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (ProducerFencedError, _FENCED),
    ErrorCode.CONCURRENT_TRANSACTIONS: (
        ConcurrentTransactionsError,
        "The last transaction of this transactional.id is still being ended; try again in a moment.",
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        InvalidTransactionTimeoutError,
        "Set transaction.timeout.ms to no more than the brokers' transaction.max.timeout.ms.",
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        TransactionalIdAuthorizationError,
        f"The principal needs WRITE on the transactional id. {_ACL}",
    ),
    ErrorCode.REBOOTSTRAP_REQUIRED: (
        RebootstrapRequiredError,
        "The client connects to bootstrap.servers again by itself.",
    ),
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: (
        ShareSessionLimitReachedError,
        "Stop consumers, or raise group.share.max.share.sessions on the brokers.",
    ),
}

SENTENCES: dict[ErrorCode, str] = {
    ErrorCode.REQUEST_TIMED_OUT: "No answer in time",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker cannot be reached",
    ErrorCode.NETWORK_EXCEPTION: "The connection was lost before the answer came",
    ErrorCode.INVALID_RECORD_STATE: "The record is not held by this member",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "The broker does not lead this partition",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is not within the log",
    ErrorCode.TOPIC_ALREADY_EXISTS: "The topic exists already",
    ErrorCode.CORRUPT_MESSAGE: "The records fail their checksum or cannot be read",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "The broker refused the credentials",
}
"""For answers that come without a sentence of the broker's, beside those of `wire.errors.TEXTS`."""


def error_for(code: int, message: str | None = None, *, about: str = "") -> BrokerError:
    """The exception for an error code, ready to raise; `about` names the subject (`group 'mailers'`)."""
    try:
        known = ErrorCode(code)
    except ValueError:
        text = f"error code {code}" + (f": {message}" if message else "")
        cure = "The broker is newer than this client knows; see Kafka's table of error codes."
        return UnknownServerError(ErrorCode.UNKNOWN_SERVER_ERROR, text, about, cure)
    kind, cure = TABLE.get(known, (BrokerError, ""))
    return kind(known, message, about, cure)


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed a moment later (Java's rule)."""
    return code in RETRIABLE
