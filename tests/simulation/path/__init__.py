"""The whole path: real clients and workers on simulated machines, against the real broker: `--path client`.

Theory of operation. A `Node` (`node.py`) is a client's process. It has a clock of its own and an asyncio event loop
(`node_loop.py`) on which the real `AsyncShareConsumer`, `AsyncProducer` and the worker's `TaskRunner` run, with their
cores, connections and metadata. Their sockets are `Wire`s (`wire.py`) to the broker's real `Connection` objects. Bytes
on a wire take time, in order; a wire may hang or be cut. Applications (`apps.py`) poll, work, answer, renew, commit,
close and are interrupted, as the seed says.

Time is simulated event by event (`world.py`): whatever is due next, on any machine, happens next. A node may be stopped
(SIGSTOP: its clock runs on) or suspended (its clock stands still too), killed, and started again. The broker's faults
are those of the other simulation.

The model (`model.py`) numbers every acquisition as the broker's engine makes it, and follows it: into the response that
carries it, into the client's `AcquiredRange`, to the application, and back with its answer. Its docstring has the
promises.

To add an application: write a subclass of `Application` and add a row to `APPLICATIONS`. Choices come from
`self.rng`, which belongs to the current step.
"""
