"""Load settings: options of the call override environment variables, and these override `thresher.toml`.

Every option has an environment variable. `THRESHER_EXCLUDE_TOOLS=Edit,Write` sets the option `exclude_tools`,
`THRESHER_READS_MAX_FILE_READS=3` sets the option `max_file_reads` of the policy `reads`, and
`THRESHER_THRESHOLDS_PATIENCE=2` sets a window's threshold `patience`. Options that belong to no policy and no threshold
also accept the prefix `CLAUDIST_`. An empty value means not set, `none` an empty list; an invalid value is an error.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from msgspec import ValidationError, convert

from thresher.budget.options import FilterOptions, check_option_names
from thresher.budget.presets import ESCALATION_STEPS, PRESETS, PolicyStep
from thresher.budget.thresholds import Thresholds
from thresher.deprecation import rename_options, update_options
from thresher.errors import OptionError, suggest_name
from thresher.model.tool_catalog import INCLUDED_CATEGORIES
from thresher.policies import Policy
from thresher.policies.table import (
    RENAMED_POLICIES,
    current_policy_name,
    is_policy,
    policy_class,
    policy_name,
    policy_names,
    policy_options,
)

ENVIRONMENT_PREFIXES = ("CLAUDIST_", "THRESHER_")
"""Prefixes of environment variables; a later prefix overrides an earlier one."""
ENVIRONMENT_ALIASES = {"FILTER_PRESET": "POLICY"}
IGNORED_VARIABLES = frozenset({"PRESERVE_CONTEXT", "COMPACT_MODE"})
"""Variables that are accepted for compatibility and have no effect."""
NON_OPTION_VARIABLES = frozenset({"HOME", "MAX_UNPACKED_MB", "MODELS", "RETENTION", "TEST_PROFILE", "UPDATE_GOLDEN"})
"""Variables that have one of the prefixes but do not set an option."""
MODEL_PREFIXES = ("MEANING_", "ANNOTATE_")
"""Prefixes of variables that configure models of the memory (`thresher.memory.model_endpoints`)."""
SETTINGS_FILE = "thresher.toml"
TABLE_OPTIONS = ("policies", "presets", "thresholds")
THRESHOLD_TYPES = get_type_hints(Thresholds)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's settings; None means not set."""

    policy: str | None = None
    budget: int | None = None
    model: str | None = None
    context_marks: tuple[str, ...] = ()
    """First words of user messages that declare context, which is never removed."""
    filters: FilterOptions = field(default_factory=FilterOptions)
    """Options that add a step to any policy or remove one."""
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of policies, by the policy's name."""
    presets: Mapping[str, tuple[PolicyStep, ...]] = field(default_factory=dict)
    """The user's own presets."""
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    """Options of a window's `Thresholds`."""

    def steps(self, preset: str) -> tuple[PolicyStep, ...]:
        """Return the steps of a preset or policy, with the steps that options add."""
        base = self.preset_steps(preset)
        return (*base, *self.option_steps(base))

    def preset_steps(self, preset: str) -> tuple[PolicyStep, ...]:
        """Return the steps of a preset or policy, without those that an option disables or replaces."""
        return tuple(self._with_options(step) for step in self._filter_steps(self._expand_preset(preset)))

    def option_steps(self, base: Iterable[PolicyStep] = ()) -> tuple[PolicyStep, ...]:
        """Return the steps that options add to the steps of a policy; an option may instead change a step of `base`."""
        names = {name for name, _ in base}
        added = (step for step in self._build_option_steps() if step[0] != "subagents" or "subagents" not in names)
        return tuple(self._with_options(step) for step in added)

    def escalation_steps(self, steps: tuple[PolicyStep, ...] = ESCALATION_STEPS) -> tuple[PolicyStep, ...]:
        """Return the steps to fit a budget, without those that an option disables."""
        return tuple(self._with_options(step) for step in self._filter_steps(steps, replaces=False))

    def unused_option_notes(self, policies: Iterable[Policy], budget: int | None) -> list[str]:
        """Return a note for each policy option that no step uses."""
        used = {policy_name(policy) for policy in policies}
        used |= {name for name, _ in self.escalation_steps()} if budget is not None else set()
        unused = {name: options for name, options in self.policies.items() if name not in used}
        names = (f"{name}.{option}" for name, options in unused.items() for option in options)
        return [f"`{name}` is set, but no step uses it" for name in names]

    def current_name(self, name: str) -> str:
        """Return the current name of a preset or policy; a user's preset keeps its name."""
        return name if name in self.presets else current_policy_name(name)

    def _expand_preset(self, preset: str, within: tuple[str, ...] = ()) -> tuple[PolicyStep, ...]:
        """Return the steps of a preset, with the steps of each preset that it includes."""
        known = {**PRESETS, **self.presets}
        preset = self.current_name(preset)
        if preset in within:
            raise OptionError(f"the preset `{preset}` includes itself: {' → '.join((*within, preset))}")
        if preset not in known:
            if is_policy(preset):
                return ((preset, {}),)
            names = list(dict.fromkeys((*known, *policy_names())))
            hint = suggest_name(preset, names)
            raise OptionError(f"unknown preset or policy `{preset}`.{hint} Valid names: {', '.join(names)}")
        steps: list[PolicyStep] = []
        for name, options in known[preset]:
            current = current_policy_name(name)
            steps += [(current, options)] if is_policy(current) else self._expand_preset(name, (*within, preset))
        return tuple(steps)

    def _with_options(self, step: PolicyStep) -> PolicyStep:
        name, options = step
        halves = self._subagent_options if name == "subagents" else {}
        return name, {**options, **self.policies.get(name, {}), **halves}

    def _filter_steps(self, base: tuple[PolicyStep, ...], *, replaces: bool = True) -> tuple[PolicyStep, ...]:
        """Return the steps without those that an option disables; with `replaces`, also without replaced ones."""
        filters = self.filters
        off = {
            "thinking": filters.get("exclude_thinking"),
            "reminders": filters.get("exclude_system_reminders"),
        }
        failed = self._excludes_failed_tools is False
        return tuple(
            (name, options)
            for name, options in base
            if (off.get(name) is None if replaces else off.get(name) is not False)
            and not (failed and (name == "superseded" or options.get("failed")))
            and not (options.get("empty") and filters.get("exclude_empty") is False)
            and not (replaces and options.get("longer_than") and filters.get("max_message_length") is not None)
        )

    @property
    def _subagent_options(self) -> dict[str, bool]:
        """The options of the policy `subagents` that are set; each option sets one half, and the preset the other."""
        given = {
            "calls": self.filters.get("exclude_subagent_calls"),
            "responses": self.filters.get("exclude_subagent_responses"),
        }
        return {name: value for name, value in given.items() if value is not None}

    def _build_option_steps(self) -> list[PolicyStep]:
        given = self.filters.get
        categories: tuple[str, ...] = self.filters.get("exclude_tool_categories") or ()
        included = (narrower for category in categories for narrower in INCLUDED_CATEGORIES.get(category, ()))
        tools = {
            "names": given("exclude_tools") or (),
            "categories": tuple(dict.fromkeys((*categories, *included))),
        }
        only = given("exclude_tool_results_only") or given("exclude_tool_calls_only")
        if only and not any(tools.values()):
            tools = {"names": ("*",)}
        subagents = {"calls": False, "responses": False, **self._subagent_options}
        every: list[tuple[Any, str, dict[str, Any]]] = [
            (given("exclude_thinking"), "thinking", {}),
            (given("exclude_system_reminders"), "reminders", {}),
            (any(subagents.values()), "subagents", subagents),
            (any(tools.values()), "tools", {**tools, "action": self._tool_action}),
            (self._excludes_failed_tools, "tools", {"failed": True}),
            (given("exclude_errors"), "messages", {"api_errors": True}),
            (given("exclude_empty"), "messages", {"empty": True}),
            (given("exclude_roles"), "messages", {"roles": given("exclude_roles")}),
            (given("custom_patterns"), "messages", {"patterns": given("custom_patterns")}),
            (given("max_message_length"), "messages", {"longer_than": given("max_message_length")}),
        ]
        return [(name, options) for is_set, name, options in every if is_set]

    @property
    def _excludes_failed_tools(self) -> bool | None:
        """The option for failed calls; if it is not set, the option for all errors."""
        specific = self.filters.get("exclude_failed_tools")
        return self.filters.get("exclude_errors") if specific is None else specific

    @property
    def _tool_action(self) -> str:
        if self.filters.get("exclude_tool_results_only"):
            return "replace"
        return "replace_calls" if self.filters.get("exclude_tool_calls_only") else "drop"


