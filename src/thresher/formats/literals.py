"""Calls of tools that are told in Python's own notation: read, never run.

smolagents prints the list of calls as Python shows it; the Berkeley leaderboard writes each call as source. Both are
parsed to a tree, and only constants, lists and the like are taken from it. What is too long to be a call is left.
"""

import ast
import re
from typing import Any, NamedTuple

from thresher.model.jsontext import dump, load

LONGEST = 400_000
"""Characters of a text that is looked at."""
_HEAD = re.compile(r"\s*(?:Calling tools:|Tool calls?:)?\s*")
_REFUSALS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


class Called(NamedTuple):
    """A call that was told as source."""

    name: str
    arguments: str
    """JSON, or the source itself where it says more than constants."""


def calls_in(text: str) -> list[Any] | None:
    """The calls that a text lists, or None where it lists none."""
    body = text[end.end() :] if (end := _HEAD.match(text)) else text
    if len(body) > LONGEST or not body.startswith(("[", "{")):
        return None
    value: Any = None
    try:
        value = load(body)
    except (ValueError, RecursionError):
        value = _literal(body)
    found = value if isinstance(value, list) else [value]
    return found if found and all(isinstance(entry, dict) for entry in found) else None


def _literal(body: str) -> Any:
    try:
        value = ast.literal_eval(body)
        dump(value)  # sets, bytes and numbers of two parts have no place in JSON
    except _REFUSALS:
        return None
    return value


def call_from_source(source: str) -> Called | None:
    """A call such as `grep(file_name='a.txt', pattern='b')`; None where the text is none."""
    if len(source) > LONGEST:
        return None
    try:
        node = ast.parse(source.strip(), mode="eval").body
        if not isinstance(node, ast.Call):
            return None
        name = ast.unparse(node.func)
        return Called(name, _arguments(node))
    except _REFUSALS:
        return None


def _arguments(node: ast.Call) -> str:
    named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg}
    placed = [_value(value) for value in node.args]
    return dump(named | ({"args": placed} if placed else {}))


def _value(node: ast.expr) -> Any:
    """A constant; the source of anything else."""
    try:
        value = ast.literal_eval(node)
        dump(value)
    except _REFUSALS:
        return ast.unparse(node)
    return value
