"""`thresher tune`, for people and for programs."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thresher.budget import load_settings
from thresher.cli import cli
from thresher.cli.common import progress_bar
from thresher.cli.tune import tune_command
from thresher.errors import ConvertError, OptionError, ReadError, ThresherError
from thresher.replay.sweep_results import ReplayFailure
from thresher.replay.tuning import search
from thresher.replay.tuning.holdout import HoldoutHalf, HoldoutSplit
from thresher.replay.tuning.search import MIN_REPORT_SESSIONS, SEARCH_SPACE, TRIALS, MeasuredDifference, TuningResult
from thresher.replay.tuning.trials import Trial, TuningSettings, make_default_settings
from thresher.store import get_data_folder
from thresher.window import Thresholds


def conversation(calls: int, seed: int) -> list[dict[str, Any]]:
    """Build an agent's session that reads modules and sometimes edits a line that it read before."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Please tidy these modules."}]
    for n in range(calls):
        arguments = {"file_path": f"/p/file_{n}.py"}
        name, told = "Read", f"# part {n} of {seed}: " + "filler words " * 60 + "\n" + _line(seed, n)
        if n % 4 == 3:
            name, told = "Edit", "done"
            arguments |= {"old_string": _line(seed, n - 2), "new_string": "pass"}
        call = {"type": "tool_use", "id": f"t{n}", "name": name, "input": arguments}
        rows.append({"role": "assistant", "content": [call]})
        rows.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": told}]})
    return rows


