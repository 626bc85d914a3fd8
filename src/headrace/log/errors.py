"""What a disk may refuse without being broken."""

import errno

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FILES_USED_UP = frozenset({errno.EMFILE, errno.ENFILE})
REFUSALS = FULL | FILES_USED_UP
"""Nothing was lost, and it may be tried again."""


def cure_of(error: BaseException | None) -> str:
    """What the reader of the log can do about a refused write."""
    if isinstance(error, OSError) and error.errno in FILES_USED_UP:
        return "Allow the broker more open files (ulimit -n, LimitNOFILE)"
    return "Free space on the disk"
