"""Options of a window, and the validation of their values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from thresher.budget.options import PlanOptions
from thresher.budget.thresholds import Thresholds
from thresher.dialects.cache_control import CacheBreakpointMode, CacheTtl
from thresher.errors import OptionError
from thresher.store import ContentStore
from thresher.summarize import Judge, Summarizer
from thresher.window.events import WindowEvent
from thresher.window.ledger import Ledger
from thresher.window.prices import Prices
from thresher.window.replanner import OnOverflow
from thresher.window.summary_jobs import SummaryTiming

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
    """Prices of tokens. By default those of the model."""
    store: ContentStore | None
    """Store of removed content. By default the one in `THRESHER_HOME`."""
    ledger: str | Path | Ledger | None
    """File for replans and facts, which several processes may share. By default they stay in memory."""
    format: str | None
    """Dialect of the messages. By default it is detected."""
    thresholds: Thresholds | None
    """When a replan pays. By default the settings in `thresher.toml` and the environment apply."""
    on_overflow: OnOverflow
    """If no legal request fits: `"send"` the smallest one (default), or `"raise"` a `BudgetError`."""
    cache_breakpoints: CacheBreakpointMode
    """Anthropic's cache breakpoints: `"auto"` (default) places them in a request body for Claude that has none,
    `"place"` also moves the user's own, `"leave"` changes none."""
    cache_ttl: CacheTtl
    """Lifetime of Anthropic's prompt cache: `"5m"` (default) or `"1h"`."""
    summarizer: Summarizer | None
    """Writes summaries with a model. By default summaries need no model."""
    summaries: SummaryTiming
    """When the summarizer runs: in the `"background"` (default), `"blocking"` the loop, or `"never"`."""
    judge: Judge | None
    """Decides which tool chains to keep; the loop waits for it."""
    on_event: Callable[[WindowEvent], None] | None
    """Callback for each event."""


def check_window_choice(**options: tuple[Any, Any]) -> None:
    """Raise `OptionError` for a value outside its choices."""
    for name, (value, choices) in options.items():
        if value not in get_args(choices):
            raise OptionError(f"`{name}` must be one of {', '.join(get_args(choices))}, got {value!r}")


def check_window_option_type(**options: tuple[Any, type]) -> None:
    """Raise `OptionError` for a value of the wrong type."""
    for name, (value, kind) in options.items():
        if value is not None and not isinstance(value, kind):
            raise OptionError(f"`{name}` must be a `thresher.window.{kind.__name__}`, got {value!r}")


def check_callable(**options: Any) -> None:
    """Raise `OptionError` for a value that is not callable."""
    for name, value in options.items():
        if value is not None and not callable(value):
            raise OptionError(f"`{name}` must be callable, got {value!r}")
