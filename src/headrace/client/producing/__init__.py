"""The producer: pure rules (`batch.py`, `queue.py`, `core.py`, `transaction.py`) under one driver and two faces.

| word | meaning |
|---|---|
| entry | a record that `send` was called with, and the token that its caller waits by |
| batch | records of one partition that are sent, retried and acknowledged together |
| identity | producer id and epoch: a broker knows a retry by them and the batch's sequence number |
| outcome | what became of a batch, reported exactly once: an offset or an error |
| in doubt | sent, and no response came: the broker may have written the batch or not |
"""
