"""How the members of share sessions are named beside the holds that they let go of (wire/share_holds.py).

A session's member is named from when it opens the session until the records of its last one are given back.
"""

from headrace.broker.call import Call
from headrace.share.session import ShareSession, ShareSessions
from headrace.wire.share_holds import encode_member


class MemberNames:
    def __init__(self, sessions: ShareSessions) -> None:
        self._sessions = sessions
        self._names: dict[tuple[str, str], bytes] = {}
        """By group and member."""

    def __len__(self) -> int:
        return len(self._names)

    def opened(self, session: ShareSession, call: Call) -> None:
        name = encode_member(session.member_id, call.client_id, call.client_host)
        self._names[session.group_id, session.member_id] = name

    def released(self, session: ShareSession) -> None:
        """Nobody holds anything of that session any more. The member may have opened another one meanwhile."""
        if self._sessions.get(session.group_id, session.member_id) is None:
            self._names.pop((session.group_id, session.member_id), None)

    def of(self, group_id: str, member_id: str) -> bytes:
        return self._names.get((group_id, member_id)) or encode_member(member_id, "", "")
