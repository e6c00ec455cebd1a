"""Scans of foreign text take time in proportion to its length.

The engine of regular expressions runs outside of Python, so its steps cannot be counted. Instead, the patterns have a
form that is linear by construction: a search tries every position, so a pattern that begins with an unlimited repeat
would run through the same characters again from each of them.
"""

import re
import tracemalloc
from collections.abc import Iterator
from importlib import import_module
from inspect import getsource
from itertools import chain
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import pytest
from talks import Talk

from step_count import count_steps
from thresher import timeline
from thresher.memory.index.documents import MOST_FOLDERS, MOST_PATH_CHARS, path_suffixes
from thresher.timeline import Timeline
from thresher.timeline.read_extents import SeenLines, parse_read_result

parser, constants = import_module("re._parser"), import_module("re._constants")
MODULES = [import_module(f"{timeline.__name__}.{module.name}") for module in iter_modules(timeline.__path__)]
SEARCHES = r"(?<!\w){}\.(?:search|findall|finditer|split|sub)\("


def _patterns(module: ModuleType) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the patterns of a module with which it searches."""
    for name, value in vars(module).items():
        for pattern in value.values() if isinstance(value, dict) else [value]:
            if isinstance(pattern, re.Pattern) and re.search(
                SEARCHES.format(rf"{name}(?:\[\w+\])?"), getsource(module)
            ):
                yield name, pattern


def _starts(items: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the first operation of each alternative of a parsed pattern, unless it is the only one: it cannot fail."""
    for operation, value in items[:1]:
        if operation is constants.SUBPATTERN:
            yield from _starts(value[-1])
        elif operation is constants.BRANCH:
            yield from chain.from_iterable(map(_starts, value[1]))
        elif len(items) > 1:
            yield operation, value


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_search_begins_with_an_unlimited_repeat(module: ModuleType) -> None:
    for name, pattern in _patterns(module):
        for operation, value in _starts(parser.parse(pattern.pattern, pattern.flags)):
            is_repeat = operation in (constants.MAX_REPEAT, constants.MIN_REPEAT)
            assert not (is_repeat and value[1] is constants.MAXREPEAT), f"{name} = {pattern.pattern}"


@pytest.mark.parametrize("flood", ["\n", " ", "\n ", "<system-reminder></system-reminder>\n"], ids=repr)
def test_the_steps_of_a_timeline_grow_with_the_text(flood: str) -> None:
    def steps(times: int) -> int:
        talk = Talk()
        talk.read("/x/a.py", "a" + flood * times)
        talk.call("Read", {"file_path": "/x/b.py"}, "a" + flood * times)
        session = talk.session()
        return count_steps(lambda: Timeline(session))

    assert steps(4000) < 4.5 * steps(1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\n\n(End of file - 1 line)\n\n", SeenLines(1, "a\n", True)),
        ("a (End of file - 1 line)", SeenLines(1, "a \n", True)),
        ("a\n\n[12 more lines in file]", SeenLines(1, "a\n", False)),
        ("a\n... (12 more lines)\n", SeenLines(1, "a\n", False)),
        ("a\n[12 more lines in file)", SeenLines(1, "a\n[12 more lines in file)\n", True)),
        (
            "a\n\n<system-reminder>x</system-reminder>\n\n<system-reminder>y</system-reminder> ",
            SeenLines(1, "a\n", True),
        ),
    ],
)
def test_notices_after_the_content_are_recognized(text: str, expected: SeenLines) -> None:
    talk = Talk()
    talk.call("Read", {"file_path": "/x/a.py"}, text)
    (link,) = talk.session().history.links
    assert parse_read_result(link) == expected


def test_the_suffixes_of_a_long_path_take_little_memory() -> None:
    path = "a/" * 20_000
    tracemalloc.start()
    suffixes = path_suffixes(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(suffixes) == MOST_FOLDERS
    assert peak < 30 * MOST_PATH_CHARS
