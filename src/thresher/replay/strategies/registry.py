"""Strategies by name, and price lists by name.

A name is a preset or a policy of this package, a preset of the user, a rule of another tool, or a baseline (`random-1`
is `random` with another seed). `path/to/policy.py:name` is a policy in a file: any callable that takes a history and
returns edits. A window policy may be followed by thresholds as JSON: `auto{"patience": 2}`. Thresholds that are not
listed there keep their default, regardless of the user's settings. A strategy can be created from its name alone, so
only names are sent to worker processes.
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
from thresher.budget.escalation import make_step_policies
from thresher.budget.fitting import resolve_plan_setup
from thresher.budget.settings import parse_thresholds
from thresher.errors import OptionError, suggest_name
from thresher.model import History
from thresher.policies import Policy, PolicyLike
from thresher.policies.table import current_policy_name, policy_names
from thresher.replay.cost import Rates, rates_for_model
from thresher.replay.scores import FULL_HISTORY, ORACLE_BASELINE, WINDOW_BASELINE
from thresher.replay.simulate import Strategy
from thresher.replay.strategies import baselines, oracle, peer_libraries, peer_rules
from thresher.replay.strategies.window import window_strategy
from thresher.tokens.model_catalog import load_models
from thresher.window import Thresholds

StrategyFactory = Callable[[int, Rates], Strategy]
"""Function that creates a strategy from a budget and the rates."""
PRICES = {
    "anthropic": ("claude-sonnet-4-6", False),
    "anthropic-1h": ("claude-sonnet-4-6", True),
    "openai": ("gpt-5.6-sol", False),
    "gemini": ("gemini-3.1-pro", False),
}
"""For each price list, the model whose rates it uses, and True if it uses the rates of the one-hour cache."""
BUDGETS = (18_000, 27_000, 36_000, 48_000, 64_000, 90_000, 128_000, 180_000)
"""Default budgets of a curve. Smaller budgets are slow to replay and show little."""
SEED = 0


def rates_for_price_list(name: str) -> Rates:
    """Return the rates of a price list."""
    if name not in PRICES:
        raise OptionError(f"unknown price list `{name}`. Available: {', '.join(PRICES)}.")
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
"""Strategies that drop whole blocks and bring none back without a refetch: the upper bound holds for them."""
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
    """Return every named strategy, including the user's presets, which cannot replace a built-in strategy."""
    names = (*load_settings().presets, *policy_names())
    return {**{name: _window_factory(name) for name in names}, **STRATEGIES}


