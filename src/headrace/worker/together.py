"""Several queues in one process: started together, stopped together by signals."""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence

from headrace.base.loops import new_event_loop
from headrace.worker.queue import Queue


def run_queues(queues: Sequence[Queue], *, on_started: Callable[[], None] | None = None) -> None:
    """`Queue.run` for several queues. When one of them cannot go on, the others drain, and its error is raised."""
    if len(queues) == 1:
        queues[0].run(on_started=on_started)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(queues, on_started))


async def _run(queues: Sequence[Queue], on_started: Callable[[], None] | None) -> None:
    loop = asyncio.get_running_loop()
    remaining = len(queues)
    signals = 0

    def started() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0 and on_started is not None:
            on_started()

    def stop() -> None:
        nonlocal signals
        signals += 1
        for queue in queues:
            queue.stop(now=signals > 1)

    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        running = [asyncio.create_task(queue.run_async(on_started=started)) for queue in queues]
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        for queue in queues:
            queue.stop()
        await asyncio.wait(running)
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
    for task in running:
        task.result()