_FILTER_TYPES = get_type_hints(FilterOptions)
_OPTION_TYPES = {"policy": str, "budget": int, "model": str, "context_marks": tuple[str, ...], **_FILTER_TYPES}
OPTION_NAMES = tuple(_OPTION_TYPES)


def load_settings(
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    policy: str | None = None,
    budget: int | str | None = None,
    model: str | None = None,
    context_marks: tuple[str, ...] | None = None,
    **filters: Unpack[FilterOptions],
) -> Settings:
    """Load the settings: options of the call override the environment, which overrides `file` (`thresher.toml`)."""
    check_option_names(filters, OPTION_NAMES)
    settings = _load_file(Path(SETTINGS_FILE) if file is None else file, needed=file is not None)
    settings = _load_environment(settings, os.environ if environment is None else environment)
    options = {"policy": policy, "budget": budget, "model": model, "context_marks": context_marks, **filters}
    given = {name: _convert_option(name, value, "option") for name, value in options.items() if value is not None}
    return _with_plain_options(settings, given)


def _with_plain_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    filters: Any = {**settings.filters, **{name: value for name, value in options.items() if name in _FILTER_TYPES}}
    others = {name: value for name, value in options.items() if name not in _FILTER_TYPES}
    return replace(settings, **others, filters=filters)


