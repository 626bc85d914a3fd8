"""Django's tasks on Headrace: what the interface promises of a back end, on a real broker with the real worker."""

import asyncio
import json
import math
import threading
from concurrent.futures import Future
from datetime import datetime, timedelta
from importlib import import_module
from io import StringIO

import pytest

from tests import django_jobs, django_project  # settings, before what needs them

# isort: split
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections, transaction
from django.test import override_settings
from django.utils import timezone
from psycopg.conninfo import conninfo_to_dict

from headrace import Admin, Broker
from headrace.adapters.django.management.commands.headrace_worker import Command
from headrace.worker import Backoff, PostgresDatabase, Reject, Retry, SqliteDatabase
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for
from tests.django_jobs import DO, SEEN
from tests.django_project import tasks_setting

tasks = django_jobs.tasks
signals = import_module(f"{django_project.INTERFACE}.signals")
exceptions = import_module(f"{django_project.INTERFACE}.exceptions")
InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
FAST = Backoff(first=1.0, most=1.0, jitter=0.0, tries=3)


@pytest.fixture(autouse=True)
def nothing_seen():
    SEEN.clear()
    DO.clear()


@pytest.fixture(params=[{}])
def options(request):
    return request.param


@pytest.fixture
def test(options):
    with (
        override_settings(TASKS=tasks_setting(**options)),
        QueueTest(tasks.default_task_backend.queue) as test,
    ):
        yield test


def with_options(**options):
    return pytest.mark.parametrize("options", [options], indirect=True, ids=[""])


@pytest.fixture
def sent():
    """Signals with the state of their result: `task_enqueued` first, then those of the worker as they come.

    The sender has a thread of its own: a worker may begin a task before its sender has come to the signal.
    """
    seen = []
    lock = threading.Lock()
    names = ("task_enqueued", "task_started", "task_finished")

    def listen(name):
        def hear(sender, task_result, **kwargs):
            with lock:
                place = 0 if name == "task_enqueued" else len(seen)
                seen.insert(place, (name, task_result.status, task_result))

        getattr(signals, name).connect(hear)
        return name, hear

    receivers = [listen(name) for name in names]
    yield seen
    for name, hear in receivers:
        getattr(signals, name).disconnect(hear)


class TestEnqueue:
    def test_a_task_runs_with_its_arguments(self, test):
        result = django_jobs.note.enqueue(1, "zwei", [3.5, None], vier={"fünf": True})
        assert (result.status, result.backend, result.attempts) == ("READY", "default", 0)
        assert len(result.id) == 32
        assert result.enqueued_at <= timezone.now()
        assert (result.started_at, result.finished_at, result.is_finished) == (None, None, False)
        test.run_until_idle()
        assert SEEN == [([1, "zwei", [3.5, None]], {"vier": {"fünf": True}})]

    def test_coroutines_enqueue_and_are_enqueued(self, test):
        async def main():
            return await django_jobs.note_async.aenqueue("ada"), await django_jobs.note.aenqueue()

        first, second = asyncio.run(main())
        assert first.id != second.id
        test.run_until_idle()
        assert sorted(map(str, SEEN)) == ["([], {})", "ada"]

    def test_each_queue_name_is_a_topic(self, test):
        django_jobs.note.enqueue()
        django_jobs.note.using(queue_name="emails").enqueue()
        (record,) = test.records("shop.default")
        assert record.headers["django.task"] == "tests.django_jobs.note"
        assert json.loads(record.value)["function"] == "note"
        assert len(test.records("shop.emails")) == 1

    def test_integers_of_any_size_and_lone_surrogates_arrive_as_they_were(self, test):
        django_jobs.note.enqueue(2**70, -(2**64), "\ud800", 0.1, 1e308)
        test.run_until_idle()
        assert SEEN == [([2**70, -(2**64), "\ud800", 0.1, 1e308], {})]

    def test_a_number_that_json_does_not_have_is_refused(self, test):
        with pytest.raises(
            ValueError, match="note cannot be enqueued with these arguments: Out of range float"
        ):
            django_jobs.note.enqueue(math.nan)
        with pytest.raises(TypeError, match="Unsupported type"):
            django_jobs.note.enqueue(object())
        assert test.records("shop.default") == []

    def test_a_task_is_checked_when_it_is_enqueued(self, test):
        elsewhere = django_jobs.note.using(queue_name="emails")
        with override_settings(TASKS=tasks_setting(queues=["default"])):
            with pytest.raises(InvalidTask, match="Queue 'emails' is not valid for backend"):
                elsewhere.enqueue()
            with pytest.raises(InvalidTask, match="Queue 'emails' is not valid for backend"):
                asyncio.run(elsewhere.aenqueue())

    def test_a_priority_is_refused(self):
        with pytest.raises(InvalidTask, match="does not support setting priority"):
            django_jobs.note.using(priority=10)

    def test_enqueue_in_a_coroutine_names_aenqueue(self, test):
        async def main():
            django_jobs.note.enqueue()

        with pytest.raises(SynchronousOnlyOperation, match=r"use: await task\.aenqueue"):
            asyncio.run(main())

    def test_results_cannot_be_retrieved(self, test):
        result = django_jobs.note.enqueue()
        backend = tasks.default_task_backend
        assert not backend.supports_get_result
        with pytest.raises(NotImplementedError):
            backend.get_result(result.id)
        with pytest.raises(NotImplementedError):
            result.refresh()

    def test_all_threads_share_one_producer(self, test):
        found = []

        def look():
            found.append((tasks.task_backends["default"], tasks.task_backends["default"].queue))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(backend) for backend, _ in found}) == 4
        assert {id(queue) for _, queue in found} == {id(test.queue)}


