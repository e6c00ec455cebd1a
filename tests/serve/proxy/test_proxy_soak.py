"""A slice of `make soak`: sessions survive faults on all sides, a kill and a restart."""

import logging
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from soak_proxy import run


def test_sessions_survive_faults_and_a_kill(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "aiohttp.server")
    report = run(calls=9, sessions=2, kills=1, seed=3, disk_is_full=False)
    assert report.problems == []
    assert report.seen["kills"] == 1
    assert report.seen["prefix breaks"] > 0
