"""`thresher tune`, as a person and as a program would use it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thresher.budget import settings
from thresher.cli import cli
from thresher.cli.tune import command
from thresher.errors import OptionError, ReadError, ThresherError
from thresher.replay import tuning
from thresher.replay.split import Half, Split
from thresher.replay.sweep import Failure
from thresher.replay.trials import Choice, Trial, first_choice
from thresher.replay.tuning import TRIALS, Difference, Tuned
from thresher.window import Pace


def conversation(calls: int, seed: int) -> list[dict[str, Any]]:
    """An agent that reads modules, and now and then edits a line of one that it read a while before."""
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
    """Four sessions, two projects; and a folder to work in."""
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
    monkeypatch.setattr(tuning, "SPACE", {"low": (0.1, 0.5)})


def made_up(monkeypatch: pytest.MonkeyPatch, *, cost: Difference, calls: int = 80, **others: Any) -> None:
    """Let the search find this."""

    def trial(split: Any, choice: Choice, paid: float) -> Trial:
        return Trial(
            key="k", split=split, settings=choice, served=0.97, tokens=1234.0, cost=paid, cost_with_refetch=paid,
            lost=0.0, sessions=2,
        )  # fmt: skip

    start = first_choice()
    best: Choice = {**start, "calls": calls, "budget": 60_000 if calls == 80 else start["budget"]}
    half = Half(("a", "b"), 1, 40)
    given: dict[str, Any] = {
        "target": 0.95, "split": Split("project", half, half), "defaults": trial("tune", start, 0.8),
        "chosen": trial("tune", best, 0.7), "before": trial("report", start, 0.9), "after": trial("report", best, 0.8),
        "cost": cost, "served": Difference(0.0, 0.0, 0.0), "trials": 9, "reused": 2, "log": "the-log.jsonl",
        "failures": [],
    }  # fmt: skip
    found = Tuned(**given | others)
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: found)


BETTER, PERHAPS = Difference(-0.1, -0.2, -0.05), Difference(-0.1, -0.3, 0.05)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ("tune", *arguments))
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def words(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.mark.usefixtures("few")
def test_settings_that_hold_elsewhere_are_written_and_read_by_windows(runs: Path) -> None:
    result = run(str(runs), *FEW)
    assert result.exit_code == 0, result.stderr
    told = words(result)
    for expected in (
        "2 sessions of 1 project", "definition v1", "2 configurations tried", "logged in", "low 0.5 0.1",
        "elsewhere: chosen", "by more than chance", "[pace] low = 0.1", "it is of 2 sessions only", "written to",
    ):  # fmt: skip
        assert expected in told
    assert (settings().budget, settings().pace) == (4_000, {"low": 0.1})


@pytest.mark.usefixtures("few")
def test_data_has_both_settings_on_both_sides(runs: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    result = run(str(runs), *FEW, "--json", "--log", str(log), "-o", "mine.toml", "--prices", "openai")
    assert result.exit_code == 0, result.stderr
    value = json.loads(result.stdout)
    assert (value["definition"], value["prices"], value["target"], value["trials"]) == ("v1", "openai", 0.95, 2)
    assert value["defaults"]["settings"] == first_choice(4_000)
    assert value["chosen"]["settings"].keys() == {"budget", *Pace.__struct_fields__}
    assert all(value[one].keys() == {"settings", "tune", "report"} for one in ("defaults", "chosen"))
    change = value["chosen"]["report"]["cost_with_refetch"] - value["defaults"]["report"]["cost_with_refetch"]
    assert value["difference"]["cost_with_refetch"]["value"] == pytest.approx(change)
    assert (value["split"]["by"], value["split"]["tune"]["projects"]) == ("project", 1)
    assert value["log"] == str(log)
    assert len(log.read_text().splitlines()) >= 3
    assert (value["written"] is not None) is Path("mine.toml").exists() is value["better"]


def test_settings_that_do_not_hold_are_shown_and_not_written(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=PERHAPS)
    result = run(str(runs))
    assert result.exit_code == 0
    assert "not better by more than chance: keep the defaults" in words(result)
    assert "−0.100 (−0.300 to +0.050)" in words(result)
    assert not Path("thresher.toml").exists()
    assert run(str(runs), "--force").exit_code == 0
    assert (settings().budget, settings().pace) == (60_000, {"calls": 80})
    assert "# not better" in Path("thresher.toml").read_text()


def test_settings_that_are_cheaper_and_serve_too_little_are_not_written(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(monkeypatch, cost=BETTER, served=Difference(-0.05, -0.09, -0.02), target=0.98)
    assert "serve too little, 97.0 %: keep the defaults" in words(run(str(runs)))
    assert not Path("thresher.toml").exists()


def test_where_the_defaults_are_best_nothing_is_written_at_all(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, cost=Difference(0.0, 0.0, 0.0), calls=int(first_choice()["calls"]))
    result = run(str(runs), "--force")
    assert result.exit_code == 0
    assert "keep them" in result.output
    assert not Path("thresher.toml").exists()
    assert json.loads(run(str(runs), "--json").stdout)["toml"] is None


def test_a_file_that_is_there_is_left_alone_and_the_lines_are_shown(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(monkeypatch, cost=BETTER)
    Path("thresher.toml").write_text('policy = "mask"\n')
    result = run(str(runs))
    assert result.exit_code == 1
    assert "paste" in result.stderr
    assert "[pace]\ncalls = 80" in result.output
    assert Path("thresher.toml").read_text() == 'policy = "mask"\n'
    data = run(str(runs), "--json")
    assert (data.exit_code, json.loads(data.stdout)["written"]) == (1, None)
    assert run(str(runs), "--force").exit_code == 0
    assert settings().policy is None
    assert settings().pace == {"calls": 80}


def test_what_went_wrong_and_what_is_doubtful_is_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = Half(("a", "b"), 1, 40)
    failures = [Failure("one.json", "auto", "session \x1b[31mx: ValueError: no")]
    made_up(monkeypatch, cost=BETTER, split=Split("session", half, half), failures=failures, target=0.99)
    result = run(str(runs))
    assert result.exit_code == 1
    assert "auto could not take one.json" in result.stderr
    assert "\x1b" not in result.stderr
    assert "split by session" in result.output
    assert "nothing that was tried serves 99%" in result.output
    assert "9 configurations tried, 2 of them before" in result.output


def test_too_few_sessions_are_refused(runs: Path) -> None:
    result = run(str(runs / "ape" / "run-0.json"), *FEW)
    assert isinstance(result.exception, ReadError)
    assert "two sessions" in str(result.exception)


def test_wrong_use_is_refused_before_any_work(runs: Path) -> None:
    for budget in ("much", "0"):
        assert isinstance(run(str(runs), "--budget", budget).exception, OptionError)
    assert run(str(runs), "--served", "101").exit_code == 2
    assert run(str(runs), "--trials", "0").exit_code == 2


def test_the_default_of_the_trials_is_that_of_the_search() -> None:
    assert next(one.default for one in command.params if one.name == "trials") == TRIALS


def test_help_loads_nothing_of_the_measure() -> None:
    script = (
        "import sys\nfrom thresher.cli import cli\n"
        "try:\n    cli(['tune', '--help'], standalone_mode=False)\nexcept SystemExit:\n    pass\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split("MODULES")[1].split()
    assert [name for name in loaded if name == "rich" or name.startswith("thresher.replay")] == []
