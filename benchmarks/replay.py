"""Produce the replay figures (`docs/explanation/replay.md`): need, service and cost of policies.

    python benchmarks/replay.py [--split report|tune|all] [--kinds claude_code,codex,opencode,pi,mini_swe]
        [--policies all] [--budgets 18k,27k,…] [--at 64k] [--prices anthropic] [--jobs 2]
        [--limit N] [--markdown FILE] [--plot FILE] [--json FILE] [--again FILE…]

`thresher.replay.sweep` replays all sessions in one half of the shared recordings with every strategy that runs here
(those of LangChain need `.venv-bench`). An interrupted run resumes when it is started again. `--json` saves all
measurements. `--again` creates the tables from such a file, or from several files of the same sessions. The output is
Markdown:

- all sessions: T95, C95, the lost share there, the gap closed, and the tokens and served share at one budget. T95 of
  quotes counts only the calls that reuse lines or long phrases, which no list of names can serve;
- the same for each transcript format;
- each project with at least five sessions: `auto` compared with the plain window, at the tokens that `auto` sends where
  it serves 95 %. The other curve is linear between two budgets and ends at the full history;
- the baselines at those tokens, over all sessions. `random` is the mean of three seeds.

In parentheses is the middle 95 % of 400 bootstrap draws of the sessions; differences are paired. The exit code is 1 if
a strategy that keeps whole blocks exceeds the upper bound, since then the measurement is wrong.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from conversations import DATA, recordings
from msgspec import Struct, structs
from replay_tables import Tables, markdown

from thresher.budget import parse_token_count
from thresher.render.replay import ReplayReport, build_replay_report, replay_failure_texts
from thresher.render.replay_export import replay_report_chart, replay_report_value
from thresher.replay.references import REFERENCE_DEFINITION
from thresher.replay.scores import (
    FULL_HISTORY,
    ORACLE_BASELINE,
    WINDOW_BASELINE,
    StrategySetting,
    TotalsBySetting,
    find_bound_violations,
    sum_totals,
)
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.registry import (
    BASELINES,
    BUDGETS,
    PRICES,
    rates_for_price_list,
    select_strategies,
    takes_budget,
)
from thresher.replay.strategies.upper_bound import MinimumCost
from thresher.replay.sweep import run_sweep
from thresher.replay.sweep_results import ReplayedSession, ReplayFailure, SweepResults
from thresher.store import get_data_folder

KINDS = "claude_code,codex,opencode,pi,mini_swe"
CHANCE = "random"
SEEDS = (CHANCE, f"{CHANCE}-1", f"{CHANCE}-2")
DRAWN = (
    f"{FULL_HISTORY},auto,smart,{CHANCE},recency,{WINDOW_BASELINE},"
    f"{ORACLE_BASELINE},clear-tool-uses,openhands,opencode,langchain-trim"
)
"""As many curves as are readable in one chart."""


# Measuring


def find_files(data: Path, split: str, kinds: Sequence[str], limit: int | None) -> list[Path]:
    """Return the session files of some folders; with a limit, the smallest ones of each."""
    named = [data / file for file in recordings(data, split) if file.partition("/")[0] in kinds]
    if limit is None:
        return named
    sized = sorted(named, key=lambda path: path.stat().st_size)
    return [path for kind in kinds for path in [one for one in sized if one.parent.name == kind][:limit]]


def measured(
    files: Sequence[Path], names: Sequence[str], budgets: Sequence[int], prices: str, jobs: int
) -> SweepResults:
    """Replay all files with all strategies, including `random` with more seeds."""
    more = [name for name in SEEDS if CHANCE in names and name not in names]
    every = dict.fromkeys((FULL_HISTORY, *names, *more))
    ways = [(name, budget) for name in every for budget in (budgets if takes_budget(name) else (None,))]

    def progress(done: int, of: int) -> None:
        if sys.stderr.isatty() or done % 100 == 0 or done == of:
            print(f"\r{done}/{of} units", end="", file=sys.stderr, flush=True)

    found = run_sweep(
        files, ways, rates_for_price_list(prices), jobs=jobs, progress=progress, resume=get_data_folder() / "replay"
    )
    print(file=sys.stderr)
    return found


def average_seeds(totals_by_setting: TotalsBySetting) -> dict[StrategySetting, dict[str, ReplayTotals]]:
    """Replace the seeds of `random` by their mean. Counts remain sums, because only shares of them are reported."""
    found = {setting: dict(by) for setting, by in totals_by_setting.items() if setting.name not in SEEDS[1:]}
    for setting, by in found.items():
        if setting.name == CHANCE:
            of = [
                one
                for seed in SEEDS
                if (one := totals_by_setting.get(StrategySetting(seed, setting.budget))) is not None
            ]
            found[setting] = {key: _mean([one[key] for one in of]) for key in by if all(key in one for one in of)}
    return found


def _mean(of: Sequence[ReplayTotals]) -> ReplayTotals:
    """Costs are relative to one full history, so divide them by the number of seeds."""
    added = sum_totals(of)
    return structs.replace(added, cost=added.cost / len(of), refetch_cost=added.refetch_cost / len(of))


def group_by_project(data: Path, sessions: Mapping[str, ReplayedSession]) -> dict[str, list[str]]:
    """Group the sessions by their repository."""
    rows = map(json.loads, (data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    repositories = {row["file"]: row["repo"] for row in rows}
    found: dict[str, list[str]] = {}
    for key, facts in sessions.items():
        file = "/".join(Path(facts.file).parts[-2:])
        found.setdefault(repositories.get(file, facts.project or file), []).append(key)
    return found


def build_report(results: SweepResults, prices: str, only: Sequence[str] = ()) -> ReplayReport:
    """Build the report of all policies, or of some."""
    taken = {
        setting: by
        for setting, by in average_seeds(results.totals_by_setting).items()
        if not only or setting.name in only
    }
    return build_replay_report(structs.replace(results, totals_by_setting=taken), prices)


# Saved measurements


class Measured(Struct, frozen=True):
    """The totals of one strategy at one budget on one session."""

    strategy: str
    budget: int | None
    session: str
    totals: ReplayTotals


class SavedRun(Struct, frozen=True):
    """All measurements of a run."""

    prices: str
    files: int
    short: int
    sessions: dict[str, ReplayedSession]
    minimum_costs: dict[str, list[MinimumCost]]
    failures: list[ReplayFailure]
    totals_by_setting: list[Measured]
    report: dict[str, Any] = {}
    """The output of `thresher replay --json`."""
    definition: str = ""
    """The reference definition; missing in older files."""


def save_run(results: SweepResults, prices: str) -> SavedRun:
    """Convert results to their saved form."""
    rows = [
        Measured(*setting, key, totals)
        for setting, by in results.totals_by_setting.items()
        for key, totals in by.items()
    ]
    said = replay_report_value(build_report(results, prices))
    facts = results.sessions, results.minimum_costs, results.failures
    return SavedRun(prices, results.files, results.short, *facts, rows, said, REFERENCE_DEFINITION)


def merge_runs(files: Sequence[SavedRun]) -> SweepResults:
    """Merge several runs over the same sessions. A later run replaces the strategies that it measured again."""
    if wrong := find_differences(files):
        raise ValueError(f"these files cannot be told together: {'; '.join(wrong)}")
    results = [load_results(one) for one in files]
    known: dict[tuple[str, str], ReplayFailure] = {}
    totals_by_setting: dict[StrategySetting, dict[str, ReplayTotals]] = {}
    for one in results:
        ways = {setting.name for setting in one.totals_by_setting}
        totals_by_setting = {
            setting: of for setting, of in totals_by_setting.items() if setting.name not in ways
        } | one.totals_by_setting
        known = {key: failure for key, failure in known.items() if failure.strategy not in ways}
        known |= {(failure.file, failure.strategy): failure for failure in one.failures}
    return structs.replace(results[-1], totals_by_setting=totals_by_setting, failures=list(known.values()))


def find_differences(files: Sequence[SavedRun]) -> list[str]:
    """Return why files cannot be merged. A file without a definition is assumed to have that of the others."""
    found = []
    prices = dict.fromkeys(one.prices for one in files)
    if len(prices) > 1:
        found.append(f"their prices are {', '.join(prices)}")
    definitions = dict.fromkeys([REFERENCE_DEFINITION, *(one.definition for one in files if one.definition)])
    if len(definitions) > 1:
        found.append(f"the definitions are {', '.join(definitions)}, the first of them that of now")
    if any(one.sessions != files[0].sessions for one in files):
        found.append("their sessions are not the same")
    return found


def load_results(one: SavedRun) -> SweepResults:
    """Convert saved measurements to results."""
    totals_by_setting: dict[StrategySetting, dict[str, ReplayTotals]] = {}
    for row in one.totals_by_setting:
        totals_by_setting.setdefault(StrategySetting(row.strategy, row.budget), {})[row.session] = row.totals
    return SweepResults(
        sessions=one.sessions,
        totals_by_setting=totals_by_setting,
        minimum_costs=one.minimum_costs,
        failures=one.failures,
        files=one.files,
        short=one.short,
    )


# Command line


def find_violations(results: SweepResults) -> list[str]:
    """Return a message for each strategy that exceeds the upper bound."""
    found = find_bound_violations(results.totals_by_setting, results.minimum_costs, {*BASELINES, *SEEDS})
    return [
        f"{one.setting.name} at {one.setting.budget} serves {one.served:.2%} of {one.session}; "
        f"{one.max_served:.2%} can be"
        for one in found
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of recordings, with its index.jsonl")
    parser.add_argument("--split", choices=("report", "tune", "all"), default="report")
    parser.add_argument("--kinds", default=KINDS, help="folders of recordings, separated by commas")
    parser.add_argument("--limit", type=int, help="only this many files of each, the smallest: for a quick try")
    parser.add_argument("--policies", default="all", help="policies and groups, separated by commas")
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="numbers of tokens, separated by commas")
    parser.add_argument(
        "--at", type=parse_token_count, default=64_000, help="the budget for the columns tokens and served"
    )
    parser.add_argument("--prices", choices=tuple(PRICES), default="anthropic")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--markdown", type=Path, help="also write the output to this file")
    parser.add_argument("--plot", type=Path, help="write a chart of the curves (SVG)")
    parser.add_argument("--drawn", default=DRAWN, help="policies in the chart, separated by commas")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--again", type=Path, nargs="+", help="measure nothing; create the tables from such files")
    return parser.parse_args()


def _results(asked: argparse.Namespace) -> tuple[SweepResults, str]:
    if asked.again:
        found = [msgspec.json.decode(path.read_bytes(), type=SavedRun) for path in asked.again]
        try:
            return merge_runs(found), found[0].prices
        except ValueError as error:
            sys.exit(str(error))
    names, missing = select_strategies(asked.policies.split(","))
    if missing:
        print(f"Skipped, not installed: {', '.join(missing)}", file=sys.stderr)
    files = find_files(asked.data, asked.split, asked.kinds.split(","), asked.limit)
    budgets = sorted({parse_token_count(one) for one in asked.budgets.split(",")})
    return measured(files, names, budgets, asked.prices, asked.jobs), asked.prices


def main() -> None:
    """Measure, print and write the files."""
    asked = _arguments()
    results, prices = _results(asked)
    if asked.json:
        asked.json.write_bytes(msgspec.json.encode(save_run(results, prices)))
    told = [failure for failure in results.failures if failure.kind != "format"]
    for text in replay_failure_texts(told):
        print(text, file=sys.stderr)
    said = "\n".join(
        markdown(Tables(build_report(results, prices), asked.at, group_by_project(asked.data, results.sessions)))
    )
    print(said)
    if asked.markdown:
        asked.markdown.write_text(said + "\n", encoding="utf-8")
    if asked.plot:
        drawn = build_report(results, prices, only=asked.drawn.split(","))
        asked.plot.write_text(replay_report_chart(drawn), encoding="utf-8")
    if wrong := find_violations(results):
        sys.exit("These exceed the upper bound, so the measurement is wrong:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
