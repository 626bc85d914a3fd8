"""Which known name was meant by one that nobody knows."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that is most like this one, or None if none is like it."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return found[0] if found else None
