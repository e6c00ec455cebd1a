"""The ways of keeping requests small, by name: one row each. And the price lists, by theirs.

A name means a preset or a policy of this package, one of the user's own presets, a rule that others follow, or a
control (`random-1` is chance with another seed). `path/to/policy.py:name` is a policy in a file: anything that takes a
history and gives edits. Behind one of ours a window's pace may stand, as JSON: `auto{"patience": 2}`; the rest of it is
as by default, whatever is set. All that is needed to make a way again is its name, so a name is what goes to another
process.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec

from thresher.budget import PRESETS, load_settings
from thresher.budget.settings import parse_thresholds
from thresher.errors import OptionError
from thresher.policies import Policy
from thresher.policies.table import current_policy_name, policy_names
from thresher.replay.cost import Rates, rates_for_model
from thresher.replay.scores import FULL_HISTORY, ORACLE_BASELINE, WINDOW_BASELINE
from thresher.replay.simulate import Strategy
from thresher.replay.strategies import baselines, oracle, peer_libraries, peer_rules
from thresher.replay.strategies.window import window_strategy
from thresher.tokens.model_catalog import load_models
from thresher.window import Thresholds

StrategyFactory = Callable[[int, Rates], Strategy]
"""A budget and what tokens cost, to a way."""
PRICES = {
    "anthropic": ("claude-sonnet-4-6", False),
    "anthropic-1h": ("claude-sonnet-4-6", True),
    "openai": ("gpt-5.6-sol", False),
    "gemini": ("gemini-3.1-pro", False),
}
"""Whose rates a price list has, and whether of the cache that lasts an hour."""
BUDGETS = (18_000, 27_000, 36_000, 48_000, 64_000, 90_000, 128_000, 180_000)
"""Where curves are measured by default: smaller ones are slow and say little."""
SEED = 0


def rates_for_price_list(name: str) -> Rates:
    """The rates of a price list."""
    if name not in PRICES:
        raise OptionError(f"no price list is called `{name}`; there are {', '.join(PRICES)}")
    model, hour = PRICES[name]
    return rates_for_model(load_models()[model], hour=hour)


def _window_factory(name: str) -> StrategyFactory:
    return lambda budget, rates: window_strategy(name, budget, rates)


BASELINES: dict[str, StrategyFactory] = {
    FULL_HISTORY: lambda _, __: baselines.full_history_strategy(),
    "random": lambda budget, _: baselines.random_strategy(budget, SEED),
    "recency": lambda budget, _: baselines.recency_strategy(budget),
    WINDOW_BASELINE: lambda budget, _: baselines.newest_batched_strategy(budget),
    "oracle": lambda budget, _: oracle.oracle_strategy(budget),
    ORACLE_BASELINE: lambda budget, _: oracle.batched_oracle_strategy(budget),
}
"""They keep whole blocks, and what is gone comes back only where it is fetched: the bound holds for all of them."""
PEER_STRATEGIES: dict[str, StrategyFactory] = {
    "clear-tool-uses": lambda budget, _: peer_rules.clear_tool_uses_strategy(budget),
    "clear-tool-uses-sticky": lambda budget, _: peer_rules.clear_tool_uses_sticky_strategy(budget),
    "swe-agent": lambda budget, _: peer_rules.swe_agent_strategy(budget),
    "openhands": lambda budget, _: peer_rules.openhands_strategy(budget),
    "cline": lambda budget, _: peer_rules.cline_strategy(budget),
    "opencode": lambda budget, _: peer_rules.opencode_strategy(budget),
    "langchain-clear": lambda budget, _: peer_libraries.langchain_clear_strategy(budget),
    "langchain-trim": lambda budget, _: peer_libraries.langchain_trim_strategy(budget),
}
STRATEGIES: dict[str, StrategyFactory] = {
    **{name: _window_factory(name) for name in PRESETS},
    **BASELINES,
    **PEER_STRATEGIES,
}
GROUPS = ("presets", "peers", "controls", "all")


def collect_strategies() -> Mapping[str, StrategyFactory]:
    """Every way that has a name here, the user's own presets too; a control keeps its name."""
    names = (*load_settings().presets, *policy_names())
    return {**{name: _window_factory(name) for name in names}, **STRATEGIES}


