"""The share-group engine: KIP-932 as pure rules, without I/O, clock, threads or logging.

The nouns:

- `SharePartition` (partition.py): one group's view of one topic partition: which records are in flight, who holds them.
- `Change`, `StartMoved` (changes.py): decided facts. `acquire`, `acknowledge`, `expire` ... *decide* and return them,
  mutating nothing; the broker journals them; `apply` makes them so, and never refuses. Recovery is `apply` again.
- `RecordState`, `Cause`, `TRANSITIONS` (states.py): the law, as one table.
- `RangeMap` (offsets.py): offset -> state, run-length encoded, on `BlockMap` (blocks.py).
- `ShareSessions` (session.py): who fetches which partitions, and the epochs that order their requests.
- `ShareGroup` (group.py), `assign` (assignor.py): who is a member and who is assigned what.
- `merge` (merge.py): what the share coordinator keeps of many persisted state batches.

Time comes in as `now_ms`, an instant on the caller's monotonic clock; `deadline_ms()` says when to call again.
"""
