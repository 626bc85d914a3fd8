"""Outcomes put beside a micro-batch, against the same done record by record."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.delivery import AcknowledgeType
from headrace.spark.matching import match
from headrace.spark.outcomes import Outcome
from headrace.spark.runs import Run, RunSet
from headrace.wire.ids import TopicAndPartition

PLACES = [("orders", 0), ("orders", 1)]
TYPES = [AcknowledgeType.RELEASE, AcknowledgeType.REJECT]

outcomes = st.builds(
    lambda place, first, length, deliveries, type, reason: Outcome(
        *place, first, first + length, deliveries, type, reason
    ),
    st.sampled_from(PLACES),
    st.integers(0, 12),
    st.integers(0, 6),
    st.integers(1, 2),
    st.sampled_from(TYPES),
    st.text("ab", max_size=2),
)
batches = st.lists(
    st.tuples(
        st.sampled_from(PLACES),
        st.builds(
            lambda first, length, deliveries: Run(first, first + length, deliveries),
            st.integers(0, 12),
            st.integers(0, 6),
            st.integers(1, 2),
        ),
    ),
    min_size=1,
    max_size=10,
).map(RunSet.of)


@given(st.lists(outcomes, min_size=1, max_size=12), batches)
def test_each_delivery_gets_what_was_said_of_it_last_and_the_rest_is_counted(
    said: list[Outcome], planned: RunSet
) -> None:
    deliveries = {
        (place, offset): run.delivery_count
        for place, run in planned
        for offset in range(run.first, run.last + 1)
    }
    wanted: dict[tuple[TopicAndPartition, int], tuple[int, AcknowledgeType, str]] = {}
    named = set()
    for each in said:
        for offset in range(each.first, each.last + 1):
            named.add((each.place, offset))
            if deliveries.get((each.place, offset)) == each.delivery_count:
                wanted[each.place, offset] = (each.delivery_count, each.type, each.reason)

    meant, ignored = match(said, planned)

    found = [
        ((each.place, offset), (each.delivery_count, each.type, each.reason))
        for each in meant
        for offset in range(each.first, each.last + 1)
    ]
    assert dict(found) == wanted
    assert len(found) == len(wanted), "each record once"
    beside = {(place, offset) for place, run in ignored for offset in range(run.first, run.last + 1)}
    assert beside == named - wanted.keys()
