"""The server without sockets: work on its threads, and what comes back to the loop."""

import asyncio
from typing import Any

from headrace.broker.server import Server


def test_work_may_end_before_anybody_is_served() -> None:
    """A start after a crash may have something to write, and its sync is done while logs are still being loaded."""
    loop = asyncio.new_event_loop()
    troubles: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: troubles.append(context))
    server = Server(loop)
    ended: asyncio.Future[Exception | None] = loop.create_future()
    server.run(lambda: None, ended.set_result)
    assert loop.run_until_complete(asyncio.wait_for(ended, 10)) is None
    loop.run_until_complete(asyncio.sleep(0))
    server.close_threads()
    loop.close()
    assert troubles == []
