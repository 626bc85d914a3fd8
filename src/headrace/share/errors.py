"""What the engine refuses, as few named classes. It knows no Kafka error codes: the broker has one table for that."""


class ShareError(Exception):
    """The engine refused; nothing has changed. The message says what to do about it."""


class InvalidRequest(ShareError):
    """The request contradicts itself or the protocol: correct it, do not retry it."""


class InvalidRecordState(ShareError):
    """The member does not hold these records any more: drop them, they are or will be delivered again."""


class CorruptState(ShareError):
    """Persisted state that no share-partition can have written: reset the group's offsets for this partition."""


class SessionNotFound(ShareError):
    """There is no such share session here: open a new one with epoch 0."""


class InvalidSessionEpoch(ShareError):
    """The request is not the session's next one: open a new session with epoch 0."""


class SessionLimitReached(ShareError):
    """This broker holds as many share sessions as it may: try again later or raise group.share.max.share.sessions."""


class UnknownMember(ShareError):
    """The group has no such member (any more): join with epoch 0."""


class FencedMemberEpoch(ShareError):
    """The member's epoch is not the group's: give up the assignment and join with epoch 0."""


class GroupMaxSizeReached(ShareError):
    """The group is full: use fewer members or raise group.share.max.size."""
