"""The control socket is the operator's alone, from its first moment on."""

import os
import socket
import stat
from pathlib import Path

import pytest

from headrace import Broker
from headrace.broker import control


def test_nobody_can_connect_before_the_socket_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[bool] = []
    chmod = os.chmod

    def try_first(path: Path, mode: int, **more: bool) -> None:
        if path.name == control.CONTROL:
            with socket.socket(socket.AF_UNIX) as early:
                refused.append(early.connect_ex(str(path)) != 0)
        chmod(path, mode, **more)

    monkeypatch.setattr(os, "chmod", try_first)
    with Broker(data_dir=tmp_path / "data"):
        made = tmp_path / "data" / control.CONTROL
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as operator:
            operator.connect(str(made))
    assert refused == [True]
    assert not made.exists()


def test_a_path_that_is_too_long_for_a_socket_only_costs_backups(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=tmp_path / ("long" * 30)):
        assert "`headrace backup` will not work" in caplog.text
