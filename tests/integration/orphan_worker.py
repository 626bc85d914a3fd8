"""A worker that test_worker_strict starts and kills while a process of its pool is at work."""

import os
import sys
import time
from pathlib import Path

from headrace.worker import Queue

queue = Queue("localhost:1", group_id="orphans")


@queue.task("steps", key_order="strict", pool="process")
def work(note: str) -> None:
    Path(f"{note}.new").write_text(str(os.getpid()))
    Path(f"{note}.new").rename(note)
    time.sleep(600)  # longer than any test


if __name__ == "__main__":
    queue.configure(bootstrap_servers=sys.argv[1])
    queue.run()
