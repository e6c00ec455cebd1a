"""What git says of commits in the output of a tool: that one was made just now, or that it was there already."""

import re
from itertools import islice
from typing import NamedTuple

MOST = 200
"""Commits that are taken from one output."""
LONGEST = 200

_GRAPH = r"[*|\\/ ]{0,20}"
_ONE_LINE = rf"{_GRAPH}[0-9a-f]{{7,40}} (?:\([^()\n]{{1,200}}\) )?(?P<line>\S[^\n]{{2,400}})"
_AT_LENGTH = (
    rf"{_GRAPH}commit [0-9a-f]{{40}}[^\n]{{0,200}}\n(?:{_GRAPH}[A-Z]\w{{2,12}}:[^\n]{{0,200}}\n){{1,6}}"
    rf"{_GRAPH}\n{_GRAPH}(?P<first>\S[^\n]{{2,400}})"
)
_MADE = r"\[[^\[\]\n]{1,200} [0-9a-f]{7,40}\] (?P<made>\S[^\n]{2,400})"
_TOLD = re.compile(rf"\n(?:{_ONE_LINE}|{_AT_LENGTH}|{_MADE})")
_NUMBER = re.compile(r" ?\(#\d+\)$")


class Commits(NamedTuple):
    """The subjects of commits that an output tells of, as `subject` gives them."""

    made: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()


def subject(text: str) -> str:
    """A commit's subject in the form in which two are compared: in lower case, without the pull request's number."""
    clean = text[: 2 * LONGEST].encode("utf-8", "replace").decode().lower()
    return _NUMBER.sub("", " ".join(clean.split()))[:LONGEST]


def told_commits(output: str) -> Commits:
    """What git says of commits in an output."""
    lines = [*islice(_TOLD.finditer(f"\n{output}"), MOST)]
    if not lines:
        return Commits()
    made = (subject(line["made"]) for line in lines if line["made"])
    logged = (subject(line["line"] or line["first"]) for line in lines if not line["made"])
    return Commits(tuple(dict.fromkeys(made)), tuple(dict.fromkeys(logged)))
