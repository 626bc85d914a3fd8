"""What a queue raises to the program around it."""


class QueueError(Exception):
    """A queue cannot do what it was asked; the text says why and what to do."""


class SendError(QueueError):
    """A record was not acknowledged. It may still have been written when the text speaks of time: sending it again may
    write it twice."""
