"""Run times fall into the bucket whose bound they do not exceed."""

from headrace.worker.metrics import RUN_SECONDS_BOUNDS, TaskMetrics


def test_a_run_counts_in_the_first_bucket_that_holds_it():
    metrics = TaskMetrics()

    for seconds in (0.0, 0.001, 0.0011, 7200.0):
        metrics.note_run(seconds)

    assert metrics.run_seconds_counts[:2] == [2, 1]
    assert metrics.run_seconds_counts[-1] == 1
    assert len(metrics.run_seconds_counts) == len(RUN_SECONDS_BOUNDS) + 1
    assert (metrics.runs, sum(metrics.run_seconds_counts)) == (4, 4)


def test_two_tasks_do_not_share_their_buckets():
    TaskMetrics().note_run(1.0)

    assert sum(TaskMetrics().run_seconds_counts) == 0
