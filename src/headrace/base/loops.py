"""New event loops: uvloop's where it is installed, else asyncio's."""

import asyncio
from types import ModuleType

# Here and not in the function: nothing can be imported any more once the main thread has ended.
uvloop: ModuleType | None
try:
    import uvloop
except ImportError:
    uvloop = None


def new_event_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()
