"""Many sessions in many ways: the same figures in any number of processes, and after any interruption."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest

from thresher.errors import OptionError
from thresher.model import Session
from thresher.replay import Rates
from thresher.replay import sweep as sweeping
from thresher.replay.recording import build_session_recordings
from thresher.replay.scores import FULL_HISTORY, StrategySetting
from thresher.replay.simulate import ReplayTotals, replay_recording
from thresher.replay.strategies.registry import (
    BASELINES,
    PEER_STRATEGIES,
    STRATEGIES,
    is_baseline,
    make_strategy,
    policy_file,
    rates_for_price_list,
    select_strategies,
)
from thresher.replay.sweep import run_sweep, run_unit
from thresher.replay.sweep_results import SweepResults, SweepUnit, UnitResult
from thresher.transcripts import read_all

WAYS_TRIED: list[tuple[str, int | None]] = [("recency", 300), ("recency", 900), ("oracle-batched", 600)]


def conversation(calls: int, seed: int = 0) -> list[dict[str, Any]]:
    """An agent that reads files and edits, now and then, a line of one that it read long before."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Please tidy these modules."}]
    for n in range(calls):
        if n % 4 == 3:
            old = line(seed, n // 2)
            used = {"name": "Edit", "input": {"file_path": f"/p/file_{n}.py", "old_string": old, "new_string": "pass"}}
            told = "done"
        else:
            used = {"name": "Read", "input": {"file_path": f"/p/file_{n}.py"}}
            told = "\n".join([f"# part {n} of {seed}: " + "filler words " * 30, line(seed, n)])
        rows.append({"role": "assistant", "content": [{"type": "tool_use", "id": f"t{n}", **used}]})
        rows.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": told}]})
    return rows


def line(seed: int, n: int) -> str:
    return f"value_{seed}_{n} = compute_total(order_{n}, discount_{n})"


def write_conversation(path: Path, calls: int, seed: int = 0) -> Path:
    path.write_text(json.dumps(conversation(calls, seed)))
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        write_conversation(tmp_path / f"{name}.json", calls, seed)
        for seed, (name, calls) in enumerate((("small", 18), ("large", 30), ("short", 5)))
    ]


def comparable(results: SweepResults) -> dict[StrategySetting, dict[str, Any]]:
    """All but the time that it took."""
    return {
        setting: {key: {**msgspec.to_builtins(one), "seconds": 0} for key, one in by.items()}
        for setting, by in results.tallies.items()
    }


def sessions_of(files: Iterable[Path]) -> list[Session]:
    return [session for path in files for session in read_all(path)]


def test_a_sweep_tells_what_replaying_by_hand_does(files: list[Path]) -> None:
    results = run_sweep(files, WAYS_TRIED, Rates())
    by_hand: dict[StrategySetting, dict[str, ReplayTotals]] = {
        setting: {} for setting in [*(StrategySetting(*one) for one in WAYS_TRIED), StrategySetting(FULL_HISTORY, None)]
    }
    for session in sessions_of(files[:2]):
        for name, budget in by_hand:
            found = ReplayTotals()
            for recording in build_session_recordings(session):
                found.add(replay_recording(recording, make_strategy(name, budget, Rates()), Rates()))
            by_hand[StrategySetting(name, budget)][f"{session.file}#{session.id}"] = found
    assert comparable(results) == comparable(SweepResults(tallies=by_hand))
    assert results.tallies[StrategySetting(FULL_HISTORY, None)][f"{files[1]}#large"].bearing > 3


def test_facts_and_floors_are_kept_by_session_and_short_recordings_are_counted(files: list[Path]) -> None:
    results = run_sweep(files, WAYS_TRIED, Rates())
    facts = [(Path(one.file).name, one.id, one.agent, one.calls) for one in results.sessions.values()]
    assert facts == [("large.json", "large", "anthropic", 30), ("small.json", "small", "anthropic", 18)]
    assert {key: [one.calls for one in floors] for key, floors in results.floors.items()} == {
        f"{files[1]}#large": [30],
        f"{files[0]}#small": [18],
    }
    assert (results.short, results.files, results.failures) == (1, 3, [])
    assert run_sweep(files, [], Rates(), minimum=5).short == 0


def test_more_processes_find_the_same(files: list[Path]) -> None:
    alone = run_sweep(files, WAYS_TRIED, Rates())
    assert comparable(run_sweep(files, WAYS_TRIED, Rates(), jobs=2)) == comparable(alone)


def test_progress_counts_up_to_all_units(files: list[Path]) -> None:
    told: list[tuple[int, int]] = []
    run_sweep(files, WAYS_TRIED, Rates(), progress=lambda done, total: told.append((done, total)))
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert told[-1] == (7, 7)  # three files in full, and two of them in two ways


