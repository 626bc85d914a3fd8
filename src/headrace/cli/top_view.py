"""What `headrace top` shows of all there is: the order, the filter, how far it is scrolled.

q quit   s next order   / filter (Enter keeps it, Esc drops it)   arrows, j k, PgUp PgDn, g G scroll
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.web.model import GroupRow

UP, DOWN, PAGE_UP, PAGE_DOWN, ESCAPE, BACKSPACE = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b", "\x7f"
ENTER = ("\r", "\n")
FILTER_MAX = 100
KEYS = "q quit  s sort  / filter  j k PgUp PgDn scroll"

Order = Callable[["GroupRow"], tuple[float | str, ...]]
ORDERS: dict[str, Order] = {
    "trouble": lambda group: (),
    "lag": lambda group: (-(group.lag or 0), group.group_id),
    "oldest": lambda group: (-(group.oldest_age_s or 0.0), group.group_id),
    "rate": lambda group: (-(group.rate_done or 0.0), group.group_id),
    "name": lambda group: (group.group_id,),
}
"""The sampler's own order is by trouble."""


@dataclass(slots=True)
class TopView:
    order: str = "trouble"
    filter: str = ""
    is_typing: bool = False
    """The filter is being typed."""
    first: int = 0
    """The first row that is shown."""
    is_done: bool = False

    def press(self, key: str, *, page: int) -> None:
        if self.is_typing:
            self._type(key)
            return
        match key:
            case "q" | "Q":
                self.is_done = True
            case "s":
                names = list(ORDERS)
                self.order = names[(names.index(self.order) + 1) % len(names)]
                self.first = 0
            case "/":
                self.is_typing, self.filter, self.first = True, "", 0
            case "\x1b":
                self.filter, self.first = "", 0
            case _:
                self._scroll(key, page)

    def _scroll(self, key: str, page: int) -> None:
        steps = {UP: -1, "k": -1, DOWN: 1, "j": 1, PAGE_UP: -page, PAGE_DOWN: page, " ": page}
        if key == "g":
            self.first = 0
        elif key == "G":
            self.first = 1 << 30
        else:
            self.first = max(0, self.first + steps.get(key, 0))

    def _type(self, key: str) -> None:
        if key in ENTER:
            self.is_typing = False
        elif key == ESCAPE:
            self.is_typing, self.filter = False, ""
        elif key in (BACKSPACE, "\b"):
            self.filter = self.filter[:-1]
        elif key.isprintable() and len(self.filter) < FILTER_MAX:
            self.filter += key

    def choose(self, groups: "Sequence[GroupRow]") -> "list[GroupRow]":
        """Those that the filter lets through, in order."""
        wanted = self.filter.lower()
        return sorted((one for one in groups if wanted in one.group_id.lower()), key=ORDERS[self.order])

    def page(self, groups: "Sequence[GroupRow]", size: int) -> "tuple[list[GroupRow], int]":
        """The rows that are shown, and how many there are in all. Scrolling stops at the last page."""
        chosen = self.choose(groups)
        self.first = max(0, min(self.first, len(chosen) - size))
        return chosen[self.first : self.first + size], len(chosen)


def split_keys(text: str) -> list[str]:
    """What came from the terminal: single characters, and the sequences of arrows and pages as one."""
    keys = []
    while text:
        known = (UP, DOWN, PAGE_UP, PAGE_DOWN)
        key = next((one for one in known if text.startswith(one)), text[0])
        keys.append(key)
        text = text[len(key) :]
    return keys
