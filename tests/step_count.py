"""Count the steps of a computation, so that tests can compare growth without a clock."""

import sys
from collections.abc import Callable
from typing import Any


def count_steps(work: Callable[[], Any]) -> int:
    """Return the number of lines and calls of Python code, and of calls of native functions, that `work` executes."""
    steps = 0

    def trace(_frame: Any, _event: str, _value: Any) -> Any:
        nonlocal steps
        steps += 1
        return trace

    def profile(_frame: Any, event: str, _value: Any) -> None:
        nonlocal steps
        steps += event == "c_call"

    traced, profiled = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(profiled)
        sys.settrace(traced)
    return steps
