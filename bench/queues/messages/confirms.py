"""Publisher confirms, counted."""


class Confirms:
    """How many messages are confirmed. Confirms come in any order, for one message or for all up to one."""

    def __init__(self) -> None:
        self._all_up_to = 0
        self._above: set[int] = set()

    @property
    def count(self) -> int:
        return self._all_up_to + len(self._above)

    def add(self, tag: int, *, is_multiple: bool) -> None:
        if is_multiple:
            self._all_up_to = max(self._all_up_to, tag)
            self._above = {above for above in self._above if above > self._all_up_to}
        elif tag > self._all_up_to:
            self._above.add(tag)
        while self._all_up_to + 1 in self._above:
            self._all_up_to += 1
            self._above.remove(self._all_up_to)
