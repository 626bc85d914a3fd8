"""Effects exactly once in the user's database: the inbox, the outbox and unique tasks.

Theory of operation. A task with `once=` runs in a transaction of the user's database. Its first statement inserts a row
for the record into the inbox; then come the function's own statements, then the commit, then the acceptance. A record
that is delivered again finds its row and is only accepted. Two runs at the same time cannot both insert the row: the
second one waits until the first one's transaction has ended.

A row can be deleted when the group's start offset is past its record. The same transaction raises the partition's
start in `headrace_inbox_start`, and a run that begins later than that sees it: a worker that was suspended for hours
does not run a record whose row is gone.

Copies of a record (a dead letter, a retry in a day) must not be written for a record that was run, nor be written by a
worker that then loses the record to another one. So they go through the outbox: one transaction inserts the inbox row,
which settles the record for good, and the copy. A relay sends what is in the outbox, at least once; the header
`headrace.id` lets tasks with `once=` recognize a record that was sent twice.

`statements.py` has all the SQL, as steps that any driver can run. A `Database` runs them in a transaction.
"""