def fail_after(function, *args):
    function(*args)
    raise ZeroDivisionError


class TestTransactions:
    @pytest.fixture(autouse=True)
    def database(self, tmp_path):
        before = connections.settings["default"]["NAME"]
        connection.close()
        connections.settings["default"]["NAME"] = str(tmp_path / "db.sqlite3")
        yield
        connection.close()
        connections.settings["default"]["NAME"] = before

    def test_on_commit_enqueues_after_the_commit_and_not_after_a_rollback(self, test):
        with transaction.atomic():
            transaction.on_commit(lambda: django_jobs.note.enqueue("committed"))
            assert test.records("shop.default") == []
        with transaction.atomic():
            transaction.on_commit(lambda: django_jobs.note.enqueue("rolled back"))
            transaction.set_rollback(True)
        test.run_until_idle()
        assert SEEN == [(["committed"], {})]

    def test_with_the_outbox_a_task_is_sent_if_the_transaction_is_committed(self, tmp_path):
        database = SqliteDatabase(tmp_path / "db.sqlite3")
        database.create_tables()
        outbox = override_settings(TASKS=tasks_setting(outbox="default", database=database))
        with outbox, QueueTest(tasks.default_task_backend.queue) as test:
            with transaction.atomic():
                result = django_jobs.note.enqueue("committed")
                with pytest.raises(ZeroDivisionError), transaction.atomic():
                    fail_after(django_jobs.note.enqueue, "savepoint")
                assert test.records("shop.default") == []
            assert result.status == "READY"
            with transaction.atomic():
                django_jobs.note.enqueue("rolled back")
                transaction.set_rollback(True)
            django_jobs.note.enqueue("without a transaction")
            asyncio.run(django_jobs.note.aenqueue("in a coroutine"))
            wait_for(lambda: len(test.records("shop.default")) == 3)
            test.run_until_idle()
        words = sorted(args[0] for args, _ in SEEN)
        assert words == ["committed", "in a coroutine", "without a transaction"]

    def test_connections_are_closed_between_runs(self, test):
        held = []

        def ask():
            with connection.cursor() as cursor:
                cursor.execute("select 1")
            held.append(connection.connection)

        DO.append(ask)
        for _ in range(2):
            django_jobs.obey.enqueue()
            test.run_until_idle()
        assert len(held) == 2
        assert held[0] is not held[1]
        for each in held:
            with pytest.raises(Exception, match="closed"):
                each.execute("select 1")

    def test_a_coroutine_uses_the_connection_of_its_thread(self, test):
        with connection.cursor() as cursor:
            cursor.execute("create table words (word text)")
        django_jobs.store_async.enqueue("ada")
        test.run_until_idle()
        with connection.cursor() as cursor:
            assert cursor.execute("select word from words").fetchall() == [("ada",)]


