"""Task queues side by side: the same jobs on Celery, Dramatiq and Taskiq (on Redis) and on ours (on our broker).

A *contender* is one queue as its users run it: its own worker command, ten jobs at once, one worker process unless its
name says otherwise, jobs acknowledged after they ran. Jobs are all enqueued first; then the worker is started and works
them off. Every job notes its number and the time in the *journal*, a file that only the driver reads: rates are taken
from it, a job that ran twice or never voids the run, and so does one that the queue still holds at the end.

`jobs/` runs under the peers' Python (made from requirements/peers.txt), where nothing of ours is installed but this
folder's own modules; everything else runs under ours.
"""
