"""Order by key over few partitions: a task of ours with `key_order="strict"`, and Confluent's Parallel Consumer.

Both are one process that is a member of a consumer group, run records of different keys at the same time and those of
one key one after another, and keep what is finished out of order in the metadata of their commits. The driver (run.py)
gives them the same topic, the same number of runs at a time and the same work, on our broker and on Apache Kafka.

Every run of a record notes its number, when it began and when it ended in the *journal* (journal.py). A contest counts
only if every record ran once, no record of a key began before the one before it had ended, and nothing is left of the
group's lag when the process has ended.
"""
