"""Which series of the history make which chart."""

from headrace.web.history import History, Key
from headrace.web.model import Chart, Charts, SeriesRow

SERIES_MAX = 6
ANSWERS = ("Accept", "Release", "Reject", "Renew")


def overview_charts(history: History, share_groups: set[str]) -> Charts:
    lags = [key for key in history.keys("lag") if key[1] in share_groups]
    return Charts(
        charts=(
            _chart(history, "in", "Records in", "records/s", history.keys("in")[:SERIES_MAX]),
            _chart(history, "lag", "Lag of share groups", "records", lags[:SERIES_MAX]),
        )
    )


def group_charts(history: History, group_id: str, *, is_live: bool) -> Charts:
    charts = [
        _chart(history, "lag", "Lag", "records", [("lag", group_id)], ["lag"]),
        _chart(history, "done", "Records settled", "records/s", [("done", group_id)], ["settled"]),
    ]
    if is_live:
        answers: list[Key] = [("acknowledged", group_id, answer) for answer in ANSWERS]
        charts[1] = _chart(
            history,
            "acknowledged",
            "Acknowledgements",
            "records/s",
            [*answers, ("time-outs", group_id)],
            [*(answer.lower() for answer in ANSWERS), "lock time-outs"],
        )
        charts.append(
            _chart(history, "in-flight", "In flight", "records", [("in-flight", group_id)], ["in flight"])
        )
    return Charts(charts=tuple(charts))


def _chart(
    history: History, chart_id: str, title: str, unit: str, keys: list[Key], names: list[str] | None = None
) -> Chart:
    return Chart(
        id=chart_id,
        title=title,
        unit=unit,
        times=history.times(),
        series=tuple(
            SeriesRow(name=name, values=history.points(key))
            for key, name in zip(keys, names or [key[1] for key in keys], strict=True)
        ),
    )