def test_the_outbox_works_in_transactions_of_postgresql(postgres):
    url = postgres.empty_database("django_outbox")
    place = conninfo_to_dict(url)
    connections.settings["postgres"] = {
        **connections.settings["default"],
        "ENGINE": "django.db.backends.postgresql",
        "NAME": place["dbname"],
        "USER": place["user"],
        "HOST": place["host"],
        "PORT": place.get("port", ""),
    }
    database = PostgresDatabase(url)
    database.create_tables()
    try:
        outbox = override_settings(TASKS=tasks_setting(outbox="postgres", database=database))
        with outbox, QueueTest(tasks.default_task_backend.queue) as test:
            with transaction.atomic(using="postgres"):
                django_jobs.note.enqueue("committed")
                with pytest.raises(ZeroDivisionError), transaction.atomic(using="postgres"):
                    fail_after(django_jobs.note.enqueue, "savepoint")
                assert test.records("shop.default") == []
            with transaction.atomic(using="postgres"):
                django_jobs.note.enqueue("rolled back")
                transaction.set_rollback(True, using="postgres")
            wait_for(lambda: len(test.records("shop.default")) == 1)
            test.run_until_idle()
        assert SEEN == [(["committed"], {})]
    finally:
        connections["postgres"].close()
        del connections["postgres"]
        del connections.settings["postgres"]


class TestDefer:
    def test_a_task_runs_after_its_time(self, test):
        now = timezone.now()
        later = now + timedelta(seconds=60)
        result = django_jobs.note.using(run_after=later).enqueue("late")
        assert result.task.run_after == later
        asyncio.run(django_jobs.note.using(run_after=later).aenqueue("late, too"))
        django_jobs.note.using(run_after=now - timedelta(days=3)).enqueue("over")
        django_jobs.note.enqueue("now")
        test.advance(1)
        test.run_until_idle()
        assert sorted(args for args, _ in SEEN) == [["now"], ["over"]]
        test.advance(60)
        test.run_until_idle()
        assert sorted(args for args, _ in SEEN[2:]) == [["late"], ["late, too"]]

    def test_a_naive_time_is_refused_with_time_zones_and_local_without(self, test, sent):
        with pytest.raises(InvalidTask, match="aware datetime"):
            django_jobs.note.using(run_after=datetime(2040, 1, 1))
        with override_settings(USE_TZ=False):
            moment = timezone.now() + timedelta(seconds=8)
            assert moment.tzinfo is None
            django_jobs.note.using(run_after=moment).enqueue()
            (waiting,) = test.queue.scheduled()
            assert abs(waiting.at - timezone.make_aware(moment)) < timedelta(seconds=1)
            test.advance(9)
            test.run_until_idle()
        finished = next(result for name, _, result in sent if name == "task_finished")
        assert finished.task.run_after == moment
        assert finished.enqueued_at < finished.finished_at

    def test_more_than_ten_years_are_refused(self, test):
        with pytest.raises(ValueError, match=r"the limit is ten years ahead, got \d+ days"):
            django_jobs.note.using(run_after=timezone.now() + timedelta(days=4000)).enqueue()


