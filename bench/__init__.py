"""Our broker and Apache Kafka side by side: the same clients, the same machine, one run. `python -m bench --help`.

Theory of operation. `run.py` starts both brokers under one durability policy, warms both, then goes through rounds.
In a round each task (`tasks.py`) runs against one broker and right after against the other; the next round swaps
the order, so that neither always meets the quieter machine. A task starts a client (`clients/`) as a process of its
own and reads its figures. `report.py` makes one ratio of each round and shows their median and spread.
"""
