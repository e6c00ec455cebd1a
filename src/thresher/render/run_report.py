"""The report at the end of `thresher run`."""

from collections.abc import Iterator, Sequence
from typing import Any


def format_run_report(status: dict[str, Any], problems: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the report from the status of the proxy and its warnings."""
    proxy = status["proxy"]
    count = proxy["requests"]
    yield f"thresher: {count} request{'' if count == 1 else 's'}"
    for problem in problems:
        yield f"  problem: {problem}"
