"""Sweeps over many sessions and strategies: the same figures with any number of processes and after interruptions."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest
from unit_recorder import UnitRecorder

from thresher.errors import OptionError
from thresher.model import Session
from thresher.replay import Rates
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
from thresher.replay.sweep_results import SweepResults
from thresher.transcripts import read_all

WAYS_TRIED: list[tuple[str, int | None]] = [("recency", 300), ("recency", 900), ("oracle-batched", 600)]


def conversation(calls: int, seed: int = 0) -> list[dict[str, Any]]:
    """Build an agent's session that reads files and sometimes edits a line that it read long before."""
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
    """Return everything but the elapsed time."""
    return {
        setting: {key: {**msgspec.to_builtins(one), "seconds": 0} for key, one in by.items()}
        for setting, by in results.totals_by_setting.items()
    }


def sessions_of(files: Iterable[Path]) -> list[Session]:
    return [session for path in files for session in read_all(path)]


def test_sweep_agrees_with_separate_replays(files: list[Path]) -> None:
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
    assert comparable(results) == comparable(SweepResults(totals_by_setting=by_hand))
    assert results.totals_by_setting[StrategySetting(FULL_HISTORY, None)][f"{files[1]}#large"].calls_with_references > 3


def test_facts_and_minimum_costs_are_kept_by_session(files: list[Path]) -> None:
    results = run_sweep(files, WAYS_TRIED, Rates())
    facts = [(Path(one.file).name, one.id, one.agent, one.calls) for one in results.sessions.values()]
    assert facts == [("large.json", "large", "anthropic", 30), ("small.json", "small", "anthropic", 18)]
    assert {key: [one.calls for one in minimum_costs] for key, minimum_costs in results.minimum_costs.items()} == {
        f"{files[1]}#large": [30],
        f"{files[0]}#small": [18],
    }
    assert (results.short, results.files, results.failures) == (1, 3, [])
    assert run_sweep(files, [], Rates(), minimum=5).short == 0


def test_several_processes_produce_the_same_results(files: list[Path]) -> None:
    alone = run_sweep(files, WAYS_TRIED, Rates())
    assert comparable(run_sweep(files, WAYS_TRIED, Rates(), jobs=2)) == comparable(alone)


def test_progress_counts_up_to_all_units(files: list[Path]) -> None:
    told: list[tuple[int, int]] = []
    run_sweep(files, WAYS_TRIED, Rates(), progress=lambda done, total: told.append((done, total)))
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert told[-1] == (7, 7)  # three files with the full history, and two of them with two strategies


def test_window_policy_runs_in_small_units(files: list[Path], tmp_path: Path) -> None:
    ways = [("auto", budget) for budget in (400, 600, 800, 1000, 1200)]
    folder = tmp_path / "resume"
    whole = run_sweep(files, ways, Rates())
    begun = UnitRecorder(4)  # three files with the full history, and one unit of the largest
    with pytest.raises(KeyboardInterrupt):
        run_sweep(files, ways, Rates(), resume=folder, run=begun)
    assert [unit.budgets for unit in begun.units[3:]] == [(400, 600)]
    again = UnitRecorder()
    assert comparable(run_sweep(files, ways, Rates(), resume=folder, run=again)) == comparable(whole)
    assert [unit.budgets for unit in again.units] == [(800, 1000), (1200,), (400, 600), (800, 1000), (1200,)]