class TestRuns:
    def test_signals_follow_a_task(self, test, sent):
        result = django_jobs.note_async.enqueue("ada")
        test.run_until_idle()
        assert [(name, status) for name, status, _ in sent] == [
            ("task_enqueued", "READY"),
            ("task_started", "RUNNING"),
            ("task_finished", "SUCCESSFUL"),
        ]
        finished = sent[-1][2]
        assert (finished.id, finished.return_value, finished.attempts) == (result.id, "ADA", 1)
        assert finished.task == django_jobs.note_async
        assert finished.enqueued_at == result.enqueued_at
        assert finished.enqueued_at <= finished.started_at <= finished.finished_at

    def test_the_context_has_the_result_and_the_attempt(self, test):
        result = django_jobs.note_context.enqueue("ada")
        test.run_until_idle()
        ((word, identity, attempt, status, workers),) = SEEN
        assert (word, identity, attempt, status) == ("ada", result.id, 1, "RUNNING")
        assert len(workers) == 1

    @with_options(retries=FAST)
    def test_a_failing_task_is_tried_again_and_then_a_dead_letter(self, test, sent, caplog):
        DO.append(lambda: 1 / 0)
        result = django_jobs.obey.enqueue()
        for _ in range(4):
            test.run_until_idle()
            test.advance(1)
        assert SEEN == [1, 2, 3]
        assert [name for name, *_ in sent] == ["task_enqueued", *["task_started"] * 3, "task_finished"]
        finished = sent[-1][2]
        assert (finished.id, finished.status, finished.attempts) == (result.id, "FAILED", 3)
        assert finished.errors[0].exception_class is ZeroDivisionError
        assert "division by zero" in finished.errors[0].traceback
        with pytest.raises(ValueError, match="Task failed"):
            _ = finished.return_value
        (letter,) = test.dead_letters("shop.default.dead")
        assert json.loads(letter.value)["id"] == result.id
        errors = [each for each in caplog.records if each.name == django_project.LOGGER and each.exc_info]
        assert [each.exc_info[0] for each in errors] == [ZeroDivisionError]

    @with_options(retries=FAST)
    def test_a_task_that_recovers_has_one_end(self, test, sent):
        DO.extend([lambda: 1 / 0, lambda: "fine"])
        django_jobs.obey.enqueue()
        test.run_until_idle()
        test.advance(1)
        test.run_until_idle()
        assert [name for name, *_ in sent].count("task_finished") == 1
        assert (sent[-1][2].return_value, sent[-1][2].attempts) == ("fine", 2)
        assert test.dead_letters("shop.default.dead") == []

    def test_reject_and_retry_of_the_worker_work(self, test, sent):
        def reject():
            raise Reject("no such account")

        def retry():
            raise Retry(after=5)

        DO.extend([retry, reject])
        django_jobs.obey.enqueue()
        test.run_until_idle()
        assert [name for name, *_ in sent] == ["task_enqueued", "task_started"]
        test.advance(5)
        test.run_until_idle()
        assert sent[-1][:2] == ("task_finished", "FAILED")
        assert len(test.dead_letters("shop.default.dead")) == 1

    @with_options(retries=None)
    @pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
    def test_a_task_that_exits_has_failed_and_the_worker_goes_on(self, test, sent, error):
        def leave():
            raise error("bye")

        DO.append(leave)
        django_jobs.obey.enqueue()
        test.run_until_idle()
        assert sent[-1][2].errors[0].exception_class is error
        django_jobs.note.enqueue("next")
        test.run_until_idle()
        assert SEEN[-1] == (["next"], {})

    def test_a_result_that_is_not_json_fails_without_another_run(self, test, sent):
        DO.append(object)
        django_jobs.obey.enqueue()
        test.run_until_idle()
        test.advance(400)
        test.run_until_idle()
        assert SEEN == [1]
        assert sent[-1][:2] == ("task_finished", "FAILED")
        (letter,) = test.dead_letters("shop.default.dead")
        assert "which is not JSON" in str(letter)

    def test_a_receiver_that_fails_changes_nothing(self, test, caplog):
        def fail(**kwargs):
            raise RuntimeError("receiver")

        names = ("task_enqueued", "task_started", "task_finished")
        for name in names:
            getattr(signals, name).connect(fail)
        try:
            django_jobs.note.enqueue(1)
            asyncio.run(django_jobs.note.aenqueue(2))
            test.run_until_idle()
            test.advance(400)
            test.run_until_idle()
        finally:
            for name in names:
                getattr(signals, name).disconnect(fail)
        assert sorted(args for args, _ in SEEN) == [[1], [2]]

    def test_sync_tasks_run_side_by_side(self, test):
        barrier = threading.Barrier(4, timeout=30)
        DO.append(lambda: bool(barrier.wait()) or True)
        for _ in range(4):
            django_jobs.obey.enqueue()
        test.run_until_idle()
        assert SEEN == [1, 1, 1, 1]
        assert not barrier.broken

    def test_a_task_in_a_class_is_found(self, test):
        django_jobs.Nested.note_nested.enqueue("ada")
        test.run_until_idle()
        assert SEEN == ["ada"]

    @with_options(retries=FAST)
    def test_a_task_that_the_worker_does_not_know_is_tried_again(self, test):
        django_jobs.note.enqueue()
        message = json.loads(test.records("shop.default")[0].value)
        for changes in ({"function": "gone"}, {"module": "tests.gone"}, {"function": "plain"}):
            test.send("shop.default", json.dumps({**message, **changes}))
        test.run_until_idle()
        assert SEEN == [([], {})]
        assert test.dead_letters("shop.default.dead") == []
        for _ in range(2):
            test.advance(1)
            test.run_until_idle()
        assert len(test.dead_letters("shop.default.dead")) == 3

    def test_a_record_that_is_no_task_is_a_dead_letter(self, test):
        values = [b"", b"\xff", b"[]", b"{}", b'{"id": 5}', b"[" * 100_000]
        for value in values:
            test.send("shop.default", value)
        django_jobs.note.enqueue()
        test.run_until_idle()
        assert sorted(each.value for each in test.dead_letters("shop.default.dead")) == sorted(values)
        assert SEEN == [([], {})]


