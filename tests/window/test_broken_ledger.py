"""A ledger that cannot be read or written costs the window its memory, never the request."""

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from thresher.store import InMemoryContentStore
from thresher.store.sqlite_file import sqlite_errors
from thresher.window import Ledger, Window
from thresher.window import ledger as ledgers
from thresher.window.ledger import LedgerError

RESULT = "a long line of words\n" * 100


def request(calls: int) -> list[Any]:
    """Return the messages of an agent's loop after some calls."""
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for n in range(calls):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {RESULT}"})
    return messages


def open_window(path: Path) -> Window:
    """Open a window with that ledger; it may warn that the ledger cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Window(budget=6_000, counter="estimate", store=InMemoryContentStore(), ledger=path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a ledger with replans and facts."""
    window = open_window(tmp_path / "ledger")
    for calls in range(1, 16):
        window.fit(request(calls), at=calls)
    assert any(event.edits for event in window.events)
    return tmp_path / "ledger"


def check_the_loop_goes_on(path: Path) -> None:
    """Run two more calls with a ledger that fails; each reports it once."""
    window = open_window(path)
    for calls in (3, 4):
        assert window.fit(request(calls), at=calls) == request(calls)
    reasons = [(event.calls_before, event.reason) for event in window.events[1:]]
    assert {event.trigger for event in window.events} == {"store"}
    assert len(set(reasons)) == len(reasons) >= 1


def test_a_ledger_that_is_a_folder_does_not_stop_the_loop(tmp_path: Path) -> None:
    check_the_loop_goes_on(tmp_path)


def test_a_ledger_below_a_file_does_not_stop_the_loop(path: Path) -> None:
    check_the_loop_goes_on(path / "ledger")


def test_a_file_that_is_no_ledger_does_not_stop_the_loop(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no database at all " * 400)
    check_the_loop_goes_on(tmp_path / "other")


def test_a_ledger_on_a_full_disk_does_not_stop_the_loop() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    check_the_loop_goes_on(Path("/dev/full"))


def test_a_window_warns_once_that_it_starts_without_its_ledger(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="starts without its ledger"):
        window = Window(budget=6_000, store=InMemoryContentStore(), ledger=tmp_path)
    window.fit(request(1))


@pytest.fixture
def locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Path of a ledger to which another process writes all the time."""
    monkeypatch.setattr(ledgers, "LOCK_TIMEOUT_SECONDS", 0.001)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield path


def test_a_locked_ledger_does_not_stop_the_loop(locked: Path) -> None:
    check_the_loop_goes_on(locked)


def test_after_a_failure_nothing_waits_for_the_lock_again(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(locked)
    attempts: list[str] = []
    connect = ledger._connect

    def count() -> sqlite3.Connection:
        attempts.append("attempt")
        return connect()

    monkeypatch.setattr(ledger, "_connect", count)
    with ledger.attempt_once():
        for _ in range(3):
            with pytest.raises(LedgerError, match="locked"):
                ledger.set_fact("name", 1)
    assert len(attempts) == 1
    with pytest.raises(LedgerError, match="locked"):
        ledger.set_fact("name", 1)
    assert len(attempts) == 2


def test_a_lock_delays_a_call_by_less_than_a_second() -> None:
    assert ledgers.LOCK_TIMEOUT_SECONDS * 3 < 1  # opening a file waits for three statements at most


VALUES: tuple[Any, ...] = (None, "x", b"\xff\xfe", 12345, -1, "{}", "[]", '[{"kind":"drop"}]', '["a", "b", 1, {}]')


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("column", ["epochs.chain", "epochs.serial", "epochs.body", "facts.value"])
def test_wrong_values_in_a_ledger_do_not_stop_the_loop(column: str, value: Any, path: Path) -> None:
    table, _, name = column.partition(".")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            connection.execute(f"UPDATE OR IGNORE {table} SET {name} = ?", (value,))
        except sqlite_errors()[0]:
            pytest.skip("the database rejects this value")
    window = open_window(path)
    for calls in (15, 16):
        assert window.fit(request(calls), at=calls)[0] == request(1)[0]


def test_edits_that_cannot_be_applied_are_left_out(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        bodies = connection.execute("SELECT number, body FROM epochs").fetchall()
        for number, body in bodies:
            connection.execute("UPDATE epochs SET body = ? WHERE number = ?", (_with_other_targets(body), number))
    window = open_window(path)
    assert window.fit(request(3), at=3) == request(3)
    assert window.fit(request(15), at=15)[0] == request(1)[0]
    assert [event.reason for event in window.events if "cannot be applied" in event.reason]


def _with_other_targets(body: bytes) -> bytes:
    """Change the id of each target, as flipped bits would."""
    return body.replace(b'"target":["', b'"target":["0').replace(b'"targets":[["', b'"targets":[["0')


@pytest.mark.parametrize("start", range(0, 4096, 256))
def test_flipped_bytes_in_a_ledger_do_not_stop_the_loop(start: int, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for offset in range(start, len(data), 4096):
        data[offset] ^= 0x55
    path.write_bytes(data)
    window = open_window(path)
    for calls in (15, 16):
        assert window.fit(request(calls), at=calls)