def _line(seed: int, n: int) -> str:
    return f"value_{seed}_{n} = compute_total(order_{n}, discount_{n})"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write four sessions of two projects, and change to a working folder."""
    folder = tmp_path / "runs"
    for seed, project in enumerate(("ape", "ape", "bee", "bee")):
        path = folder / project / f"run-{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(conversation(20 + seed, seed)))
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


FEW = ("--budget", "4k", "--jobs", "1")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*SEARCH_SPACE]:
        monkeypatch.delitem(SEARCH_SPACE, name)
    monkeypatch.setitem(SEARCH_SPACE, "low_water", (0.1, 0.5))


def trial(
    split: Any, choice: TuningSettings, paid: float, served: float = 0.97, sessions: int = MIN_REPORT_SESSIONS
) -> Trial:
    return Trial(
        key="k", split=split, settings=choice, served=served, tokens=1234.0, cost=paid, cost_with_refetch=paid,
        lost=0.0, sessions=sessions,
    )  # fmt: skip


def made_up(monkeypatch: pytest.MonkeyPatch, *, cost: MeasuredDifference, calls: int = 80, **others: Any) -> None:
    """Let the search return this result."""

    start = make_default_settings()
    best: TuningSettings = {**start, "min_expected_calls": calls, "budget": 60_000 if calls == 80 else start["budget"]}
    half = HoldoutHalf(("a", "b"), 1, 40)
    given: dict[str, Any] = {
        "target": 0.95, "split": HoldoutSplit("project", half, half), "defaults": trial("tune", start, 0.8),
        "chosen": trial("tune", best, 0.7), "before": trial("report", start, 0.9), "after": trial("report", best, 0.8),
        "cost": cost, "served": MeasuredDifference(0.0, 0.0, 0.0), "trials": 9, "reused": 2, "log": "the-log.jsonl",
        "failures": [],
    }  # fmt: skip
    found = TuningResult(**given | others)
    monkeypatch.setattr(search, "tune", lambda *_, **__: found)


BETTER, PERHAPS = MeasuredDifference(-0.1, -0.2, -0.05), MeasuredDifference(-0.1, -0.3, 0.05)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ("tune", *arguments))
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def words(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.mark.usefixtures("few")
def test_found_settings_are_written_and_read_by_windows(runs: Path) -> None:
    result = run(str(runs), *FEW, "--force")
    assert result.exit_code == 0, result.stderr
    told = words(result)
    for expected in (
        "2 sessions of 1 project", "definition v1", "2 configurations tried", "Log: ", "low_water 0.5 0.1",
        "tuning half, defaults", "tuning half, chosen", "report half, defaults", "report half, chosen",
        "Too few sessions for a recommendation (2). Write the settings with --force:",
        "A significant difference needs at least 8 sessions in the report half.", "[thresholds] low_water = 0.1",
        "Wrote thresher.toml. Every `Window` and `thresher fit` started in that folder will use it.",
    ):  # fmt: skip
        assert expected in told
    assert (load_settings().budget, load_settings().thresholds) == (4_000, {"low_water": 0.1})
    assert "# too few sessions to show that it is better" in Path("thresher.toml").read_text()
    assert "1 configuration tried, 1 of them read from the log" in words(run(str(runs), *FEW, "--trials", "1"))


@pytest.mark.usefixtures("few")
def test_json_contains_both_settings_on_both_halves(runs: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    result = run(str(runs), *FEW, "--json", "--log", str(log), "-o", "mine.toml", "--prices", "openai")
    assert result.exit_code == 0, result.stderr
    value = json.loads(result.stdout)
    assert (value["reference_definition"], value["prices"], value["served_target"], value["trials"]) == (
        "v1",
        "openai",
        0.95,
        2,
    )
    assert value["defaults"]["settings"] == make_default_settings(4_000)
    assert value["chosen"]["settings"].keys() == {"budget", *Thresholds.__dataclass_fields__}
    assert all(value[one].keys() == {"settings", "tuning", "report"} for one in ("defaults", "chosen"))
    change = value["chosen"]["report"]["cost_with_refetch"] - value["defaults"]["report"]["cost_with_refetch"]
    assert value["difference"]["cost_with_refetch"]["value"] == pytest.approx(change)
    assert (value["split"]["by"], value["split"]["tuning"]["projects"]) == ("project", 1)
    assert value["log"] == str(log)
    assert len(log.read_text().splitlines()) >= 3
    assert (value["better"], value["written"], Path("mine.toml").exists()) == (False, None, False)


def test_better_settings_are_written_without_force(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=BETTER)
    result = run(str(runs), "-o", "mine.toml")
    assert result.exit_code == 0
    assert "significantly better" in words(result)
    assert "`thresher fit` started in that folder will use it once it is named thresher.toml." in words(result)
    Path("mine.toml").unlink()
    data = run(str(runs), "--json", "-o", "mine.toml")
    value = json.loads(data.stdout)
    assert (data.exit_code, value["better"], value["written"]) == (0, True, "mine.toml")
    assert Path("mine.toml").read_text() == value["toml"]


def test_few_sessions_give_no_recommendation(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(
        monkeypatch,
        cost=BETTER,
        after=trial("report", {**make_default_settings(), "min_expected_calls": 80}, 0.8, sessions=7),
    )
    result = run(str(runs))
    assert (result.exit_code, Path("thresher.toml").exists()) == (0, False)
    assert "Too few sessions for a recommendation (7). Write the settings with --force:" in words(result)


def test_toml_lines_are_not_wrapped_in_a_narrow_terminal(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    half = HoldoutHalf(tuple(f"session-{n}" for n in range(1234)), 123, 1_234_567)
    made_up(monkeypatch, cost=PERHAPS, split=HoldoutSplit("project", half, half))
    lines = run(str(runs), "--force").output.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("# `thresher tune`"))
    end = next(n for n, line in enumerate(lines) if line.startswith("Wrote "))
    assert tomllib.loads("\n".join(lines[start:end])) == {"budget": 60_000, "thresholds": {"min_expected_calls": 80}}
    assert all(len(line) < 80 for line in lines[start:end])
    assert max(map(len, lines[start:end])) > 60
    assert (lines[start - 1], lines[end - 1]) == ("", "")


def test_insignificant_settings_are_shown_but_not_written(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=PERHAPS)
    result = run(str(runs))
    assert result.exit_code == 0
    assert "not significantly better than the defaults. Keep the defaults" in words(result)
    assert "−0.100 (−0.300 to +0.050)" in words(result)
    assert not Path("thresher.toml").exists()
    assert run(str(runs), "--force").exit_code == 0
    assert (load_settings().budget, load_settings().thresholds) == (60_000, {"min_expected_calls": 80})
    assert "# not significantly better" in Path("thresher.toml").read_text()


def test_cheap_settings_that_serve_too_little_are_not_written(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = trial("report", {**make_default_settings(), "min_expected_calls": 80}, 0.8, served=0.925)
    made_up(monkeypatch, cost=BETTER, served=MeasuredDifference(-0.05, -0.09, 0.02), after=after)
    told = words(run(str(runs)))
    assert "serve too few turns (92.5 %). Keep the defaults" in told
    assert "On the report half the chosen settings serve 92.5 %, below 95 %." in told
    assert not Path("thresher.toml").exists()


def test_best_defaults_write_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=MeasuredDifference(0.0, 0.0, 0.0), calls=Thresholds().min_expected_calls)
    result = run(str(runs), "--force")
    assert result.exit_code == 0
    assert "Keep them." in result.output
    assert not Path("thresher.toml").exists()
    assert json.loads(run(str(runs), "--json").stdout)["toml"] is None


def test_existing_file_is_kept_and_the_lines_are_shown(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=BETTER)
    Path("thresher.toml").write_text('policy = "mask"\n')
    result = run(str(runs))
    assert result.exit_code == 1
    assert "will not be changed" in result.stderr
    assert "Paste" in result.stderr
    assert "[thresholds]\nmin_expected_calls = 80" in result.output
    assert Path("thresher.toml").read_text() == 'policy = "mask"\n'
    data = run(str(runs), "--json")
    assert (data.exit_code, json.loads(data.stdout)["written"]) == (1, None)


def test_replaced_file_and_earlier_backups_are_kept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=BETTER)
    file = Path("thresher.toml")
    for text, name in (('policy = "mask"\n', "thresher.toml.bak"), ('policy = "smart"\n', "thresher.toml.bak2")):
        file.write_text(text)
        result = run(str(runs), "--force")
        assert result.exit_code == 0
        assert words(result).endswith(f"The previous file is now {name}.")
        assert (load_settings().policy, load_settings().thresholds, Path(name).read_text()) == (
            None,
            {"min_expected_calls": 80},
            text,
        )
    assert Path("thresher.toml.bak").read_text() == 'policy = "mask"\n'


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_file_with_the_same_settings_is_unchanged(
    runs: Path, monkeypatch: pytest.MonkeyPatch, force: tuple[str, ...]
) -> None:
    made_up(monkeypatch, cost=BETTER)
    text = 'policy = "mask"\nbudget = "60k"\n\n[thresholds]\nmin_expected_calls = 80\n'
    Path("thresher.toml").write_text(text)
    result = run(str(runs), *force)
    assert result.exit_code == 0
    assert "thresher.toml already contains these settings" in words(result)
    data = run(str(runs), "--json", *force)
    assert (data.exit_code, json.loads(data.stdout)["written"]) == (0, None)
    assert "already contains these settings" in data.stderr
    assert [(one.name, one.read_text()) for one in Path().iterdir()] == [("thresher.toml", text)]


def test_unwritable_output_is_refused_before_the_search(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "tune", lambda *_, **__: pytest.fail("searched"))
    result = run(str(runs), "--json", "-o", "none/mine.toml")
    assert isinstance(result.exception, OptionError)
    assert "folder `none` does not exist" in str(result.exception)
    monkeypatch.setattr(os, "access", lambda path, _: path != Path())
    Path("there.toml").touch()
    for more in (("-o", "mine.toml"), ("-o", "there.toml", "--force")):
        assert "no permission" in str(run(str(runs), *more).exception)


def test_result_is_printed_even_if_it_cannot_be_written(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("thresher.toml").symlink_to("missing/thresher.toml")
    made_up(monkeypatch, cost=BETTER)
    data = run(str(runs), "--json")
    assert isinstance(data.exception, ConvertError)
    assert (json.loads(data.stdout)["better"], json.loads(data.stdout)["written"]) == (True, None)
    shown = run(str(runs))
    assert isinstance(shown.exception, ConvertError)
    assert "[thresholds]\nmin_expected_calls = 80" in shown.output
    assert "Wrote" not in shown.output


def test_progress_bar_shows_finished_units(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar("tuning") as progress:
        assert progress is not None
        progress(3, 7)
    told = capsys.readouterr().err
    assert "tuning" in told
    assert "3/7" in told


def test_failures_and_doubts_are_reported(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = HoldoutHalf(("a", "b"), 1, 40)
    failures = [ReplayFailure("one.json", "auto", "session \x1b[31mx: ValueError: no")]
    made_up(monkeypatch, cost=BETTER, split=HoldoutSplit("session", half, half), failures=failures, target=0.99)
    result = run(str(runs))
    assert result.exit_code == 1
    assert "auto failed on one.json" in result.stderr
    assert "\x1b" not in result.stderr
    assert "split by session" in result.output
    assert "No configuration serves 99 %" in result.output
    assert "9 configurations tried, 2 of them read from the log" in result.output


def test_too_few_sessions_are_refused(runs: Path) -> None:
    result = run(str(runs / "ape" / "run-0.json"), *FEW)
    assert isinstance(result.exception, ReadError)
    assert "two sessions" in str(result.exception)
    assert [*(get_data_folder() / "tune").glob("*.jsonl")] == []


def test_wrong_use_is_refused_before_any_work(runs: Path) -> None:
    for budget in ("much", "0"):
        assert isinstance(run(str(runs), "--budget", budget).exception, OptionError)
    assert run(str(runs), "--served", "101").exit_code == 2
    assert run(str(runs), "--trials", "0").exit_code == 2


def test_default_number_of_trials_is_that_of_the_search() -> None:
    assert next(one.default for one in tune_command.params if one.name == "trials") == TRIALS


def test_help_does_not_load_replay() -> None:
    script = (
        "import sys\nfrom thresher.cli import cli\n"
        "try:\n    cli(['tune', '--help'], standalone_mode=False)\nexcept SystemExit:\n    pass\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split("MODULES")[1].split()
    assert [name for name in loaded if name == "rich" or name.startswith("thresher.replay")] == []
