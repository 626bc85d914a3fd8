"""One module a queue: its job, how jobs are enqueued, how many it still holds."""
