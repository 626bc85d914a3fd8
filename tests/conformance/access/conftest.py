"""Our broker and Apache Kafka with the same access control and the same users."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.access.site import Site
from tests.conformance.access.sites import apache_site, headrace_site


@pytest.fixture(scope="module", params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        made = (headrace_site if request.param == "headrace" else apache_site)(stack)
        made.prepare()
        yield made