def test_a_policy_of_ours_is_measured_in_small_pieces_so_that_little_is_lost(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = [("auto", budget) for budget in (400, 600, 800, 1000, 1200)]
    folder = tmp_path / "resume"
    whole = run_sweep(files, ways, Rates())
    with monkeypatch.context() as patch:
        begun = broken_from(patch, 4)  # three files in full, and a piece of the largest
        with pytest.raises(KeyboardInterrupt):
            run_sweep(files, ways, Rates(), resume=folder)
    assert [unit.budgets for unit in begun[3:]] == [(400, 600)]
    again = broken_from(monkeypatch, 100)
    assert comparable(run_sweep(files, ways, Rates(), resume=folder)) == comparable(whole)
    assert [unit.budgets for unit in again] == [(800, 1000), (1200,), (400, 600), (800, 1000), (1200,)]


def test_what_a_policy_raises_at_every_budget_is_told_once(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def never(history):\n    raise ValueError('no')\n")
    results = run_sweep(files, [(f"{path}:never", budget) for budget in (300, 400, 500, 600)], Rates())
    assert [Path(one.file).name for one in results.failures] == ["large.json", "small.json"]


def test_what_was_begun_long_ago_goes_and_what_was_begun_lately_stays(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "resume"
    folder.mkdir()
    day = 24 * 3600
    for name, age in (("old.jsonl", 31 * day), ("new.jsonl", 29 * day), ("other.txt", 99 * day)):
        (folder / name).write_text("{}")
        os.utime(folder / name, (time() - age,) * 2)
    run_sweep(files, [], Rates(), resume=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["new.jsonl", "other.txt"]


def test_what_cannot_be_read_is_told_and_the_rest_goes_on(files: list[Path], tmp_path: Path) -> None:
    strange, gone = tmp_path / "shopping.txt", tmp_path / "gone.json"
    strange.write_text("milk")
    results = run_sweep([*files, strange, gone], WAYS_TRIED, Rates())
    assert [(Path(one.file).name, one.way, one.kind) for one in results.failures] == [
        ("shopping.txt", "", "format"),
        ("gone.json", "", "read"),
    ]
    assert len(results.sessions) == 2


def test_a_policy_that_raises_on_one_session_is_told_and_has_the_others(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def picky(history):\n"
        "    if any('value_1_' in part.text for m in history for part in m.parts if hasattr(part, 'text')):\n"
        "        raise ValueError('not these')\n"
        "    return ()\n"
    )
    name = f"{path}:picky"
    results = run_sweep(files, [(name, 500), ("recency", 500)], Rates())
    mine = results.tallies[StrategySetting(name, 500)]
    assert [(Path(one.file).name, one.way) for one in results.failures] == [("large.json", name)]
    assert "not these" in results.failures[0].error
    assert list(mine) == [f"{files[0]}#small"]
    assert len(results.tallies[StrategySetting("recency", 500)]) == 2


@pytest.mark.parametrize("last", ["raise SystemExit", "raise ValueError('boom \\udcff')"])
def test_whoever_ends_the_program_or_speaks_no_text_is_told_like_any_other(
    last: str, files: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def ends(history):\n    {last}\n")
    results = run_sweep(files, [(f"{path}:ends", 500)], Rates(), resume=tmp_path / "resume")
    assert {Path(one.file).name for one in results.failures} == {"small.json", "large.json"}
    path.write_text("raise SystemExit")
    with pytest.raises(OptionError, match="SystemExit"):
        make_strategy(f"{path}:ends", 500, Rates())


def test_a_file_whose_name_is_no_text_stops_nothing(files: list[Path], tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff.json"))
    try:
        write_conversation(odd, 20, 7)
    except OSError:
        pytest.skip("this file system has no such names")
    results = run_sweep([*files, odd], [("recency", 500)], Rates(), resume=tmp_path / "resume")
    assert len(results.tallies[StrategySetting("recency", 500)]) == 3


def test_what_failed_is_tried_again(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, path = tmp_path / "resume", tmp_path / "mine.py"
    path.write_text("def fails(history):\n    raise ValueError\n")
    ways: list[tuple[str, int | None]] = [(f"{path}:fails", 500), ("recency", 500)]
    with monkeypatch.context() as patch:
        broken_from(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(files, ways, Rates(), resume=folder)
    saved = [json.loads(row) for one in folder.iterdir() for row in one.read_text().splitlines()]
    assert saved
    assert not any(row["failures"] for row in saved)


def broken_from(monkeypatch: pytest.MonkeyPatch, number: int) -> list[SweepUnit]:
    """From this unit on the machine is switched off; what is begun before is noted."""
    begun: list[SweepUnit] = []
    real = run_unit

    def run(unit: SweepUnit) -> UnitResult:
        if len(begun) == number:
            raise KeyboardInterrupt
        begun.append(unit)
        return real(unit)

    monkeypatch.setattr(sweeping, "run_unit", run)
    return begun


def test_a_sweep_that_was_stopped_goes_on_where_it_was(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "resume"
    whole = run_sweep(files, WAYS_TRIED, Rates())
    with monkeypatch.context() as patch:
        first = broken_from(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(files, WAYS_TRIED, Rates(), resume=folder)
    [saved] = folder.iterdir()
    assert len(saved.read_bytes().splitlines()) == 4
    with monkeypatch.context() as patch:
        second = broken_from(patch, 100)
        results = run_sweep(files, WAYS_TRIED, Rates(), resume=folder)
    assert len(second) == 3
    assert not {unit.name for unit in first} & {unit.name for unit in second}
    assert comparable(results) == comparable(whole)
    assert results.sessions == whole.sessions
    assert results.floors == whole.floors
    assert list(folder.iterdir()) == []


def test_a_torn_line_is_done_again_and_tears_no_other(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "resume"
    for stop, torn in ((4, True), (1, False)):
        with monkeypatch.context() as patch:
            begun = broken_from(patch, stop)
            with pytest.raises(KeyboardInterrupt):
                run_sweep(files, WAYS_TRIED, Rates(), resume=folder)
        assert len(begun) == stop
        [saved] = folder.iterdir()
        if torn:
            saved.write_bytes(saved.read_bytes()[:-20])
        else:
            saved.write_bytes(saved.read_bytes() + b'{"name": "\xff\xfe"}\n')
    with monkeypatch.context() as patch:
        begun = broken_from(patch, 100)
        results = run_sweep(files, WAYS_TRIED, Rates(), resume=folder)
    assert len(begun) == 3
    assert comparable(results) == comparable(run_sweep(files, WAYS_TRIED, Rates()))


@pytest.mark.parametrize("change", ["rates", "file", "settings", "policy"])
def test_what_a_figure_depends_on_is_never_taken_from_before(
    change: str, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text("def keep(history):\n    return ()\n")
    ways = [(f"{policy}:keep", 500)]
    with monkeypatch.context() as patch:
        broken_from(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(files, ways, Rates(), resume=tmp_path / "resume")
    rates = Rates(write=2.0) if change == "rates" else Rates()
    if change == "file":
        write_conversation(files[0], 22)
    elif change == "settings":
        monkeypatch.setenv("THRESHER_EXCLUDE_TOOLS", "Edit")
    elif change == "policy":
        policy.write_text("def keep(history):\n    return []\n")
    begun = broken_from(monkeypatch, 100)
    run_sweep(files, ways, rates, resume=tmp_path / "resume")
    assert len(begun) == 5


def test_a_folder_that_cannot_be_written_stops_nothing(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert len(run_sweep(files, WAYS_TRIED, Rates(), resume=tmp_path / "file").sessions) == 2


def test_a_sub_agents_own_file_is_told_with_its_parent(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    real = read_all

    def family(path: str) -> list[Session]:
        sessions = real(path)
        if Path(path).name == "large.json":
            child = real(files[0])[0]
            sessions = [msgspec.structs.replace(sessions[0], children=(child,))]
        return sessions

    monkeypatch.setattr(sweeping, "read_all", family)
    results = run_sweep(files, WAYS_TRIED, Rates())
    assert [(one.id, one.recordings, one.calls) for one in results.sessions.values()] == [("large", 2, 48)]
    assert all(list(by) == [f"{files[1]}#large"] for by in results.tallies.values())


def test_the_full_history_is_always_there_once_whatever_budget_it_is_asked_for(files: list[Path]) -> None:
    results = run_sweep(files, [(FULL_HISTORY, 8), (FULL_HISTORY, 9)], Rates())
    assert list(results.tallies) == [StrategySetting(FULL_HISTORY, None)]


# Names


@pytest.mark.parametrize(
    "name", [*BASELINES, *(one for one in PEER_STRATEGIES if not one.startswith("langchain")), "auto", "mask"]
)
def test_every_name_makes_a_way_that_takes_a_session(name: str, files: list[Path]) -> None:
    results = run_sweep(files[:1], [(name, 600)], Rates())
    assert results.failures == []
    assert all(len(by) == 1 for by in results.tallies.values())


def test_groups_hold_what_they_say_and_a_name_counts_once() -> None:
    found, missing = select_strategies(["recency", "controls", "full"])
    assert (sorted(found), missing) == (sorted(BASELINES), [])
    assert found[0] == "recency"
    peers, absent = select_strategies(["peers"])
    assert sorted([*peers, *absent]) == sorted(PEER_STRATEGIES)
    every = {name for names in select_strategies(["all"]) for name in names}
    assert every >= {*BASELINES, *PEER_STRATEGIES, "auto", "smart"}
    assert every <= set(STRATEGIES)


def test_presets_of_the_user_have_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thresher.toml").write_text('[presets]\nmine = ["mask"]\n')
    assert "mine" in select_strategies(["presets"])[0]
    results = run_sweep(files[:1], [("mine", 600)], Rates())
    assert len(results.tallies[StrategySetting("mine", 600)]) == 1


def test_a_name_that_nobody_has_lists_those_that_there_are() -> None:
    with pytest.raises(OptionError, match=r"newest-batched.*cline.*presets") as error:
        select_strategies(["newset"])
    assert all(name in str(error.value) for name in STRATEGIES)
    with pytest.raises(OptionError, match="anthropic-1h"):
        rates_for_price_list("free")


@pytest.mark.parametrize(
    ("old", "new"),
    [("fading", "decay"), ("development", "none"), ('batches{"patience": 2}', 'batch-summary{"patience": 2}')],
)
def test_an_old_name_of_a_policy_or_preset_selects_the_current_one(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=new.partition("{")[0]):
        assert select_strategies([old]) == ([new], [])


def test_price_lists_differ_in_what_they_ask_for() -> None:
    hour, minutes = rates_for_price_list("anthropic-1h"), rates_for_price_list("anthropic")
    assert (hour.ttl, minutes.ttl) == (3600, 300)
    assert hour.write > minutes.write == pytest.approx(1.25)


def test_a_policy_in_a_file_is_found_and_a_missing_one_is_said_clearly(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "class Keep:\n    def __call__(self, history):\n        return ()\n\n"
        "def keep(history):\n    return ()\n\nNUMBER = 3\n"
    )
    assert select_strategies([f"{path}:keep", f"{path}:Keep"])[0] == [f"{path}:keep", f"{path}:Keep"]
    assert policy_file(f"{path}:keep") == path
    assert policy_file("newest-batched") is None
    for name, told in ((f"{path}:none", "it has Keep, keep"), (f"{path}:NUMBER", "no policy"), ("no.py:x", "no file")):
        with pytest.raises(OptionError, match=told):
            select_strategies([name])
    path.write_text("import nothing_like_it\n")
    with pytest.raises(OptionError, match="nothing_like_it"):
        select_strategies([f"{path}:keep"])


def test_a_policy_file_may_have_dataclasses_and_annotations_of_the_future(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import KW_ONLY, dataclass\n"
        "from typing import Callable\n\n"
        "@dataclass\nclass Few:\n    _: KW_ONLY\n    keep: int = 3\n"
        "    def __call__(self, history: list[str]) -> tuple[()]:\n        return ()\n\n"
        "few = Few(keep=1)\n"
    )
    assert select_strategies([f"{path}:Few", f"{path}:few"])[0] == [f"{path}:Few", f"{path}:few"]
    with pytest.raises(OptionError, match=r"it has Few, few$"):
        select_strategies([f"{path}:none"])


def test_a_policy_file_is_run_once_until_it_changes(tmp_path: Path) -> None:
    path, log = tmp_path / "mine.py", tmp_path / "log"
    text = f"with open({str(log)!r}, 'a') as file:\n    file.write('x')\ndef keep(history):\n    return ()\n"
    path.write_text(text)
    for budget in (100, 200, 300):
        make_strategy(f"{path}:keep", budget, Rates())
    assert log.read_text() == "x"
    path.write_text(text.replace("'x'", "'y'"))
    os.utime(path, (time() + 5,) * 2)
    make_strategy(f"{path}:keep", 100, Rates())
    assert log.read_text() == "xy"
    path.write_text("raise ValueError('broken')\n")
    before = set(sys.modules)
    with pytest.raises(OptionError, match="ValueError: broken"):
        make_strategy(f"{path}:keep", 100, Rates())
    assert set(sys.modules) == before
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("name", [*BASELINES, *(one for one in PEER_STRATEGIES if not one.startswith("langchain"))])
def test_a_way_is_called_what_the_tables_call_it(name: str) -> None:
    assert make_strategy(name, 600, Rates()).name == name


def test_chance_is_a_control_with_any_seed() -> None:
    assert is_baseline("random-7")
    assert not any(is_baseline(name) for name in ("auto", "random-few", "cline"))