def select_strategies(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The ways that names and groups mean, each once; and those that a group leaves out, for they are not installed."""
    found: dict[str, None] = {}
    missing: dict[str, None] = {}
    for name in names:
        if name in GROUPS:
            for one in _group(name):
                (found if _is_available(one) else missing)[one] = None
        else:
            name = _current_name(name)  # noqa: PLW2901 - results are kept by the current name
            make_strategy(name, 1, Rates())  # says now what is wrong with it, not in each process
            found[name] = None
    return list(found), list(missing)


def make_strategy(name: str, budget: int | None, rates: Rates) -> Strategy:
    """A way by its name; a budget of None is for those that take none."""
    return _find_factory(name)(budget or 0, rates)


def is_baseline(name: str) -> bool:
    """Whether a way is no policy but what policies are measured by; chance with any seed is one."""
    return name in BASELINES or _seed(name) is not None


def takes_budget(name: str) -> bool:
    """Whether a budget means anything to a way."""
    return name != FULL_HISTORY


def policy_file(name: str) -> Path | None:
    """The file that a policy is in, where the name says one."""
    path, colon, inside = name.rpartition(":")
    return Path(path) if colon and inside and path.endswith(".py") else None


def _is_available(name: str) -> bool:
    try:
        make_strategy(name, 1, Rates())
    except OptionError:
        return False
    return True


def _group(name: str) -> list[str]:
    presets = [*PRESETS, *(one for one in load_settings().presets if one not in PRESETS)]
    every = {"presets": presets, "peers": [*PEER_STRATEGIES], "controls": [*BASELINES]}
    return [*presets, *BASELINES, *PEER_STRATEGIES] if name == "all" else every[name]


def _current_name(name: str) -> str:
    """Return a name with the current name of its policy; a preset of the user keeps its name."""
    policy, brace, thresholds = name.partition("{")
    return name if policy in load_settings().presets else current_policy_name(policy) + brace + thresholds


def _find_factory(name: str) -> StrategyFactory:
    name = _current_name(name)
    if name.endswith("}"):
        return _make_threshold_factory(name)
    if (path := policy_file(name)) is not None:
        policy = _load_policy(path, name.rpartition(":")[2])
        return lambda budget, rates: window_strategy(policy, budget, rates, name=name)
    ways = collect_strategies()
    seed = _seed(name)
    if name not in ways and seed is not None:
        return lambda budget, _: baselines.random_strategy(budget, seed)
    if name not in ways:
        groups, own = ", ".join(GROUPS), "path/to/policy.py:name"
        raise OptionError(
            f"no policy is called `{name}`; there are {', '.join(ways)}, the groups {groups}, and `{own}`"
        )
    return ways[name]


def _seed(name: str) -> int | None:
    seed = name.removeprefix("random-")
    return int(seed) if seed != name and seed.isdecimal() else None


def _make_threshold_factory(name: str) -> StrategyFactory:
    """A policy in a window with a pace of its own."""
    policy, _, told = name.partition("{")
    if policy in {*BASELINES, *PEER_STRATEGIES} or policy not in collect_strategies():
        raise OptionError(f"no policy with a window is called `{policy}`: `{name}` cannot be made")
    try:
        options = msgspec.json.decode("{" + told, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise OptionError(f"`{name}`: behind the policy stands a window's pace as JSON; {error}") from error
    pace = Thresholds(**parse_thresholds(options, name))
    return lambda budget, rates: window_strategy(policy, budget, rates, name=name, thresholds=pace)


# Policies in files


def _load_policy(path: Path, name: str) -> Policy:
    """A policy from a file of the user's; a class is one with its options as they are."""
    if not path.is_file():
        raise OptionError(f"there is no file `{path}` with a policy; name one as path/to/policy.py:name")
    try:
        stat = path.stat()
        module = _module(path.resolve(), stat.st_mtime_ns, stat.st_size)
        found: Any = getattr(module, name, None)
        policy = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:
        raise OptionError(f"`{path}` cannot be run: {type(error).__name__}: {error}") from error
    if not callable(policy):
        names = ", ".join(_list_callables(path, module)) or "nothing that can be called"
        raise OptionError(f"`{path}` has no policy `{name}`; it has {names}")
    made: Policy = policy
    return made


class _UncachedLoader(SourceFileLoader):
    """Runs what is written, never what was compiled before: that is told apart by whole seconds only."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


@lru_cache(maxsize=64)
def _module(path: Path, time: int, size: int) -> ModuleType:
    """A file, run once as it was at that time; known as a module by then, for dataclasses look themselves up there."""
    name = f"thresher_policy_{path.stem}_{sha256(f'{path} {time} {size}'.encode('utf-8', 'replace')).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"no module can be made of {path}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _list_callables(path: Path, module: ModuleType) -> list[str]:
    """What can be called in a file and was not brought there from elsewhere."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    brought = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    every = ((name, value) for name, value in vars(module).items() if not name.startswith("_") and name not in brought)
    return sorted(name for name, value in every if callable(value))
