"""Searches in foreign text take time in proportion to its length.

The engine of regular expressions runs outside of Python, so its steps cannot be counted. But a search that fails tries
again from the next position. So each of these patterns takes a whole run of characters that could be quadratic in one
match: then the search never tries a position inside the run.
"""

import re

import pytest

from thresher.edits import find_json_strings, truncate
from thresher.memory.ingest import memory_tools
from thresher.model import Message, Text
from thresher.policies import identifiers
from thresher.policies.identifiers import MAX_RUN_CHARS, find_identifiers
from thresher.transcripts.swe_agent import actions


@pytest.mark.parametrize("unit", ["a/", "a-", "a.", "a_", "aB", "A_", "0", "0123abcd-", "../", "a@", "a+"])
def test_a_search_for_identifiers_takes_a_long_run_at_once(unit: str) -> None:
    run = unit * (2 * MAX_RUN_CHARS)
    spans = [found.span() for found in identifiers._IDENTIFIER.finditer(f"{run} {run}")]
    assert spans == [(0, len(run)), (len(run) + 1, 2 * len(run) + 1)]
    texts = (f"see src/a.py, {run}", f"{run}\nsrc/a.py")
    assert [find_identifiers(Message("user", (Text(text),)))[0] for text in texts] == [("src/a.py",)] * 2


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (truncate._STRING, '"' + '\\"' * 500),
        (memory_tools._HEREDOC, "<<a" * 500),
    ],
)
def test_a_search_takes_an_unclosed_element_at_once(pattern: re.Pattern[str], text: str) -> None:
    assert [found.span() for found in pattern.finditer(text)] == [(0, len(text))]


def test_an_unclosed_string_is_no_string() -> None:
    assert list(find_json_strings('{"a": "b", "c": "d')) == [(7, 8)]


def test_a_line_range_is_searched_once_in_white_space() -> None:
    assert actions._LINE_RANGE.match(" " * 500, 1) is None
    found = actions._LINE_RANGE.search(f"edit{' ' * 500}3:7")
    assert found is not None
    assert (found.start(), found.groups()) == (4, ("3", "7"))