class TestOptions:
    def problems(self, **setting):
        with override_settings(TASKS=tasks_setting(**setting)):
            return [(each.msg, each.hint) for each in tasks.default_task_backend.check()]

    def test_good_options_have_no_problem(self):
        settings = {"client_id": "shop", "compression_type": "lz4"}
        assert (
            self.problems(settings=settings, retries=None, queue_options={"emails": {"concurrency": 64}})
            == []
        )

    @pytest.mark.parametrize(
        ("setting", "text"),
        [
            ({"group_id": ""}, "TASKS['default']: OPTIONS has no 'group_id'."),
            ({"servers": ""}, "TASKS['default']: OPTIONS has no 'bootstrap_servers'."),
            ({"concurency": 4}, "TASKS['default']: OPTIONS has 'concurency', which is not known."),
            ({"queues": []}, "TASKS['default']: QUEUES is empty."),
            ({"queues": ["later"]}, "TASKS['default']: The topic of queue 'later' would be 'shop.later', which holds"),
            ({"queues": ["a b"]}, "The topic of queue 'a b' would be 'shop.a b', which is not a valid name"),
            ({"queues": ["x" * 240]}, "which is not a valid name"),
            ({"queues": ["a", "a.dead"]}, "The topic of queue 'a.dead' would be the dead-letter topic of queue 'a'."),
            ({"queue_options": {"mails": {}}}, "OPTIONS['queue_options'] has 'mails', which is not known."),
            ({"queue_options": {"emails": {"pool": 1}}}, "['emails'] has 'pool', which is not known."),
            ({"concurrency": 0}, "OPTIONS cannot be used"),
            ({"outbox": "default"}, "OPTIONS has 'outbox', but no 'database'."),
            ({"outbox": "x", "database": SqliteDatabase("x")}, "OPTIONS['outbox'] is 'x', which DATABASES does not"),
            ({"database": "x"}, "OPTIONS cannot be used: Queue: database must be a database such as"),
            ({"retries": 3}, "OPTIONS cannot be used"),
            ({"settings": {"sasl.mechansim": "PLAIN"}}, "OPTIONS cannot be used"),
        ],
    )  # fmt: skip
    def test_system_checks_name_what_is_wrong(self, setting, text):
        ((message, hint),) = self.problems(**setting)
        assert text in message
        assert hint

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"QUEUES": "emails"}, "QUEUES is 'emails'."),
            ({"QUEUES": [1]}, "QUEUES is [1]."),
            ({"OPTIONS": ["group_id"]}, "OPTIONS is ['group_id']."),
            ({"OPTIONS": {"bootstrap_servers": "x:1", "group_id": 5}}, "OPTIONS['group_id'] is 5."),
            ({"OPTIONS": {"queue_options": {"emails": 64}}}, "OPTIONS['queue_options'] is {'emails': 64}."),
            ({"OPTIONS": {"queue_options": []}}, "OPTIONS['queue_options'] is []."),
        ],
    )
    def test_a_value_of_the_wrong_kind_is_named(self, changes, text):
        setting = {"default": {**tasks_setting()["default"], **changes}}
        with override_settings(TASKS=setting):
            assert [each.msg for each in tasks.default_task_backend.check()] == [f"TASKS['default']: {text}"]

    def test_queues_and_options_may_be_left_out(self):
        setting = {"default": {"BACKEND": "headrace.adapters.django.HeadraceBackend"}}
        with override_settings(TASKS=setting):
            assert len(tasks.default_task_backend.check()) == 2

    def test_a_misspelled_option_has_a_suggestion(self):
        ((_, hint),) = self.problems(concurency=4)
        assert hint.startswith("Did you mean 'concurrency'? Known are bootstrap_servers, ")

    def test_enqueue_with_wrong_options_says_what_is_wrong(self):
        wrong = override_settings(TASKS=tasks_setting(group_id=""))
        with wrong, pytest.raises(ImproperlyConfigured, match="OPTIONS has no 'group_id'"):
            django_jobs.note.enqueue()

    @with_options(concurrency=3, queue_options={"emails": {"concurrency": 5, "dead_letter": "elsewhere"}})
    def test_options_of_one_queue_win(self, test):
        found = {
            topic: (each.options.concurrency, each.options.dead_letter)
            for topic, each in test.queue.tasks.items()
        }
        assert found == {"shop.default": (3, "shop.default.dead"), "shop.emails": (5, "elsewhere")}
        assert set(test.queue.metrics()) == {"django.default", "django.emails"}


