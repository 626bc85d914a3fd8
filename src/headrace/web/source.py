"""Where the dashboard reads from: an admin client and a cluster for records, and the embedded broker's view if any."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.settings import ClientSettings
from headrace.web.embedded import Detail


class PageSource:
    def __init__(self, admin: AsyncAdmin, cluster: Cluster, detail: Detail | None) -> None:
        self.admin = admin
        self.cluster = cluster
        self.detail = detail


@asynccontextmanager
async def open_source(settings: ClientSettings, detail: Detail | None = None) -> AsyncIterator[PageSource]:
    """Connects; BrokerNotAvailableError names the addresses when none could be reached in time."""
    async with AsyncAdmin(settings) as admin, Cluster(settings) as cluster:
        yield PageSource(admin, cluster, detail)
