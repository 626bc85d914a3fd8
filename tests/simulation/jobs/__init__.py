"""Lives of task queues: scheduled records and their forwarders, tasks with `once=`, outboxes and their relays.

The workers are real, on the simulated machines of `tests/simulation/path`. Their database is a real SQLite database
behind a simulated server: statements take time, the server is killed, and the answer to a COMMIT may be lost.
`python -m tests.simulation --path jobs`.
"""
