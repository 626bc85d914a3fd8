"""Share groups in the broker: the three roles that Kafka keeps apart, and so do we.

state_store.py     the share coordinator: durable state of share-partitions, in `__share_group_state`
leader.py          the share-partition leader: sessions, locks, delivery, around the engine in `headrace.share`
The group coordinator's part (membership, assignment) is in `broker/groups/`.
"""
