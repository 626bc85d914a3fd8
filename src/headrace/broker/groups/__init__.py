"""The group coordinator: who is in which group, who reads which partition, and how far each group has read.

registry.py             what every type of group can do; the one table of group ids
classic.py              classic groups; classic_members.py who is in one; classic_rebalance.py join, sync, leave, expiry
consumer.py             KIP-848 groups as the journal makes them; consumer_member.py one member of them
heartbeats.py           what a heartbeat or a leave changes; reconcile.py one member's next step to its target
assignors.py            uniform and range; subscriptions.py topic names and patterns
share.py                share groups (KIP-932): the engine's rules of membership (headrace.share) as one of our groups
offsets.py              committed offsets, and those of open transactions; mending.py sets them right after a crash
records.py              the journal's records in Kafka's schemas; share_records.py those of share groups
state.py                everything that the journal rebuilds
coordinator.py          the shell around them all: journal, timers, topics that come and go
*_requests.py           what the handlers call: classic, consumer, share, offset and admin requests

Machines decide and never write. They return a `Write`: the records that must be in the journal before the
change holds. The shell appends them to `__consumer_offsets` and then lets the machine go on.
"""
