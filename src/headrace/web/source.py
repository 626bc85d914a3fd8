"""Where the dashboard reads from: an admin client and a cluster for records, and the embedded broker's view if any."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.dead_letter_watch import DeadLetterWatch
from headrace.client.settings import ClientSettings
from headrace.web.embedded import EmbeddedView
from headrace.web.missing import Missing
from headrace.web.schedules import OpenSchedule


class PageSource:
    def __init__(
        self,
        admin: AsyncAdmin,
        cluster: Cluster,
        detail: EmbeddedView | None,
        open_schedule: OpenSchedule | None = None,
    ) -> None:
        self.admin = admin
        self.cluster = cluster
        self.detail = detail
        self.open_schedule = open_schedule
        self.letters = DeadLetterWatch(cluster)
        self.missing = Missing()


@asynccontextmanager
async def open_source(
    settings: ClientSettings, detail: EmbeddedView | None = None, open_schedule: OpenSchedule | None = None
) -> AsyncIterator[PageSource]:
    """Connects; BrokerNotAvailableError names the addresses when none could be reached in time."""
    async with AsyncAdmin(settings) as admin, Cluster(settings) as cluster:
        yield PageSource(admin, cluster, detail, open_schedule)
