"""The transaction coordinator: all partitions a producer wrote to in one transaction commit or abort
together.

states.py       which states a transaction passes through, as tables
machine.py      the rules: pure functions from a transaction to the next one, or to Kafka's error
journal.py      a transaction as a record of `__transaction_state`, and back
coordinator.py  journals what the rules decide, writes the markers, keeps the deadlines
ending.py       from a durable decision to markers in every partition
recovery.py     what a crash may have left: open transactions that no journal record names
producer_ids.py producer ids, each given out once for ever
"""
