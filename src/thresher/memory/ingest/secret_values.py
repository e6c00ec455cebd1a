"""Decide whether a value that has the name of a secret is one, or an example, a variable, a path or a word.

A generated key has a high entropy and changes often between letters and digits. A password that a person chose is
shorter and less random, so its name and its place must say more: a quoted string, a setting in upper case, an option
of a command.
"""

import re
from collections import Counter
from math import log2

from thresher.memory.ingest.secret_patterns import UUID

EXAMPLE_VALUE = re.compile(
    r"(?i)x{4}|\*{3}|\.{3}|0{6}|example|placeholder|your|change|dummy|fake|mock|test|sample|redact|"
    r"password|passwd|secret|token|apikey|api[_-]key|credential|process\.env|environ|getenv|undefined|1234567"
)
"""Regex for words that identify an example value."""

USUAL_PASSWORDS = ("pass", "pwd", "postgres", "root", "admin", "user", "guest", "mysql")
"""Passwords that examples use in URLs."""

MIN_KEY_LENGTH, MIN_PASSWORD_LENGTH = 10, 6
"""Minimum lengths of a generated value and of a chosen password."""

_UUID = re.compile(UUID)
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_SYMBOL = re.compile(r"[!@#%^*?&$+~;,]")
_CODE = re.compile(
    r"[./~\\]|\w+://|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|.*\$[{(]|.*[{}<>]|[0-9a-f]+(?:-[0-9a-f]+){2}"
    r"|#[0-9a-fA-F]{3,8}\Z|[\d./:,%-]+[A-Za-z%]{0,3}\Z|[\w.+-]+@[\w-]+\.[a-z]{2,}\Z"
)
"""Paths, URLs, attributes, variables, placeholders, parts of ids, colors, measurements and email addresses."""


def is_uuid(value: str) -> bool:
    """Return whether a value is a UUID."""
    return _UUID.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Return whether a value looks generated: many short runs of letters or digits, and high entropy."""
    if len(value) < MIN_KEY_LENGTH or EXAMPLE_VALUE.search(value):
        return False
    pieces = _PIECE.findall(value)
    letters = sum(map(str.isalpha, value))
    digits = sum(map(str.isdigit, value))
    if letters < 3 or 4 * len(pieces) < letters + digits:
        return False
    if sum(map(str.isdigit, pieces)) < (2 if len(value) < 20 else 1):  # for example `Uint8Array`
        return False
    enough = 3.0 if _HEX.fullmatch(value) else min(3.5, 0.85 * log2(len(value)))
    return _entropy(value) >= enough


def is_password(value: str, *, literal: bool) -> bool:
    """Return whether a value looks like a chosen password.

    With `literal`, the place shows that the value is not a name in code, so a word with a number is enough.
    """
    if len(value) < MIN_PASSWORD_LENGTH or EXAMPLE_VALUE.search(value) or _CODE.match(value):
        return False
    digits, letters = sum(map(str.isdigit, value)), sum(map(str.isalpha, value))
    if not digits or not letters:
        return False
    if len(set(value)) < MIN_PASSWORD_LENGTH - 1:
        return False
    if _SYMBOL.search(value):
        return True
    pieces = _PIECE.findall(value)
    return (4 * len(pieces) >= letters + digits and len(pieces) >= 3) or (literal and value.isalnum())


def _entropy(value: str) -> float:
    size = len(value)
    return -sum(count / size * log2(count / size) for count in Counter(value).values())
