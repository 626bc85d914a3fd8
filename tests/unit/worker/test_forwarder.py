"""The forwarder's plans; the rest is in tests/integration/test_worker_later.py."""

from headrace.wire.message import ZERO_UUID
from headrace.worker.cron import Interval
from headrace.worker.forward_plan import ForwardPlan
from headrace.worker.later import STEPS
from headrace.worker.periodic import CLOCK_BACK_MS, Periodic

NOW_MS = 1_800_000_030_000


def plan_for(last_ms: int, name: str = "mail.tick") -> ForwardPlan:
    periodic = Periodic(name, "ticks", Interval(60), lambda moment_ms: (None, ()))
    plan = ForwardPlan(NOW_MS, ZERO_UUID, [0] * STEPS)
    plan.fire([periodic], {"ticks": last_ms})
    return plan


def test_a_periodic_task_is_sent_once_a_period():
    assert [moment_ms for _, moment_ms in plan_for(NOW_MS - 600_000).sent] == [NOW_MS - 30_000]
    assert plan_for(NOW_MS - 30_000).sent == []


def test_workers_that_were_started_differently_do_not_both_send_a_period():
    by_command, as_script = plan_for(NOW_MS - 600_000), plan_for(NOW_MS - 600_000, "__main__.tick")
    assert by_command.fired == as_script.fired == {"ticks": NOW_MS - 30_000}
    assert plan_for(by_command.fired["ticks"], "__main__.tick").sent == []


def test_a_clock_that_is_a_little_behind_sends_nothing_again():
    plan = plan_for(NOW_MS + 30_000)
    assert (plan.sent, plan.fired) == ([], {})


def test_what_was_sent_by_a_clock_far_ahead_does_not_end_a_periodic_task():
    plan = plan_for(NOW_MS + CLOCK_BACK_MS + 1)
    assert (plan.sent, plan.fired) == ([], {"ticks": NOW_MS})
