"""Tuning: the configurations tried, the choice, the measurement on the other half, and the saved results."""

import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from unit_recorder import UnitRecorder

from thresher.budget import load_settings
from thresher.budget.fitting import default_budget
from thresher.errors import OptionError, ReadError, ThresherError
from thresher.replay import Rates
from thresher.replay import sweep as sweeping
from thresher.replay.scores import StrategySetting
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.registry import make_strategy
from thresher.replay.sweep_results import ReplayedSession
from thresher.replay.tuning.holdout import HoldoutHalf, HoldoutSplit, split_sessions
from thresher.replay.tuning.search import (
    BUDGETS,
    MIN_REPORT_SESSIONS,
    SEARCH_SPACE,
    MeasuredDifference,
    TuningResult,
    format_settings_toml,
    has_same_settings,
    measure_difference,
    search_settings,
    tune,
)
from thresher.replay.tuning.trials import (
    Trial,
    TrialLog,
    TuningSettings,
    format_strategy_name,
    has_valid_thresholds,
    make_default_settings,
)
from thresher.window import Thresholds

Figures = Callable[[TuningSettings], tuple[float, float]]
"""Served share and cost of settings."""


def conversation(calls: int, seed: int) -> list[dict[str, Any]]:
    """Build an agent's session that reads files and sometimes edits a line that it read before."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Please tidy these modules."}]
    for n in range(calls):
        used: dict[str, Any] = {"name": "Read", "input": {"file_path": f"/p/file_{n}.py"}}
        told = f"# part {n} of {seed}: " + "filler words " * 60 + "\n" + line(seed, n)
        if n % 4 == 3:
            edit = {"file_path": f"/p/file_{n}.py", "old_string": line(seed, n - 2), "new_string": "pass"}
            used, told = {"name": "Edit", "input": edit}, "done"
        rows.append({"role": "assistant", "content": [{"type": "tool_use", "id": f"t{n}", **used}]})
        rows.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": told}]})
    return rows


def line(seed: int, n: int) -> str:
    return f"value_{seed}_{n} = compute_total(order_{n}, discount_{n})"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return recorded(tmp_path, ["ape", "ape", "bee", "bee"], 2)


def recorded(folder: Path, projects: Sequence[str], growth: int) -> list[Path]:
    """Write one session per item into the folder of its project, each longer than the previous one."""
    found = []
    for seed, project in enumerate(projects):
        path = folder / project / f"run-{seed}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(conversation(20 + growth * seed, seed)))
        found.append(path)
    return found


def trial(choice: TuningSettings, served: float = 1.0, cost: float = 1.0, **others: Any) -> Trial:
    given: dict[str, Any] = {
        "key": "k", "split": "tune", "settings": choice, "served": served, "tokens": 1.0, "cost": cost,
        "cost_with_refetch": cost, "lost": 0.0, "sessions": 3,
    }  # fmt: skip
    return Trial(**given | others)


class Bench:
    """Returns invented figures and records the requested settings."""

    def __init__(self, figures: Figures, **others: Any) -> None:
        self.figures = figures
        self.others = others
        self.asked: list[TuningSettings] = []

    def __call__(self, row: Sequence[TuningSettings]) -> list[Trial]:
        self.asked += row
        return [trial(one, *self.figures(one)) for one in row]


def number(choice: TuningSettings, name: str) -> float:
    value = choice[name]
    assert value is not None
    return value


def figures_of(**best: float) -> Figures:
    """Return figures that are best at these values, with all calls served."""
    return lambda one: (1.0, 1.0 + sum(abs(number(one, name) - value) / value for name, value in best.items()))


# Search space


def test_search_space_contains_exactly_the_thresholds() -> None:
    assert set(SEARCH_SPACE) == set(Thresholds.__dataclass_fields__)
    assert default_budget("") in BUDGETS
    start = make_default_settings()
    tried: list[TuningSettings] = [{**start, name: value} for name, values in SEARCH_SPACE.items() for value in values]
    assert all(map(has_valid_thresholds, tried))
    assert {
        type(value) for name, values in SEARCH_SPACE.items() for value in values if type(start[name]) is not float
    } == {int}


def test_the_strategy_name_contains_the_thresholds_of_its_window() -> None:
    start = make_default_settings()
    for choice, thresholds in (
        (start, Thresholds()),
        ({**start, "patience": 2.0, "min_expected_calls": 40}, Thresholds(patience=2.0, min_expected_calls=40)),
    ):
        strategy = make_strategy(format_strategy_name(choice), 900, Rates())
        assert (strategy.budget, strategy.name) == (900, format_strategy_name(choice))
        assert inspect.getclosurevars(strategy.start).nonlocals["options"] == {"thresholds": thresholds}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ('auto{"haste": 2}', "haste.*patience"),
        ('auto{"patience": "much"}', "patience"),
        ('auto{"low_water": 0.9, "high_water": 0.5}', "low_water"),
        ("auto{patience}", "JSON"),
        ("recency{}", "recency"),
        ("nobody{}", "nobody"),
    ],
)
def test_name_with_invalid_thresholds_is_refused(name: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        make_strategy(name, 900, Rates())


# Choice


def test_search_finds_the_cheapest_settings() -> None:
    bench = Bench(figures_of(patience=2.5, low_water=0.3, budget=60_000))
    found = search_settings(make_default_settings(), {"budget": BUDGETS, **SEARCH_SPACE}, bench)
    assert found.best.settings == {**make_default_settings(), "patience": 2.5, "low_water": 0.3, "budget": 60_000}
    assert found.first.settings == make_default_settings() == bench.asked[0]
    assert found.count == len(bench.asked)
    assert all(bench.asked.count(one) == 1 for one in bench.asked)


def test_setting_may_help_only_after_another() -> None:
    def figures(one: TuningSettings) -> tuple[float, float]:
        return 1.0, 1.0 - 0.2 * (one["min_expected_calls"] == 80) - 0.3 * (
            one["min_expected_calls"] == 80 and one["patience"] == 0.3
        )

    assert [*SEARCH_SPACE].index("patience") < [*SEARCH_SPACE].index("min_expected_calls")
    best = search_settings(make_default_settings(), SEARCH_SPACE, Bench(figures)).best.settings
    assert (best["min_expected_calls"], best["patience"]) == (80, 0.3)


@pytest.mark.parametrize("trials", [1, 2, 9])
def test_search_respects_the_number_of_trials(trials: int) -> None:
    bench = Bench(figures_of(min_expected_calls=80))
    assert (
        search_settings(make_default_settings(), SEARCH_SPACE, bench, trials=trials).count == len(bench.asked) == trials
    )


def test_small_gain_does_not_count() -> None:
    start = make_default_settings()
    for cost, changed in ((0.996, False), (0.994, True)):
        known = {40: (1.0, cost)}
        found = search_settings(
            start,
            SEARCH_SPACE,
            Bench(lambda one, known=known: known.get(int(number(one, "min_expected_calls")), (1.0, 1.0))),  # type: ignore[misc]
        )
        assert (found.best.settings != start) is changed


def test_cheap_settings_that_serve_too_little_are_not_chosen() -> None:
    def figures(one: TuningSettings) -> tuple[float, float]:
        return {10: (0.94, 0.1), 40: (0.95, 0.8), 80: (0.99, 0.9)}.get(
            int(number(one, "min_expected_calls")), (1.0, 1.0)
        )

    space = {"min_expected_calls": SEARCH_SPACE["min_expected_calls"]}
    assert search_settings(make_default_settings(), space, Bench(figures)).best.settings["min_expected_calls"] == 40
    assert (
        search_settings(make_default_settings(), space, Bench(figures), served=0.94).best.settings["min_expected_calls"]
        == 10
    )
    assert (
        search_settings(make_default_settings(), space, Bench(figures), served=0.98).best.settings["min_expected_calls"]
        == 80
    )


def test_search_maximizes_served_calls_if_none_serves_enough() -> None:
    def figures(one: TuningSettings) -> tuple[float, float]:
        return {10: (0.6, 0.1), 80: (0.7, 3.0)}.get(int(number(one, "min_expected_calls")), (0.5, 1.0))

    assert (
        search_settings(
            make_default_settings(), {"min_expected_calls": SEARCH_SPACE["min_expected_calls"]}, Bench(figures)
        ).best.settings["min_expected_calls"]
        == 80
    )


def test_serving_enough_beats_any_price() -> None:
    bench = Bench(lambda one: (0.95, 5.0) if one["min_expected_calls"] == 80 else (0.9499, 1.0))
    assert (
        search_settings(
            make_default_settings(), {"min_expected_calls": SEARCH_SPACE["min_expected_calls"]}, bench
        ).best.settings["min_expected_calls"]
        == 80
    )


def test_settings_that_fail_on_a_session_are_not_chosen() -> None:
    def tried(row: Sequence[TuningSettings]) -> list[Trial]:
        return [trial(one, 1.0, 0.1, sessions=2) if one["min_expected_calls"] == 80 else trial(one) for one in row]

    assert search_settings(make_default_settings(), SEARCH_SPACE, tried).best.settings == make_default_settings()


def test_invalid_settings_are_not_tried() -> None:
    bench = Bench(figures_of(high_water=0.4, low_water=0.7))
    search_settings(make_default_settings(), {"high_water": (0.4, 0.6), "low_water": (0.3, 0.7)}, bench)
    assert all(number(one, "low_water") <= number(one, "high_water") for one in bench.asked)


# Measurement


def facts(*told: tuple[str, int]) -> dict[str, ReplayedSession]:
    return {
        f"f{n}#{n}": ReplayedSession(f"f{n}", str(n), "any", project, 1, calls)
        for n, (project, calls) in enumerate(told)
    }


def test_sessions_of_a_project_are_in_one_half() -> None:
    sessions = facts(*((f"project-{n % 7}", 20 + n) for n in range(40)))
    split = split_sessions(sessions)
    sides = [{sessions[key].project for key in half.sessions} for half in (split.tune, split.report)]
    assert split.by == "project"
    assert not sides[0] & sides[1]
    assert [len(side) for side in sides] == [split.tune.projects, split.report.projects]
    assert sorted([*split.tune.sessions, *split.report.sessions]) == sorted(sessions)
    assert split.tune.calls + split.report.calls == sum(one.calls for one in sessions.values())
    largest = max(sum(one.calls for one in sessions.values() if one.project == f"project-{n}") for n in range(7))
    assert abs(split.tune.calls - split.report.calls) <= largest


def test_split_does_not_depend_on_the_order_of_sessions() -> None:
    sessions = facts(*((f"project-{n % 5}", 20 + n) for n in range(20)))
    assert split_sessions(dict(reversed(sessions.items()))) == split_sessions(sessions)


def test_single_project_is_split_by_session_and_folders_replace_missing_projects() -> None:
    split = split_sessions(facts(*[("mine", 20)] * 6))
    assert (split.by, len(split.tune.sessions), len(split.report.sessions)) == ("session", 3, 3)
    folders = {f"{n}": ReplayedSession(f"/{'ab'[n > 1]}/f{n}", f"{n}", "any", "", 1, 20) for n in range(6)}
    split = split_sessions(folders)
    assert split.by == "project"
    assert {split.tune.sessions, split.report.sessions} == {("0", "1"), ("2", "3", "4", "5")}


def test_difference_is_paired_and_has_an_interval() -> None:
    def totals_by_setting(*told: tuple[float, int]) -> dict[str, ReplayTotals]:
        return {
            str(n): ReplayTotals(cost=cost, refetch_cost=1.0, served=served, calls_with_references=10)
            for n, (cost, served) in enumerate(told)
        }

    full = {str(n): ReplayTotals(cost=10.0) for n in range(4)}
    before, after = totals_by_setting((6, 8), (6, 8), (6, 8), (6, 8)), totals_by_setting((5, 8), (5, 9), (4, 9), (4, 8))
    cost, served = measure_difference(before, after, full)
    assert [cost.value, cost.low, cost.high] == pytest.approx([-0.15, -0.2, -0.1])
    assert [served.value, served.low, served.high] == pytest.approx([0.05, 0.0, 0.1])
    alone, _ = measure_difference({"0": before["0"]}, {"0": after["0"]}, full)
    assert [alone.value] == pytest.approx([-0.1])
    assert (alone.low, alone.high) == (None, None)


def tuned(
    cost: MeasuredDifference,
    served: MeasuredDifference,
    *,
    shares: tuple[float, float] = (0.97, 0.97),
    calls: int = 80,
    sessions: int = MIN_REPORT_SESSIONS,
) -> TuningResult:
    start = make_default_settings()
    best: TuningSettings = {**start, "min_expected_calls": calls}
    half = HoldoutHalf(tuple(map(str, range(sessions))), 1, 40)
    before = trial(start, shares[0], split="report", sessions=sessions)
    after = trial(best, shares[1], split="report", sessions=sessions)
    return TuningResult(
        target=0.95,
        split=HoldoutSplit("project", half, half),
        defaults=trial(start),
        chosen=trial(best),
        before=before,
        after=after, cost=cost, served=served, trials=9, reused=0, log="log", failures=[],
    )  # fmt: skip


CHEAPER, PERHAPS, SAME = (
    MeasuredDifference(-0.1, -0.2, -0.01),
    MeasuredDifference(-0.1, -0.2, 0.01),
    MeasuredDifference(0.0, 0.0, 0.0),
)
DEARER = MeasuredDifference(0.2, 0.1, 0.3)


@pytest.mark.parametrize(
    ("cost", "served", "shares", "verdict"),
    [
        (CHEAPER, SAME, (0.97, 0.97), "better"),
        (PERHAPS, SAME, (0.97, 0.97), "chance"),
        # A configuration that serves enough may serve less than the defaults.
        (CHEAPER, MeasuredDifference(-0.01, -0.02, -0.005), (0.97, 0.96), "better"),
        (CHEAPER, MeasuredDifference(-0.02, -0.03, -0.01), (0.97, 0.95), "better"),
        (CHEAPER, MeasuredDifference(-0.04, -0.05, -0.03), (0.97, 0.93), "unserved"),
        # One that does not serve enough must be about as good as the defaults at the lower end of the interval.
        (CHEAPER, MeasuredDifference(-0.001, -0.01, 0.01), (0.95, 0.949), "better"),
        (CHEAPER, MeasuredDifference(-0.005, -0.011, 0.001), (0.93, 0.925), "unserved"),
        (CHEAPER, MeasuredDifference(-0.001, -0.2, 0.2), (0.95, 0.949), "unserved"),
        # Serving more is a gain only if the defaults serve too little.
        (DEARER, MeasuredDifference(0.05, 0.02, 0.08), (0.90, 0.95), "better"),
        (DEARER, MeasuredDifference(0.03, 0.0, 0.08), (0.90, 0.93), "chance"),
        (DEARER, MeasuredDifference(0.02, 0.01, 0.03), (0.97, 0.99), "chance"),
        (MeasuredDifference(-0.1), MeasuredDifference(0.0), (0.97, 0.97), "few"),
    ],
)
def test_better_means_significant_and_serving_enough(
    cost: MeasuredDifference, served: MeasuredDifference, shares: tuple[float, float], verdict: str
) -> None:
    found = tuned(cost, served, shares=shares)
    assert (found.verdict, found.is_better) == (verdict, verdict == "better")


@pytest.mark.parametrize(("sessions", "verdict"), [(2, "few"), (7, "few"), (8, "better")])
def test_few_sessions_are_never_significant(sessions: int, verdict: str) -> None:
    assert tuned(CHEAPER, SAME, sessions=sessions).verdict == verdict


def test_defaults_are_not_better_than_themselves() -> None:
    found = tuned(CHEAPER, SAME, calls=Thresholds().min_expected_calls)
    assert (found.verdict, found.is_better) == ("same", False)


# Saved results


def test_settings_are_written_as_they_are_read(tmp_path: Path) -> None:
    choice: TuningSettings = {**make_default_settings(), "budget": 60_000, "patience": 2.0, "min_expected_calls": 40}
    file = tmp_path / "thresher.toml"
    file.write_text(format_settings_toml(choice, ["the best"]))
    found = load_settings(environment={}, file=file)
    assert (found.budget, Thresholds(**found.thresholds)) == (60_000, Thresholds(patience=2.0, min_expected_calls=40))
    assert file.read_text().startswith("# the best\nbudget = 60000\n\n[thresholds]\n")
    assert (
        format_settings_toml({**make_default_settings(), "min_expected_calls": 40})
        == "[thresholds]\nmin_expected_calls = 40\n"
    )


def test_automatic_setting_is_logged_and_shown_only_if_chosen(tmp_path: Path) -> None:
    open_choice: TuningSettings = {**make_default_settings(), "keep_calls": None}
    log = TrialLog(tmp_path / "log.jsonl", "k")
    log.add(trial(open_choice))
    assert TrialLog(log.path, "k").find("tune", open_choice) == trial(open_choice)
    assert format_settings_toml({**make_default_settings(), "keep_calls": 31}) == "[thresholds]\nkeep_calls = 31\n"


def test_long_notes_are_comments_below_80_characters() -> None:
    note = "word-and-word " * 40
    lines = (
        format_settings_toml({**make_default_settings(), "min_expected_calls": 40}, [note, "short"])
        .partition("\n\n")[0]
        .splitlines()
    )
    assert all(line.startswith("# ") and len(line) < 80 for line in lines)
    assert " ".join(line.removeprefix("# ") for line in lines[:-1]) == note.strip()
    assert lines[-1] == "# short"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("budget = 60000\n[thresholds]\nmin_expected_calls = 40\n", True),
        ('policy = "mask"\nbudget = "60k"\n[thresholds]\nmin_expected_calls = 40\npatience = {patience}\n', True),
        ("budget = 60000\n[thresholds]\nmin_expected_calls = 41\n", False),
        ("budget = 60000\n[thresholds]\nmin_expected_calls = 40\nmin_saving = 1\n", False),
        ("budget = 60001\n[thresholds]\nmin_expected_calls = 40\n", False),
        ("[thresholds]\nmin_expected_calls = 40\n", False),
        ("budget = 60000\n", False),
        ("no TOML", False),
        ("[thresholds]\nlow_water = 0.9\nhigh_water = 0.1\n", False),
    ],
)
def test_file_with_the_same_settings_is_recognized(tmp_path: Path, text: str, *, same: bool) -> None:
    file = tmp_path / "any.toml"
    file.write_text(text.replace("{patience}", str(Thresholds().patience)))
    assert has_same_settings(file, {**make_default_settings(), "budget": 60_000, "min_expected_calls": 40}) is same
    assert not has_same_settings(tmp_path / "none.toml", make_default_settings())


def test_log_returns_trials_of_its_own_key(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    one = trial(make_default_settings(), 0.9, 0.5)
    TrialLog(path, "k").add(one)
    path.write_bytes(path.read_bytes() + b'{"a line": "of somebody else"}\n{"key": "k", "spl')
    again = TrialLog(path, "k")
    assert again.find("tune", make_default_settings()) == one
    assert again.find("report", make_default_settings()) is None
    assert again.find("tune", {**make_default_settings(), "min_expected_calls": 1}) is None
    assert TrialLog(path, "other").find("tune", make_default_settings()) is None
    second = trial({**make_default_settings(), "min_expected_calls": 40})
    again.add(one)
    again.add(second)
    assert TrialLog(path, "k").find("tune", second.settings) == second
    assert len(path.read_bytes().splitlines()) == 4


def test_unwritable_log_fails_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "file" / "log.jsonl", tmp_path / "file" / "deep" / "log.jsonl", tmp_path):
        with pytest.raises(ThresherError, match="--log"):
            TrialLog(path, "k")


def test_log_in_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ThresherError, match=r"permission denied.*--log"):
        TrialLog(tmp_path / "new" / "log.jsonl", "k", is_writable=lambda path: path != tmp_path)


def test_log_is_created_with_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    log = TrialLog(path, "k")
    assert not path.parent.exists()
    log.add(trial(make_default_settings()))
    assert len(path.read_bytes().splitlines()) == 1


# Complete runs


SPACE = {"low_water": (0.1, 0.5), "min_saving": (200, 1_000)}
"""A small search space: these tests are about the search, not the values."""


def without_log(one: TuningResult) -> dict[str, Any]:
    return {name: getattr(one, name) for name in TuningResult.__struct_fields__ if name not in ("log", "reused")}


def test_settings_are_chosen_on_one_half_and_measured_on_the_other(files: list[Path], tmp_path: Path) -> None:
    found = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, space=SPACE)
    halves = [sorted(Path(key).parent.name for key in half.sessions) for half in (found.split.tune, found.split.report)]
    assert sorted(halves) == [["ape", "ape"], ["bee", "bee"]]
    assert (found.split.by, found.trials, found.failures) == ("project", 3, [])
    lines = [json.loads(one) for one in Path(found.log).read_text().splitlines()]
    assert [one["split"] for one in lines] == ["tune"] * 3 + ["report"] * 2
    fields = {"settings", "served", "tokens", "cost", "cost_with_refetch", "lost", "sessions", "definition", "split"}
    assert all(one.keys() >= fields for one in lines)
    assert len({one["key"] for one in lines}) == 1
    assert {one["settings"]["budget"] for one in lines} == {4_000}
    assert [one["sessions"] for one in lines] == [2] * 5
    assert Path(found.log).parent == tmp_path / "tune"
    # In these sessions a window with a lower mark replans less often and still keeps the used text.
    assert (found.chosen.settings["low_water"], found.verdict) == (0.1, "few")
    assert found.cost.value == pytest.approx(found.after.cost_with_refetch - found.before.cost_with_refetch)


def test_enough_sessions_confirm_better_settings(tmp_path: Path) -> None:
    files = recorded(tmp_path, ["ape", "bee"] * MIN_REPORT_SESSIONS, 0)
    space = {"low_water": (0.1,)}
    found = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, space=space)
    assert (found.after.sessions, found.chosen.settings["low_water"], found.verdict) == (
        MIN_REPORT_SESSIONS,
        0.1,
        "better",
    )


def test_figures_agree_with_a_sweep_of_these_settings(files: list[Path], tmp_path: Path) -> None:
    found = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, space=SPACE)
    ways: list[tuple[str, int | None]] = [("auto{}", 4_000), (format_strategy_name(found.chosen.settings), 4_000)]
    results = sweeping.run_sweep(files, ways, Rates())
    for one, strategy in ((found.before, ways[0]), (found.after, ways[1]), (found.defaults, ways[0])):
        half = found.split.tune if one.split == "tune" else found.split.report
        totals_by_setting = [results.totals_by_setting[StrategySetting(*strategy)][key] for key in half.sessions]
        full = [results.totals_by_setting[StrategySetting("full", None)][key] for key in half.sessions]
        paid = sum(totals.cost + totals.refetch_cost for totals in totals_by_setting) / sum(
            totals.cost for totals in full
        )
        assert one.cost_with_refetch == pytest.approx(paid)
        assert one.served == pytest.approx(
            sum(t.served for t in totals_by_setting) / sum(t.calls_with_references for t in totals_by_setting)
        )


def test_logged_trials_are_not_run_again(files: list[Path], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, log=log, space=SPACE)
    lines = log.read_bytes()
    begun = UnitRecorder()
    again = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, log=log, run=begun, space=SPACE)
    assert (first.reused, again.reused) == (0, 3)
    assert without_log(again) == without_log(first)
    assert log.read_bytes() == lines
    report = {Path(key.partition("#")[0]).name for key in first.split.report.sessions}
    assert {Path(unit.file).name for unit in begun.units if unit.strategy != "full"} == report
    other = tune(files, Rates(write=2.0), folder=tmp_path / "tune", budget=4_000, log=log, space=SPACE)
    assert other.reused == 0


def test_interrupted_search_resumes(files: list[Path], tmp_path: Path) -> None:
    whole = tune(files, Rates(), folder=tmp_path / "whole", budget=4_000, space=SPACE)
    first, second = UnitRecorder(6), UnitRecorder()
    with pytest.raises(KeyboardInterrupt):
        tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, run=first, space=SPACE)
    found = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, run=second, space=SPACE)
    assert len(first.units) == 6
    assert not {unit.name for unit in first.units} & {unit.name for unit in second.units}
    assert without_log(found) == without_log(whole)
    assert list((tmp_path / "tune" / "begun").iterdir()) == []


def test_user_settings_affect_neither_defaults_nor_key(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, space=SPACE)
    monkeypatch.setenv("THRESHER_THRESHOLDS_PATIENCE", "0.5")
    monkeypatch.setenv("THRESHER_BUDGET", "2k")
    again = tune(files, Rates(), folder=tmp_path / "tune", budget=4_000, space=SPACE)
    assert (again.reused, without_log(again)) == (3, without_log(first))


def test_budget_is_searched_unless_given(files: list[Path], tmp_path: Path) -> None:
    found = tune(files, Rates(), folder=tmp_path / "tune", budgets=(3_000, 140_000), space=SPACE)
    lines = [json.loads(one) for one in Path(found.log).read_text().splitlines()]
    assert {one["settings"]["budget"] for one in lines} == {3_000, 140_000}
    assert lines[0]["settings"] == make_default_settings()


def test_progress_never_exceeds_its_total(files: list[Path], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    tune(files, Rates(), folder=tmp_path, budget=4_000, trials=2, progress=lambda *one: told.append(one), space=SPACE)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert all(done <= total for done, total in told)
    assert told[-1][0] > len(files)


def test_single_session_is_refused(files: list[Path], tmp_path: Path) -> None:
    for some in (files[:1], []):
        with pytest.raises(ReadError, match=rf"two sessions.*Found {len(some)}"):
            tune(some, Rates(), folder=tmp_path / "tune", log=tmp_path / "log.jsonl")
        with pytest.raises(ReadError):
            tune(some, Rates(), folder=tmp_path / "tune")
    assert not (tmp_path / "log.jsonl").exists()
    assert [*(tmp_path / "tune").glob("*.jsonl")] == []
