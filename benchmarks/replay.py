"""The published figures of counterfactual replay (`docs/explanation/replay.md`): what each policy needs, serves and costs.

    python benchmarks/replay.py [--split report|tune|all] [--kinds claude_code,codex,opencode,pi,mini_swe]
                                [--policies all] [--budgets 18k,27k,…] [--at 64k] [--prices anthropic] [--jobs 2]
                                [--limit N] [--markdown FILE] [--plot FILE] [--json FILE] [--again FILE…]

All sessions of one half of the shared recordings are sent again by `thresher.replay.sweep`, in every way that can run
here (LangChain's want `.venv-bench`). A run that was stopped goes on when it is started again; `--json` keeps all that
was measured, and `--again` makes the tables from that, or from several such files of the same sessions. What is
printed is Markdown:

- all sessions: T95, C95, what is lost there, the gap closed, and what is sent and served at one budget. T95 of quotes
  counts those calls alone that used lines or long runs of words, for no list of names can serve them;
- the same for each format apart;
- each project of five sessions or more: `auto` against the plain window, at the tokens that `auto` sends where it
  serves 95 %. Between two budgets the other's curve is a straight line, and it ends at the full history;
- the controls at those tokens, over all sessions. Chance is the mean of three seeds.

In brackets is the middle 95 % of 400 draws of the sessions; differences are drawn in pairs. It ends with 1 if a way
that keeps whole blocks serves more than the bound allows, for then the measure is wrong.
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
from thresher.render.replay import ReplayReport, build_replay_report, replay_failure_text
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
"""As many curves as an eye can tell apart."""


# What is measured


def files_of(data: Path, split: str, kinds: Sequence[str], limit: int | None) -> list[Path]:
    """The files of some folders; with a limit so many of each, the smallest."""
    named = [data / file for file in recordings(data, split) if file.partition("/")[0] in kinds]
    if limit is None:
        return named
    sized = sorted(named, key=lambda path: path.stat().st_size)
    return [path for kind in kinds for path in [one for one in sized if one.parent.name == kind][:limit]]


def measured(
    files: Sequence[Path], names: Sequence[str], budgets: Sequence[int], prices: str, jobs: int
) -> SweepResults:
    """All of them in all ways, and what goes beside the policies asked for: chance with more seeds."""
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


def averaged(tallies: TotalsBySetting) -> dict[StrategySetting, dict[str, ReplayTotals]]:
    """Chance as the mean of its seeds; sums of calls stay sums, for all that is told of them are shares."""
    found = {setting: dict(by) for setting, by in tallies.items() if setting.name not in SEEDS[1:]}
    for setting, by in found.items():
        if setting.name == CHANCE:
            of = [one for seed in SEEDS if (one := tallies.get(StrategySetting(seed, setting.budget))) is not None]
            found[setting] = {key: _mean([one[key] for one in of]) for key in by if all(key in one for one in of)}
    return found


def _mean(of: Sequence[ReplayTotals]) -> ReplayTotals:
    """Costs are told against those of the full history, which is there once."""
    added = sum_totals(of)
    return structs.replace(added, cost=added.cost / len(of), refetch=added.refetch / len(of))


def projects_of(data: Path, sessions: Mapping[str, ReplayedSession]) -> dict[str, list[str]]:
    """The sessions by the repository that they come from."""
    rows = map(json.loads, (data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    repositories = {row["file"]: row["repo"] for row in rows}
    found: dict[str, list[str]] = {}
    for key, facts in sessions.items():
        file = "/".join(Path(facts.file).parts[-2:])
        found.setdefault(repositories.get(file, facts.project or file), []).append(key)
    return found


def report_on(results: SweepResults, prices: str, only: Sequence[str] = ()) -> ReplayReport:
    """What is said of all policies, or of some."""
    taken = {setting: by for setting, by in averaged(results.tallies).items() if not only or setting.name in only}
    return build_replay_report(structs.replace(results, tallies=taken), prices)


# What is kept


class Measured(Struct, frozen=True):
    """One way at one budget with one session."""

    way: str
    budget: int | None
    session: str
    tally: ReplayTotals


class Kept(Struct, frozen=True):
    """All that was measured."""

    prices: str
    files: int
    short: int
    sessions: dict[str, ReplayedSession]
    floors: dict[str, list[MinimumCost]]
    failures: list[ReplayFailure]
    tallies: list[Measured]
    report: dict[str, Any] = {}
    """What `thresher replay --json` says of it."""
    definition: str = ""
    """By which it was measured; older files do not say it."""


def kept(results: SweepResults, prices: str) -> Kept:
    """Results as they are written."""
    rows = [Measured(*setting, key, tally) for setting, by in results.tallies.items() for key, tally in by.items()]
    said = replay_report_value(report_on(results, prices))
    facts = results.sessions, results.floors, results.failures
    return Kept(prices, results.files, results.short, *facts, rows, said, REFERENCE_DEFINITION)


def joined(files: Sequence[Kept]) -> SweepResults:
    """The same sessions, measured in several runs; what a later one measured again counts."""
    if wrong := differences(files):
        raise ValueError(f"these files cannot be told together: {'; '.join(wrong)}")
    results = [results_of(one) for one in files]
    known: dict[tuple[str, str], ReplayFailure] = {}
    tallies: dict[StrategySetting, dict[str, ReplayTotals]] = {}
    for one in results:
        ways = {setting.name for setting in one.tallies}
        tallies = {setting: of for setting, of in tallies.items() if setting.name not in ways} | one.tallies
        known = {key: failure for key, failure in known.items() if failure.way not in ways}
        known |= {(failure.file, failure.way): failure for failure in one.failures}
    return structs.replace(results[-1], tallies=tallies, failures=list(known.values()))


def differences(files: Sequence[Kept]) -> list[str]:
    """Why files cannot be told together; one that says no definition is taken to have that of the others."""
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


def results_of(one: Kept) -> SweepResults:
    """And as they are read."""
    tallies: dict[StrategySetting, dict[str, ReplayTotals]] = {}
    for row in one.tallies:
        tallies.setdefault(StrategySetting(row.way, row.budget), {})[row.session] = row.tally
    return SweepResults(
        sessions=one.sessions,
        tallies=tallies,
        floors=one.floors,
        failures=one.failures,
        files=one.files,
        short=one.short,
    )


# The command line


def broken(results: SweepResults) -> list[str]:
    """Where a way serves more than can be."""
    found = find_bound_violations(results.tallies, results.floors, {*BASELINES, *SEEDS})
    return [
        f"{one.setting.name} at {one.setting.budget} serves {one.served:.2%} of {one.session}; "
        f"{one.max_served:.2%} can be"
        for one in found
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of recordings, with its index.jsonl")
    parser.add_argument("--split", choices=("report", "tune", "all"), default="report")
    parser.add_argument("--kinds", default=KINDS, help="folders of recordings, with commas")
    parser.add_argument("--limit", type=int, help="at most so many files of each, the smallest: to try it")
    parser.add_argument("--policies", default="all", help="policies and groups of them, with commas")
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="tokens, with commas")
    parser.add_argument(
        "--at", type=parse_token_count, default=64_000, help="the budget of which tokens and service are told"
    )
    parser.add_argument("--prices", choices=tuple(PRICES), default="anthropic")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--markdown", type=Path, help="write what is printed to this file, too")
    parser.add_argument("--plot", type=Path, help="draw the curves: an SVG")
    parser.add_argument("--drawn", default=DRAWN, help="whose, with commas")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    parser.add_argument("--again", type=Path, nargs="+", help="measure nothing; make the tables from such files")
    return parser.parse_args()


def _results(asked: argparse.Namespace) -> tuple[SweepResults, str]:
    if asked.again:
        found = [msgspec.json.decode(path.read_bytes(), type=Kept) for path in asked.again]
        try:
            return joined(found), found[0].prices
        except ValueError as error:
            sys.exit(str(error))
    names, missing = select_strategies(asked.policies.split(","))
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    files = files_of(asked.data, asked.split, asked.kinds.split(","), asked.limit)
    budgets = sorted({parse_token_count(one) for one in asked.budgets.split(",")})
    return measured(files, names, budgets, asked.prices, asked.jobs), asked.prices


def main() -> None:
    """Measure, print, write."""
    asked = _arguments()
    results, prices = _results(asked)
    if asked.json:
        asked.json.write_bytes(msgspec.json.encode(kept(results, prices)))
    told = [failure for failure in results.failures if failure.kind != "format"]
    for text in dict.fromkeys(map(replay_failure_text, told)):
        print(text, file=sys.stderr)
    said = "\n".join(markdown(Tables(report_on(results, prices), asked.at, projects_of(asked.data, results.sessions))))
    print(said)
    if asked.markdown:
        asked.markdown.write_text(said + "\n", encoding="utf-8")
    if asked.plot:
        drawn = report_on(results, prices, only=asked.drawn.split(","))
        asked.plot.write_text(replay_report_chart(drawn), encoding="utf-8")
    if wrong := broken(results):
        sys.exit("above the bound, so the measure is wrong:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
