"""The Spark source, from the broker to the sink and back: `--path spark`.

Theory of operation. The real source (`ShareStreamReader`, and behind it driver, ledger, acquirer, outcome log, the log
of what is accepted ahead, and the tasks' reading) runs without Spark and without a JVM. `query.py` stands for Spark: it
makes the calls that Spark makes, in its order, and writes the offset log and the commit log as Spark does (`log.py`).
Driver and executors are processes of their own (`node.py`) on the machines of `tests/simulation/path`; where the source
waits in a thread, a greenlet does (`threads.py`). Checkpoints are real files, with a memory of what was synced
(`files.py`): a power cut takes the rest.

A query is stopped and killed at any point, comes back in another mode or with other topics, has one source or two,
micro-batches without data, tasks that are lost, repeated or run twice, a function that takes longer than a lock and
decides about single records or always fails on some, and a checkpoint that is copied, or loses files of ours or the
newest entries of the offset log. Its group is reset, or deleted and made again, while the query is stopped or while the
group takes it for dead. The faults of network and broker are those of the other simulations.

The model (`model.py`) has the promises. In the end each query comes back in calm, does what is left, and each record is
counted.

Left to other tests: topics that are deleted, emptied or compacted, object stores, and what Spark itself does
(`tests/spark`).
"""
