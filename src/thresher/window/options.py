"""Options of a window, and the checks of their values."""

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
    """A file for decisions, which several processes may share. By default decisions stay in memory."""
    format: str | None
    """The dialect, where the messages do not show it."""
    thresholds: Thresholds | None
    """When a replan is worth it. By default what `thresher.toml` and the environment set."""
    on_overflow: OnOverflow
    """When nothing legal fits: `"send"` (default) or `"raise"`."""
    cache_breakpoints: CacheBreakpointMode
    """Anthropic's cache breakpoints: `"auto"` (default) places them in a request body for Claude that has none,
    `"place"` moves the user's own, too, `"leave"` changes none."""
    cache_ttl: CacheTtl
    """Which of Anthropic's caches is used: `"5m"` (default) or `"1h"`."""
    summarizer: Summarizer | None
    """Writes the summaries of many parts. By default they are made without a model."""
    summaries: SummaryTiming
    """When it writes: in the `"background"` (default), before the loop continues (`"blocking"`), or `"never"`."""
    judge: Judge | None
    """May keep tool chains; the loop waits for it."""
    on_event: Callable[[WindowEvent], None] | None
    """Called with every event."""


def check_window_choice(**options: tuple[Any, Any]) -> None:
    """Refuse what is not among the words of a choice."""
    for name, (value, known) in options.items():
        if value not in get_args(known):
            raise OptionError(f"`{name}` is one of {', '.join(get_args(known))}; not {value!r}")


def check_window_option_type(**options: tuple[Any, type]) -> None:
    """Refuse what is not of its kind."""
    for name, (value, kind) in options.items():
        if value is not None and not isinstance(value, kind):
            raise OptionError(f"`{name}` is a `thresher.window.{kind.__name__}`; not {value!r}")


def check_callable(**options: Any) -> None:
    """Refuse what cannot be called."""
    for name, value in options.items():
        if value is not None and not callable(value):
            raise OptionError(f"`{name}` must be callable, got {value!r}")
