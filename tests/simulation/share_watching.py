"""Lets a model see what the share-group engine and its state store do: every decision, every change, every
session.

As with appends (`environment.py`), methods of the broker's classes are wrapped once in a process; whoever is
the watcher of the current life is told. Nothing is changed on the way.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.broker.share.loaded import LoadedPartition
from headrace.broker.share.state_store import ShareStateStore
from headrace.share.changes import AckBatch, Acquisition, AnyChange, Change
from headrace.share.errors import ShareError
from headrace.share.partition import SharePartition
from headrace.share.session import ShareSession, ShareSessions
from headrace.wire.share_state import ShareKey


class ShareWatcher:
    """Is told in the middle of a turn; may raise `Violation` there."""

    def loaded(self, loaded: LoadedPartition) -> None: ...
    def acquired(self, engine: SharePartition, given: dict[str, Any], acquisition: Acquisition) -> None: ...
    def answering(
        self, engine: SharePartition, member: str, batches: Sequence[AckBatch], given: dict[str, Any]
    ) -> Any: ...
    def answered(self, expected: Any, changes: "list[Change] | None", error: ShareError | None) -> None: ...
    def applying(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None: ...
    def applied(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None: ...
    def initializing(self, key: ShareKey) -> None: ...
    def initialized(self, key: ShareKey) -> None: ...
    def unwritten(self, key: ShareKey) -> None: ...
    def session_asked(self, group_id: str, member_id: str, epoch: int, **asked: Any) -> Any: ...
    def session_given(
        self, expected: Any, session: ShareSession | None, error: ShareError | None
    ) -> None: ...
    def session_removed(self, session: ShareSession) -> None: ...


_watchers: list[ShareWatcher] = []
_is_installed = False


def watch(watcher: ShareWatcher) -> None:
    """From now on this one is told."""
    _watchers[:] = [watcher]
    _install()


def _install() -> None:
    global _is_installed
    if not _is_installed:
        _is_installed = True
        _watch_loading()
        _watch_engine()
        _watch_store()
        _watch_sessions()


def _watch_loading() -> None:
    load = LoadedPartition.__init__

    def watched_load(self: LoadedPartition, *arguments: Any, **named: Any) -> None:
        load(self, *arguments, **named)
        _watchers[0].loaded(self)

    LoadedPartition.__init__ = watched_load  # type: ignore[method-assign]


def _watch_engine() -> None:
    acquire, acknowledge, apply = SharePartition.acquire, SharePartition.acknowledge, SharePartition.apply

    def watched_acquire(self: SharePartition, member: str, **given: Any) -> Acquisition:
        acquisition = acquire(self, member, **given)
        _watchers[0].acquired(self, {"member": member, **given}, acquisition)
        return acquisition

    def watched_acknowledge(
        self: SharePartition, member: str, batches: Sequence[AckBatch], **given: Any
    ) -> list[Change]:
        watcher = _watchers[0]
        expected = watcher.answering(self, member, batches, given)
        try:
            changes = acknowledge(self, member, batches, **given)
        except ShareError as error:
            watcher.answered(expected, None, error)
            raise
        watcher.answered(expected, changes, None)
        return changes

    def watched_apply(self: SharePartition, changes: Any) -> bool:
        changes = list(changes)
        watcher = _watchers[0]
        watcher.applying(self, changes)
        is_news = apply(self, changes)
        watcher.applied(self, changes)
        return is_news

    SharePartition.acquire = watched_acquire  # type: ignore[method-assign,assignment]
    SharePartition.acknowledge = watched_acknowledge  # type: ignore[method-assign,assignment]
    SharePartition.apply = watched_apply  # type: ignore[method-assign]


def _watch_store() -> None:
    initialize, initialize_new = ShareStateStore.initialize, ShareStateStore.initialize_new
    write = ShareStateStore.write

    def watched_initialize(self: ShareStateStore, key: ShareKey, **given: Any) -> Any:
        watcher = _watchers[0]
        watcher.initializing(key)
        try:
            return initialize(self, key, **given)
        finally:
            watcher.initialized(key)

    def watched_initialize_new(self: ShareStateStore, keys: Iterable[ShareKey], **given: Any) -> None:
        watcher, keys = _watchers[0], list(keys)
        for key in keys:
            watcher.initializing(key)
        try:
            initialize_new(self, keys, **given)
        finally:
            for key in keys:
                watcher.initialized(key)

    def watched_write(self: ShareStateStore, key: ShareKey, **given: Any) -> Any:
        try:
            return write(self, key, **given)
        except Exception:
            _watchers[0].unwritten(key)
            raise

    ShareStateStore.initialize = watched_initialize  # type: ignore[method-assign]
    ShareStateStore.initialize_new = watched_initialize_new  # type: ignore[method-assign]
    ShareStateStore.write = watched_write  # type: ignore[method-assign]


def _watch_sessions() -> None:
    fetch, acknowledge, remove = ShareSessions.fetch, ShareSessions.acknowledge, ShareSessions.remove

    def watched_fetch(
        self: ShareSessions, group_id: str, member_id: str, epoch: int, **given: Any
    ) -> ShareSession:
        return _session(self, fetch, group_id, member_id, epoch, given, is_fetch=True)

    def watched_acknowledge(self: ShareSessions, group_id: str, member_id: str, epoch: int) -> ShareSession:
        return _session(self, acknowledge, group_id, member_id, epoch, {}, is_fetch=False)

    def watched_remove(self: ShareSessions, session: ShareSession) -> None:
        remove(self, session)
        _watchers[0].session_removed(session)

    ShareSessions.fetch = watched_fetch  # type: ignore[method-assign,assignment]
    ShareSessions.acknowledge = watched_acknowledge  # type: ignore[method-assign]
    ShareSessions.remove = watched_remove  # type: ignore[method-assign]


def _session(
    sessions: ShareSessions,
    method: Any,
    group_id: str,
    member_id: str,
    epoch: int,
    given: Any,
    *,
    is_fetch: bool,
) -> ShareSession:
    watcher = _watchers[0]
    expected = watcher.session_asked(group_id, member_id, epoch, is_fetch=is_fetch, **given)
    try:
        session: ShareSession = method(sessions, group_id, member_id, epoch, **given)
    except ShareError as error:
        watcher.session_given(expected, None, error)
        raise
    watcher.session_given(expected, session, None)
    return session