def _load_environment(settings: Settings, environment: Mapping[str, str]) -> Settings:
    plain: dict[str, Any] = {}
    policies = {name: dict(options) for name, options in settings.policies.items()}
    thresholds = dict(settings.thresholds)
    for prefix in ENVIRONMENT_PREFIXES:
        for key, value in environment.items():
            if not key.startswith(prefix) or not value.strip() or key[len(prefix) :].startswith(MODEL_PREFIXES):
                continue
            short = ENVIRONMENT_ALIASES.get(key[len(prefix) :], key[len(prefix) :])
            name = short.lower()
            if name in OPTION_NAMES:
                plain[name] = _convert_option(name, value, key)
            elif name.startswith(("thresholds_", "pace_")) and prefix == "THRESHER_":
                thresholds |= parse_thresholds({name.partition("_")[2]: value}, key)
            elif short not in IGNORED_VARIABLES | NON_OPTION_VARIABLES and prefix == "THRESHER_":
                policy, option, given = _split_policy_option(short, value, key)
                converted = _convert_value(policy_options(policy)[option], given, key)
                policies.setdefault(policy, {})[option] = converted
    return replace(_with_plain_options(settings, plain), policies=policies, thresholds=thresholds)


def parse_thresholds(options: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Convert options of `Thresholds` to their types; `Thresholds` validates their ranges."""
    options = dict(options)
    update_options(Thresholds, options)
    for name in options:
        if name not in THRESHOLD_TYPES:
            raise OptionError(f"`{origin}`: unknown threshold `{name}`. Valid thresholds: {', '.join(THRESHOLD_TYPES)}")
    return {name: _convert_value(THRESHOLD_TYPES[name], value, f"{origin}: {name}") for name, value in options.items()}


def _split_policy_option(short: str, value: str, key: str) -> tuple[str, str, str]:
    """Return the policy, option and value of an environment variable; the longest matching policy name wins."""
    for policy in sorted((*policy_names(), *RENAMED_POLICIES), key=len, reverse=True):
        prefix = f"{policy}_".replace("-", "_").lower()
        current = RENAMED_POLICIES.get(policy, policy)
        if short.lower().startswith(prefix) and is_policy(current):
            options = {short.lower()[len(prefix) :]: value}
            update_options(policy_class(policy), options)
            ((option, given),) = options.items()
            if option in policy_options(current):
                return current, option, given
    raise OptionError(
        f"the environment variable `{key}` is not an option. Valid: THRESHER_ with one of {', '.join(OPTION_NAMES)}; "
        "THRESHER_<POLICY>_<OPTION>; THRESHER_THRESHOLDS_ with a threshold of a window"
    )


def _convert_option(name: str, value: Any, origin: str) -> Any:
    """Convert a value from Python, the environment or a file to the type of its option."""
    if name == "budget":
        return parse_token_count(value)
    return _convert_value(_OPTION_TYPES[name], value, origin)


def _convert_value(hint: Any, value: Any, origin: str) -> Any:
    """Convert a value to the type `hint`; a string for a tuple is split at commas, `none` is empty."""
    if isinstance(value, str) and any(get_origin(kind) is tuple for kind in (hint, *get_args(hint))):
        words = [word.strip() for word in value.split(",") if word.strip()]
        value = [] if [word.lower() for word in words] == ["none"] else words
    try:
        return convert(value.strip().lower() if _is_flag(hint, value) else value, hint, strict=False)
    except ValidationError as error:
        raise OptionError(f"`{origin}`: invalid value {value!r}: {error}") from error


def _is_flag(hint: Any, value: Any) -> bool:
    return isinstance(value, str) and bool in (hint, *get_args(hint))


def parse_token_count(value: Any) -> int:
    """Parse a number of tokens: `60000`, `60_000`, `60k`, `1.5M`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    text = str(value).strip().lower().replace("_", "").replace(",", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(text[-1:], 1)
    try:
        number = float(text[:-1] if factor > 1 else text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise OptionError(f"a budget must be a number of tokens such as 60000, 60k or 1.5M, got {value!r}")
    return int(number * factor)


def _load_file(path: Path, *, needed: bool) -> Settings:
    if not needed and not path.is_file():
        return Settings()
    import tomllib  # noqa: PLC0415 - only if the file exists

    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read `{path}`: {error}") from error
    rename_options(str(path), table, {"pace": "thresholds"})
    check_option_names(table, (*OPTION_NAMES, *TABLE_OPTIONS), f"`{path}`: ")
    plain = {name: _convert_option(name, table[name], f"{path}: {name}") for name in OPTION_NAMES if name in table}
    tables = _get_table(path, table, "policies")
    rename_options(f"{path}: policies", tables, RENAMED_POLICIES)
    policies = {name: _parse_policy_options(path, name, options) for name, options in tables.items()}
    presets = {name: _parse_steps(path, name, steps) for name, steps in _get_table(path, table, "presets").items()}
    thresholds = parse_thresholds(_get_table(path, table, "thresholds"), f"{path}: thresholds")
    return _with_plain_options(Settings(policies=policies, presets=presets, thresholds=thresholds), plain)


def _get_table(path: Path, settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = settings.get(name, {})
    if not isinstance(value, dict):
        raise OptionError(f"`{path}`: `{name}` must be a table, got {value!r}")
    return value


def _parse_policy_options(path: Path, policy: str, options: Any) -> dict[str, Any]:
    """Convert the options of a policy to their types."""
    if not isinstance(options, dict):
        raise OptionError(f"`{path}`: `policies.{policy}` must be a table of options, got {options!r}")
    options = dict(options)
    update_options(policy_class(policy), options)
    known = policy_options(policy)
    for option in options:
        if option not in known:
            raise OptionError(f"`{path}`: policy `{policy}` has no option `{option}`")
    return {name: _convert_value(known[name], value, f"{path}: {policy}.{name}") for name, value in options.items()}


def _parse_steps(path: Path, preset: str, steps: Any) -> tuple[PolicyStep, ...]:
    if not isinstance(steps, list):
        raise OptionError(f"`{path}`: the preset `{preset}` must be a list of steps, got {steps!r}")
    return tuple(_parse_step(path, step) for step in steps)


def _parse_step(path: Path, step: Any) -> PolicyStep:
    if isinstance(step, str):
        return step, {}
    if not isinstance(step, dict) or not isinstance(step.get("policy"), str):
        raise OptionError(f"`{path}`: a step must be a policy's name or a table with `policy = …`, got {step!r}")
    options = dict(step)
    name = options.pop("policy")
    return name, _parse_policy_options(path, name, options)
