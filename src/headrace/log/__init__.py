"""What is on disk: one log for each topic-partition, in Apache Kafka's own files.

- Disk (`disk`, `memory_disk`): where bytes are kept; a folder, or memory that can lose power.
- LogManager (`manager`): a data directory with its lock, its logs and group commit.
- PartitionLog (`partition_log`): a list of segments; appends, and all else that moves its ends.
- LogReader (`reading`): reads.
- Segment (`segment`): a file of record batches with its sparse indexes.
- Producer (`producers`): what a log remembers of an idempotent producer, and its open transaction.
- Metadata (`metadata`): topics, ids and settings, in SQLite.
"""