def select_strategies(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Expand names and groups to strategies. Also return the group members that are not installed."""
    selected: dict[str, None] = {}
    missing: dict[str, None] = {}
    for name in names:
        if name in GROUPS:
            for member in _group(name):
                (selected if _is_available(member) else missing)[member] = None
        else:
            name = _current_name(name)  # noqa: PLW2901 - results are stored under the current name
            make_strategy(name, 1, Rates())  # fail here rather than in each worker process
            selected[name] = None
    for name in selected:
        _check_options(name)
    return list(selected), list(missing)


def _check_options(name: str) -> None:
    """Raise `OptionError` for an invalid setting of a window policy, which would fail the replay of every session."""
    if is_baseline(name) or name in PEER_STRATEGIES:
        return
    path = policy_file(name)
    policy: PolicyLike = name.partition("{")[0] if path is None else _load_policy(path, name.rpartition(":")[2])
    setup = resolve_plan_setup(History(()), policy, {"budget": BUDGETS[0]})
    for _ in make_step_policies(setup.escalation_steps()):
        pass


def make_strategy(name: str, budget: int | None, rates: Rates) -> Strategy:
    """Create a strategy from its name. The budget is None if the strategy takes none."""
    return _find_factory(name)(budget or 0, rates)


def is_baseline(name: str) -> bool:
    """Report whether a strategy is a baseline, including `random` with any seed."""
    return name in BASELINES or _parse_seed(name) is not None


def takes_budget(name: str) -> bool:
    """Report whether a strategy takes a budget."""
    return name != FULL_HISTORY


def policy_file(name: str) -> Path | None:
    """Return the file in a name of the form `path/to/policy.py:name`; None for any other name."""
    path, _, policy = name.rpartition(":")
    return Path(path) if policy and path.endswith(".py") else None


def _is_available(name: str) -> bool:
    try:
        make_strategy(name, 1, Rates())
    except OptionError:
        return False
    return True


def _group(name: str) -> list[str]:
    presets = [*dict.fromkeys((*PRESETS, *load_settings().presets))]
    groups = {"presets": presets, "peers": [*PEER_STRATEGIES], "controls": [*BASELINES]}
    return [*presets, *BASELINES, *PEER_STRATEGIES] if name == "all" else groups[name]


def _current_name(name: str) -> str:
    """Replace an old policy name in a strategy name by the current one; a user's preset keeps its name."""
    policy, brace, thresholds = name.partition("{")
    return name if policy in load_settings().presets else current_policy_name(policy) + brace + thresholds


def _find_factory(name: str) -> StrategyFactory:
    name = _current_name(name)
    if name.endswith("}"):
        return _make_threshold_factory(name)
    if (path := policy_file(name)) is not None:
        policy = _load_policy(path, name.rpartition(":")[2])
        return lambda budget, rates: window_strategy(policy, budget, rates, name=name)
    strategies = collect_strategies()
    if name in strategies:
        return strategies[name]
    if (seed := _parse_seed(name)) is not None:
        return lambda budget, _: baselines.random_strategy(budget, seed)
    raise OptionError(
        f"unknown policy `{name}`.{suggest_name(name, strategies)} Valid policies: {', '.join(strategies)}, "
        f"the groups {', '.join(GROUPS)}, or `path/to/policy.py:name`."
    )


def _parse_seed(name: str) -> int | None:
    seed = name.removeprefix("random-")
    return int(seed) if seed != name and seed.isdecimal() else None


def _make_threshold_factory(name: str) -> StrategyFactory:
    """Return a factory for a window policy with its own thresholds."""
    policy, brace, rest = name.partition("{")
    if policy in {*BASELINES, *PEER_STRATEGIES} or policy not in collect_strategies():
        raise OptionError(f"`{name}`: only a window policy or preset takes thresholds, and `{policy}` is neither.")
    try:
        options = msgspec.json.decode(brace + rest, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise OptionError(f"`{name}`: the thresholds after the policy must be a JSON object: {error}") from error
    thresholds = Thresholds(**parse_thresholds(options, name))
    return lambda budget, rates: window_strategy(policy, budget, rates, name=name, thresholds=thresholds)


# Policies in files


def _load_policy(path: Path, name: str) -> Policy:
    """Load a policy from a user's file. A class is instantiated with its default options."""
    if not path.is_file():
        raise OptionError(f"policy file `{path}` does not exist. Specify a policy as `path/to/policy.py:name`.")
    try:
        stat = path.stat()
        module = _module(path.resolve(), stat.st_mtime_ns, stat.st_size)
        value: Any = getattr(module, name, None)
        value = value() if isinstance(value, type) else value
    except (Exception, SystemExit) as error:
        raise OptionError(f"cannot run `{path}`: {type(error).__name__}: {error}") from error
    if not callable(value):
        names = ", ".join(_list_callables(path, module)) or "none"
        raise OptionError(f"`{path}` has no policy `{name}`. Callables in it: {names}.")
    policy: Policy = value
    return policy


class _UncachedLoader(SourceFileLoader):
    """Always compile the source: the bytecode cache compares whole seconds only and misses quick edits."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


@lru_cache(maxsize=64)
def _module(path: Path, time: int, size: int) -> ModuleType:
    """Run a file once per version. Add the module to `sys.modules` first, because dataclasses look for it there."""
    name = f"thresher_policy_{path.stem}_{sha256(f'{path} {time} {size}'.encode('utf-8', 'replace')).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _list_callables(path: Path, module: ModuleType) -> list[str]:
    """List the callables that a file defines and does not import."""
    imports = (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Import | ast.ImportFrom))
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    callables = (name for name, value in vars(module).items() if callable(value))
    return sorted(name for name in callables if not name.startswith("_") and name not in imported)
