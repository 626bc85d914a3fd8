"""A web application that sends tasks and runs them in the same process: `uvicorn examples.fastapi_queue:app`.

FastAPI takes the same lifespan as Starlette: `FastAPI(lifespan=lifespan)`. Run without uvicorn, this program starts a
broker of its own and calls itself once.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from headrace.worker import Queue

queue = Queue(os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"), group_id="web-mailers")
delivered: asyncio.Queue[str] = asyncio.Queue()


@queue.task("web-emails")
async def send_email(to: str) -> None:
    await delivered.put(to)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with queue:  # starts the worker, or raises what makes that impossible
        yield


async def register(request: Request) -> JSONResponse:
    sent = await send_email.send_async(request.path_params["name"])
    return JSONResponse({"partition": sent.partition, "offset": sent.offset})


app = Starlette(routes=[Route("/register/{name}", register, methods=["POST"])], lifespan=lifespan)


async def main() -> None:
    import httpx

    from headrace import Broker

    with Broker() as broker:
        queue.configure(bootstrap_servers=broker.bootstrap_servers)
        transport = httpx.ASGITransport(app)
        async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            print((await client.post("/register/ada")).json())
            print("delivered to", await delivered.get())


if __name__ == "__main__":
    asyncio.run(main())
