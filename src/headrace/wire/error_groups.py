"""What error codes have in common: the one table of what passes by itself, and of who has moved.

Each code stands in one row, and larger groups are made of smaller ones.
"""

from headrace.wire.errors import ErrorCode as E

COORDINATOR_MOVED = frozenset({E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE})
"""To be looked up anew."""
COORDINATOR_PASSING = COORDINATOR_MOVED | {E.COORDINATOR_LOAD_IN_PROGRESS}
"""The coordinator will be there in a moment, here or elsewhere. What it was asked to write, it has not written."""
UNREACHABLE = frozenset({E.REQUEST_TIMED_OUT, E.BROKER_NOT_AVAILABLE, E.NETWORK_EXCEPTION})
"""Nobody knows whether the broker has done it."""
LEADER_MOVED = frozenset({E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH})
UNKNOWN_TOPIC = frozenset({E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID})
"""Passes for a topic that was created just now, and not for one that is not there."""
PASSING = (
    COORDINATOR_PASSING
    | UNREACHABLE
    | LEADER_MOVED
    | {
        E.LEADER_NOT_AVAILABLE,
        E.LISTENER_NOT_FOUND,
        E.NOT_CONTROLLER,
        E.OFFSET_NOT_AVAILABLE,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.UNKNOWN_LEADER_EPOCH,
        E.UNSTABLE_OFFSET_COMMIT,
    }
)
"""What an admin request is sent again for."""
RETRIABLE = (
    PASSING
    | UNKNOWN_TOPIC
    | {
        E.CONCURRENT_TRANSACTIONS,
        E.CORRUPT_MESSAGE,
        E.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        E.FETCH_SESSION_ID_NOT_FOUND,
        E.FETCH_SESSION_TOPIC_ID_ERROR,
        E.INCONSISTENT_TOPIC_ID,
        E.INVALID_FETCH_SESSION_EPOCH,
        E.INVALID_SHARE_SESSION_EPOCH,
        E.KAFKA_STORAGE_ERROR,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.PREFERRED_LEADER_NOT_AVAILABLE,
        E.REPLICA_NOT_AVAILABLE,
        E.SHARE_SESSION_LIMIT_REACHED,
        E.SHARE_SESSION_NOT_FOUND,
    }
)
"""The same request may well succeed a moment later: Java's RetriableException and its children.

But for ELECTION_NOT_NEEDED, which does not pass, and with BROKER_NOT_AVAILABLE, which clients here raise themselves.
"""
TOO_LARGE = frozenset({E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE})
"""A batch that the topic takes in smaller parts."""
