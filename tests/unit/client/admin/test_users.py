"""Users are checked before anything is hashed or sent."""

import pytest

from headrace import Admin, Broker
from headrace.client.errors import ConfigError


def test_passwords_that_no_broker_takes_are_refused_before_they_are_hashed() -> None:
    """A thousand million iterations would keep the client busy for minutes."""
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for iterations in (-1, 0, 4_095, 16_385, 1_000_000_000):
            with pytest.raises(ConfigError, match=f"iterations must be 4096 to 16384, got {iterations}"):
                admin.set_user_password("ann", "secret", iterations=iterations)
        with pytest.raises(ConfigError, match="password of user 'ann' must not be empty"):
            admin.set_user_password("ann", "")
        for iterations in (4_096, 16_384):
            admin.set_user_password("ann", "secret", iterations=iterations)
        assert [user.credentials for user in admin.list_users()] == [{"SCRAM-SHA-512": 16_384}]