def test_policy_that_raises_at_every_budget_is_reported_once(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def never(history):\n    raise ValueError('no')\n")
    results = run_sweep(files, [(f"{path}:never", budget) for budget in (300, 400, 500, 600)], Rates())
    assert [Path(one.file).name for one in results.failures] == ["large.json", "small.json"]


def test_old_checkpoints_are_deleted_and_recent_ones_kept(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "resume"
    folder.mkdir()
    day = 24 * 3600
    for name, age in (("old.jsonl", 31 * day), ("new.jsonl", 29 * day), ("other.txt", 99 * day)):
        (folder / name).write_text("{}")
        os.utime(folder / name, (time() - age,) * 2)
    run_sweep(files, [], Rates(), resume=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["new.jsonl", "other.txt"]


def test_unreadable_files_are_reported_and_the_others_replayed(files: list[Path], tmp_path: Path) -> None:
    strange, gone = tmp_path / "shopping.txt", tmp_path / "gone.json"
    strange.write_text("milk")
    results = run_sweep([*files, strange, gone], WAYS_TRIED, Rates())
    assert [(Path(one.file).name, one.strategy, one.kind) for one in results.failures] == [
        ("shopping.txt", "", "format"),
        ("gone.json", "", "read"),
    ]
    assert len(results.sessions) == 2


def test_policy_that_raises_on_one_session_keeps_the_others(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def picky(history):\n"
        "    if any('value_1_' in part.text for m in history for part in m.parts if hasattr(part, 'text')):\n"
        "        raise ValueError('not these')\n"
        "    return ()\n"
    )
    name = f"{path}:picky"
    results = run_sweep(files, [(name, 500), ("recency", 500)], Rates())
    mine = results.totals_by_setting[StrategySetting(name, 500)]
    assert [(Path(one.file).name, one.strategy) for one in results.failures] == [("large.json", name)]
    assert "not these" in results.failures[0].error
    assert list(mine) == [f"{files[0]}#small"]
    assert len(results.totals_by_setting[StrategySetting("recency", 500)]) == 2


@pytest.mark.parametrize("last", ["raise SystemExit", "raise ValueError('boom \\udcff')"])
def test_system_exit_and_invalid_text_are_reported_like_other_errors(
    last: str, files: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def ends(history):\n    {last}\n")
    results = run_sweep(files, [(f"{path}:ends", 500)], Rates(), resume=tmp_path / "resume")
    assert {Path(one.file).name for one in results.failures} == {"small.json", "large.json"}
    path.write_text("raise SystemExit")
    with pytest.raises(OptionError, match="SystemExit"):
        make_strategy(f"{path}:ends", 500, Rates())


def test_undecodable_file_name_does_not_stop_a_sweep(files: list[Path], tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff.json"))
    try:
        write_conversation(odd, 20, 7)
    except OSError:
        pytest.skip("this file system has no such names")
    results = run_sweep([*files, odd], [("recency", 500)], Rates(), resume=tmp_path / "resume")
    assert len(results.totals_by_setting[StrategySetting("recency", 500)]) == 3


def test_failed_units_run_again(files: list[Path], tmp_path: Path) -> None:
    folder, path = tmp_path / "resume", tmp_path / "mine.py"
    path.write_text("def fails(history):\n    raise ValueError\n")
    ways: list[tuple[str, int | None]] = [(f"{path}:fails", 500), ("recency", 500)]
    with pytest.raises(KeyboardInterrupt):
        run_sweep(files, ways, Rates(), resume=folder, run=UnitRecorder(6))
    saved = [json.loads(row) for one in folder.iterdir() for row in one.read_text().splitlines()]
    assert saved
    assert not any(row["failures"] for row in saved)


def test_interrupted_sweep_resumes(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "resume"
    whole = run_sweep(files, WAYS_TRIED, Rates())
    first = UnitRecorder(4)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(files, WAYS_TRIED, Rates(), resume=folder, run=first)
    [saved] = folder.iterdir()
    assert len(saved.read_bytes().splitlines()) == 4
    second = UnitRecorder()
    results = run_sweep(files, WAYS_TRIED, Rates(), resume=folder, run=second)
    assert len(second.units) == 3
    assert not {unit.name for unit in first.units} & {unit.name for unit in second.units}
    assert comparable(results) == comparable(whole)
    assert results.sessions == whole.sessions
    assert results.minimum_costs == whole.minimum_costs
    assert list(folder.iterdir()) == []


def test_incomplete_checkpoint_line_is_run_again(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "resume"
    for stop, torn in ((4, True), (1, False)):
        begun = UnitRecorder(stop)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(files, WAYS_TRIED, Rates(), resume=folder, run=begun)
        assert len(begun.units) == stop
        [saved] = folder.iterdir()
        if torn:
            saved.write_bytes(saved.read_bytes()[:-20])
        else:
            saved.write_bytes(saved.read_bytes() + b'{"name": "\xff\xfe"}\n')
    begun = UnitRecorder()
    results = run_sweep(files, WAYS_TRIED, Rates(), resume=folder, run=begun)
    assert len(begun.units) == 3
    assert comparable(results) == comparable(run_sweep(files, WAYS_TRIED, Rates()))


@pytest.mark.parametrize("change", ["rates", "file", "settings", "policy"])
def test_changed_inputs_invalidate_the_checkpoint(
    change: str, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text("def keep(history):\n    return ()\n")
    ways = [(f"{policy}:keep", 500)]
    with pytest.raises(KeyboardInterrupt):
        run_sweep(files, ways, Rates(), resume=tmp_path / "resume", run=UnitRecorder(4))
    rates = Rates(write=2.0) if change == "rates" else Rates()
    if change == "file":
        write_conversation(files[0], 22)
    elif change == "settings":
        monkeypatch.setenv("THRESHER_EXCLUDE_TOOLS", "Edit")
    elif change == "policy":
        policy.write_text("def keep(history):\n    return []\n")
    begun = UnitRecorder()
    run_sweep(files, ways, rates, resume=tmp_path / "resume", run=begun)
    assert len(begun.units) == 5


def test_read_only_checkpoint_folder_does_not_stop_a_sweep(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert len(run_sweep(files, WAYS_TRIED, Rates(), resume=tmp_path / "file").sessions) == 2


def test_sub_agent_file_is_counted_with_its_parent(files: list[Path]) -> None:
    def family(path: str) -> list[Session]:
        sessions = read_all(path)
        if Path(path).name == "large.json":
            child = read_all(files[0])[0]
            sessions = [msgspec.structs.replace(sessions[0], children=(child,))]
        return sessions

    results = run_sweep(files, WAYS_TRIED, Rates(), run=lambda unit: run_unit(unit, family))
    assert [(one.id, one.recordings, one.calls) for one in results.sessions.values()] == [("large", 2, 48)]
    assert all(list(by) == [f"{files[1]}#large"] for by in results.totals_by_setting.values())


def test_full_history_runs_once_at_any_budget(files: list[Path]) -> None:
    results = run_sweep(files, [(FULL_HISTORY, 8), (FULL_HISTORY, 9)], Rates())
    assert list(results.totals_by_setting) == [StrategySetting(FULL_HISTORY, None)]


# Names


@pytest.mark.parametrize(
    "name", [*BASELINES, *(one for one in PEER_STRATEGIES if not one.startswith("langchain")), "auto", "mask"]
)
def test_every_name_creates_a_working_strategy(name: str, files: list[Path]) -> None:
    results = run_sweep(files[:1], [(name, 600)], Rates())
    assert results.failures == []
    assert all(len(by) == 1 for by in results.totals_by_setting.values())


def test_groups_expand_without_duplicates() -> None:
    found, missing = select_strategies(["recency", "controls", "full"])
    assert (sorted(found), missing) == (sorted(BASELINES), [])
    assert found[0] == "recency"
    peers, absent = select_strategies(["peers"])
    assert sorted([*peers, *absent]) == sorted(PEER_STRATEGIES)
    every = {name for names in select_strategies(["all"]) for name in names}
    assert every >= {*BASELINES, *PEER_STRATEGIES, "auto", "smart"}
    assert every <= set(STRATEGIES)


def test_user_presets_are_strategies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thresher.toml").write_text('[presets]\nmine = ["mask"]\n')
    assert "mine" in select_strategies(["presets"])[0]
    results = run_sweep(files[:1], [("mine", 600)], Rates())
    assert len(results.totals_by_setting[StrategySetting("mine", 600)]) == 1


def test_unknown_name_lists_the_available_ones() -> None:
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


def test_price_lists_differ() -> None:
    hour, minutes = rates_for_price_list("anthropic-1h"), rates_for_price_list("anthropic")
    assert (hour.ttl, minutes.ttl) == (3600, 300)
    assert hour.write > minutes.write == pytest.approx(1.25)


def test_policy_in_a_file_is_loaded_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "class Keep:\n    def __call__(self, history):\n        return ()\n\n"
        "def keep(history):\n    return ()\n\nNUMBER = 3\n"
    )
    assert select_strategies([f"{path}:keep", f"{path}:Keep"])[0] == [f"{path}:keep", f"{path}:Keep"]
    assert policy_file(f"{path}:keep") == path
    assert policy_file("newest-batched") is None
    for name, told in (
        (f"{path}:none", "in it: Keep, keep"),
        (f"{path}:NUMBER", "no policy"),
        ("no.py:x", "not exist"),
    ):
        with pytest.raises(OptionError, match=told):
            select_strategies([name])
    path.write_text("import nothing_like_it\n")
    with pytest.raises(OptionError, match="nothing_like_it"):
        select_strategies([f"{path}:keep"])


def test_policy_file_may_use_dataclasses_and_future_annotations(tmp_path: Path) -> None:
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
    with pytest.raises(OptionError, match=r"in it: Few, few"):
        select_strategies([f"{path}:none"])


def test_policy_file_runs_once_until_it_changes(tmp_path: Path) -> None:
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
def test_strategy_name_is_its_table_name(name: str) -> None:
    assert make_strategy(name, 600, Rates()).name == name


def test_random_with_any_seed_is_a_baseline() -> None:
    assert is_baseline("random-7")
    assert not any(is_baseline(name) for name in ("auto", "random-few", "cline"))