class TestCommand:
    @pytest.fixture
    def broker(self):
        with Broker() as broker:
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                for topic in ("shop.default", "shop.emails", "shop.default.dead", "shop.emails.dead"):
                    admin.create_topic(topic, partitions=1)
            with override_settings(TASKS=tasks_setting(broker.bootstrap_servers)):
                yield broker

    def test_the_command_runs_tasks_until_it_is_stopped(self, broker):
        done = threading.Event()
        DO.append(done.set)
        out, ended = StringIO(), Future()
        command = Command(stdout=out)

        def work():
            try:
                ended.set_result(call_command(command, "--queue", "default", "--concurrency", "2"))
            except BaseException as error:
                ended.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        django_jobs.obey.enqueue()
        assert done.wait(30)
        command.queue.stop()
        ended.result(30)
        tasks.default_task_backend.queue.close()
        first, last = out.getvalue().splitlines()
        where = f"working for group shop on {broker.bootstrap_servers}"
        assert first == f"{where}: shop.default (2 at a time)"
        assert last == "stopped: 1 succeeded, 0 retried, 0 dead-lettered, 0 released"

    def test_errors_are_sentences(self, broker):
        with pytest.raises(CommandError, match="Queue 'mails' is not in QUEUES of TASKS"):
            call_command("headrace_worker", "--queue", "mails")
        with pytest.raises(CommandError, match="--backend other: The connection 'other' doesn't exist"):
            call_command("headrace_worker", "--backend", "other")
        with pytest.raises(CommandError, match="concurrency"):
            call_command("headrace_worker", "--concurrency", "0")

    def test_system_checks_come_first(self):
        wrong = override_settings(TASKS=tasks_setting(concurency=4))
        with wrong, pytest.raises(SystemCheckError, match="'concurency', which is not known"):
            call_command("headrace_worker", skip_checks=False)

    def test_a_back_end_of_another_kind_is_refused(self):
        other = {"default": {"BACKEND": f"{django_project.INTERFACE}.backends.dummy.DummyBackend"}}
        with (
            override_settings(TASKS=other),
            pytest.raises(CommandError, match="DummyBackend; give the alias of a HeadraceBackend"),
        ):
            call_command("headrace_worker")
