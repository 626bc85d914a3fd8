"""A deterministic simulator of the broker: `make simulate SEEDS=1000 STEPS=500`.

Theory of operation. One seed decides everything. The real `BrokerCore`, `Server` and `Connection` run on a
simulated event loop (`event_loop.py`), disk (`disk.py`), SQLite (`metadata.py`) and clock (`clock.py`). Worker
threads are greenlets that stop before each disk operation (`tasks.py`), so that the loop and every worker
interleave in any order. Clients (`actors/`) send bytes over simulated links (`network.py`) and get bytes back.
Models (`models/`) know what was promised and raise `Violation` when it is broken: after each turn of the loop,
when an answer arrives, after each restart, and at rest.

A life (`world.py`) is a list of steps; each is chosen by a `Random` made from the seed and the step's number,
so any subset of the steps is a life too. That is how a failure is shrunk (`shrinking.py`). Everything that
happens is hashed into a trail (`trail.py`); the same seed and steps give the same hash, in any process.

Glossary.
- actor: a client with a plan of its own (producer, reader, group member, admin), written as a generator.
- at rest: all bytes delivered, all tasks ended, all timeouts over. Then nothing may be unanswered.
- End: how a process ended: clean stop, stop after a disk failure, kill -9, power loss.
- life: one run of one seed. step: one decision of the scheduler in it. turn: one callback of the event loop.
- link: a client's connection. task: what a worker thread was given to do. quantum: a task up to its next disk
  operation.
- model: the promises about one part of the broker. violation: a broken one.
- scenario: the settings and the mixture of steps of one life.

Four worlds. `World` simulates the broker, with clients that speak its protocol (`actors/`). `PathWorld`
(`path/`, `--path client`, `make simulate-clients`) is the same world with real clients and workers on machines of
their own. `JobsWorld` (`jobs/`, `--path jobs`, `make simulate-jobs`) is that of task queues: schedules and their
forwarders, tasks with `once=`, outboxes, and a database that is killed, too. `SparkWorld` (`spark/`, `--path spark`,
`make simulate-spark`) has queries of the Spark source instead. What is said below of steps, models and faults holds
for all.

To replay: `python -m tests.simulation --replay SEED --steps STEPS [--only 3,7,20-25]` prints the trail.

To add an actor: write a subclass of `Actor` (`actor.py`) with a `live` generator in `actors/`; add a row to
`ACTORS` in `registry.py`. Take every choice from `self.rng`. Check what an answer says in `pending.on_answer`,
which runs when the answer arrives: by the actor's next step the broker may have restarted, and the model have
moved on.

To add an invariant: write it where it belongs in a model, or a new subclass of `Model` (`model.py`) in
`models/`, and add a row to `MODELS`. A model may look at anything in `world.core` and changes nothing. Say
precisely what was promised: a response that a client has received, by acks and `headrace.flush`, is a promise;
what was sent only may or may not have happened.

To add a fault: write a function in `steps.py` and add a row to its `TABLE` with `is_fault=True`; count it in
`world.stats.faults`.

Afterward plant a bug that only the new part can find (`planted/`), and let the test of planted bugs prove it.
"""
