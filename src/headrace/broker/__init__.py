"""The broker: one event loop around the logs, which speaks Kafka's protocol.

- `Broker` (embedded.py): a broker in this process, for programs and tests. `headrace serve` runs the same.
- `Server` (server.py), `Connection` (connection.py): sockets, frames, and responses in the order of their requests.
- `BrokerCore` (core.py): finds the handler of a request, and holds what all handlers share. No sockets, no threads.
- handlers/: one file per API. groups/, transactions/ and share/: the coordinators behind them.
- `Later` (later.py): a response that is not there yet. Parked requests (parked.py) wait for records, timers (timers.py)
  for an instant, group_commit.py for the disk; long work runs in slices (slices.py), one in each turn of the loop.
- settings/: the table of all settings. `Topics` (topics.py): topics and their partitions.

Everything that decides runs on the thread of the loop; time comes from `Clock` (clock.py), which tests turn by hand.
"""
