"""A broken promise. A BaseException, so that no handler of the broker takes it for an error of its own."""


class Violation(BaseException):
    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what}: {detail}")
        self.what = what
        """The promise in a few words: shrinking looks for the same one."""
        self.detail = detail
