"""Queues side by side, on two levels: queues by themselves (deliver.py) and task frameworks (run.py).

Queues: the same messages through our share consumer, NATS JetStream, RabbitMQ, a Redis stream and a table in
PostgreSQL. Task frameworks: the same jobs on Celery, Dramatiq and Taskiq (on Redis), on Procrastinate (on PostgreSQL)
and on ours (on our broker).

A *contender* of the frameworks is one queue as its users run it: its own worker command, ten jobs at once, one worker
process unless its name says otherwise, jobs acknowledged after they ran. Jobs are all enqueued first; then the worker
is started and works them off. Every job notes its number and the time in the *journal*, a file that only the driver
reads: rates are taken from it, a job that ran twice or never voids the run, and so does one that the queue still holds
at the end. Consumers of messages note them in such a journal too.

`jobs/` and `messages/` run under the peers' Python (made from requirements/peers.txt), where nothing of ours is
installed but this folder's own modules; everything else runs under ours.
"""
