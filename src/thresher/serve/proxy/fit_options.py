"""Options of the fitting of requests, which the proxy and the plug-ins of agents share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thresher.errors import OptionError
from thresher.policies import PolicyLike
from thresher.window import Window
from thresher.window.options import WindowOptions


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of the fit of requests."""

    budget: int | str | None = None
    """Tokens of a request, such as 60000 or "60k". Default: 70 % of the model's context window, as for `Window`."""
    policy: PolicyLike = "auto"
    observe: bool = False
    """Send every request as it is, and report what Thresher would have done."""
    fit_timeout: float = 2.0
    """Seconds that a new plan may take. Then the last recorded edits are sent."""
    data_folder: Path | None = None
    """Folder of the ledgers. Default: Thresher's data folder."""
    window_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of each conversation's `Window`."""

    def __post_init__(self) -> None:
        if self.fit_timeout <= 0:
            raise OptionError(f"`--fit-timeout` must be more than 0 seconds, got {self.fit_timeout}")
        budget: WindowOptions = {} if self.budget is None else {"budget": self.budget}
        Window(self.policy, **{**self.window_options, **budget})  # raises an error for an unknown policy or option
