"""Options of a window, and the validation of their values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from thresher.budget.options import PlanOptions, check_option_names
from thresher.budget.thresholds import Thresholds
from thresher.deprecation import rename_options, rename_value
from thresher.dialects.cache_control import CacheBreakpointMode, CacheTtl
from thresher.errors import OptionError
from thresher.store import ContentStore
from thresher.summarize import Judge, Summarizer
from thresher.window.events import WindowEvent
from thresher.window.ledger import Ledger
from thresher.window.prices import Prices
from thresher.window.summary_jobs import SummaryTiming

OnOverflow = Literal["send", "raise"]
RENAMED_OPTIONS = {
    "life": "cache_ttl",
    "marks": "cache_breakpoints",
    "on_over": "on_overflow",
    "pace": "thresholds",
    "summariser": "summarizer",
}


class WindowOptions(PlanOptions, total=False):
    """Options of `Window`, besides its policy."""

    prices: Prices | None
    """Prices of tokens. By default, the model's prices."""
    store: ContentStore | None
    """Store of removed content. By default, the store in `THRESHER_HOME`."""
    ledger: str | Path | Ledger | None
    """Ledger, or the path of its file, which several processes may share. By default, the ledger stays in memory."""
    format: str | None
    """Dialect of the messages. By default, the window detects it."""
    thresholds: Thresholds | None
    """Conditions for a replan. By default the settings in `thresher.toml` and the environment apply."""
    on_overflow: OnOverflow
    """Action if no legal request fits: `"send"` the smallest one (default), or `"raise"` a `BudgetError`."""
    cache_breakpoints: CacheBreakpointMode
    """Placement of Anthropic's cache breakpoints. `"auto"` (default) adds them to a request body for Claude if it
    has none, except to a single message without tools. `"place"` also moves the user's own breakpoints. `"leave"`
    changes none."""
    cache_ttl: CacheTtl
    """Lifetime of Anthropic's prompt cache: `"5m"` (default) or `"1h"`."""
    summarizer: Summarizer | None
    """Function that writes summaries with a model. By default, the policies write them without a model."""
    summaries: SummaryTiming
    """Timing of the summarizer. With `"background"` (default) the loop continues, with `"blocking"` the loop waits, and
    with `"never"` the summarizer does not run."""
    judge: Judge | None
    """Function that decides which tool chains to keep. The loop waits for its answer."""
    on_event: Callable[[WindowEvent], None] | None
    """Callback for each event."""


_CHOICES: dict[str, Any] = {
    "on_overflow": OnOverflow,
    "cache_breakpoints": CacheBreakpointMode,
    "cache_ttl": CacheTtl,
    "summaries": SummaryTiming,
}
_TYPES = {"thresholds": Thresholds, "prices": Prices}


def check_window_options(options: WindowOptions) -> None:
    """Rename old options, and raise `OptionError` for unknown names and invalid values."""
    rename_options("Window", options, RENAMED_OPTIONS)
    check_option_names(options, WindowOptions.__annotations__)
    if "summaries" in options:
        options["summaries"] = rename_value("Window", "summaries", options["summaries"], {"now": "blocking"})
    for name, value in options.items():
        if name in _CHOICES and value not in get_args(_CHOICES[name]):
            raise OptionError(f"`{name}` must be one of {', '.join(get_args(_CHOICES[name]))}, got {value!r}")
        if value is None:
            continue
        if name in _TYPES and not isinstance(value, _TYPES[name]):
            raise OptionError(f"`{name}` must be a `thresher.window.{_TYPES[name].__name__}`, got {value!r}")
        if name in ("summarizer", "judge", "on_event") and not callable(value):
            raise OptionError(f"`{name}` must be callable, got {value!r}")
