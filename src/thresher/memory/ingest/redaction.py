"""Redact secrets in text: replace passwords, keys and tokens with a mark that names the kind.

Every text in the search index is redacted, and so is output unless the user asks to reveal secrets. The originals stay
unchanged in the archive. Two mistakes are possible: a secret remains, or a hash or name is redacted and can no longer
be found. So a pattern alone is enough only if it belongs to one provider (`secret_patterns`). Otherwise a place must
show that a value is a secret (`secret_contexts`): its name is password, key or token, it follows an option such as
`--password`, it is part of a URL. The value must then look like one (`secret_values`).

The module processes gigabytes, so a regex should be tried at few positions only. All regexes with the same first
character, the pivot, form one regex, which starts with the pivot and checks what is before it by lookbehind. Nested
repetitions are bounded or possessive, so the time is linear.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from thresher.memory.ingest.secret_contexts import CONTEXTS, GATES, SecretMatch
from thresher.memory.ingest.secret_patterns import SECRET_PATTERNS, SecretPattern

MASK = "[redacted {kind}]"
MAX_HEAD_LENGTH = 2010
"""Maximum length of the part of a token before its prefix."""

MAX_PASSES = 20
"""Maximum number of scans of a text, so that thousands of tokens without a space between them take linear time."""
MIN_TEXT_LENGTH = 10
"""Length of the shortest text with a secret: a name, a sign and a password."""

TokenRow = tuple[str, SecretPattern]
"""One prefix and its pattern."""


class PivotScan(NamedTuple):
    """Everything to find at one character: tokens by their prefix, and contexts of secrets."""

    pivot: str
    literal: str
    """Text that each match contains: the pivot, or more if there is only one thing to find."""
    pattern: re.Pattern[str]
    rows: tuple[TokenRow, ...]
    """The patterns of the first groups of the regex."""

    def find(self, text: str, first: re.Match[str]) -> Iterator[SecretMatch]:
        """Yield the secrets at this pivot, from the first match on."""
        for match in self.pattern.finditer(text, first.start()):
            index = (match.lastindex or 1) - 1
            if index < len(self.rows):
                secret = _match_token(text, match, *self.rows[index])
                if secret:
                    yield secret
            else:
                yield from CONTEXTS[match.lastgroup or ""].find(text, match)


def redact_and_count(text: str) -> tuple[str, int]:
    """Replace the secrets in a text with marks, and count them; without secrets, return the same object."""
    count = 0
    # A token directly after another one matches only when a mark, which ends with `]`, has replaced the first one.
    for _ in range(MAX_PASSES):
        if not (secrets := _find_secrets(text)):
            break
        text, replaced = _replace_matches(text, secrets)
        count += replaced
    return text, count


def redact(text: str) -> str:
    """Replace the secrets in a text with marks."""
    return redact_and_count(text)[0]


def _replace_matches(text: str, secrets: list[SecretMatch]) -> tuple[str, int]:
    pieces: list[str] = []
    position = count = 0
    for start, end, kind in sorted(secrets, key=lambda secret: (secret.start, -secret.end)):
        if start >= position:
            pieces += (text[position:start], MASK.format(kind=kind))
            position, count = end, count + 1
    return "".join([*pieces, text[position:]]), count


def _find_secrets(text: str) -> list[SecretMatch]:
    secrets: list[SecretMatch] = []
    if len(text) < MIN_TEXT_LENGTH:
        return secrets
    for literal, search, scan in _SCANS if has_digit(text) else _DIGITLESS_SCANS:
        # Most texts lack most literals, and the `in` check is the fastest way to skip them.
        if literal in text and (first := search(text)) is not None:
            secrets += scan.find(text, first)
    return secrets


def has_digit(text: str) -> bool:
    """Return whether a text contains an ASCII digit. Ten searches for a character are faster than one regex."""
    return (
        "1" in text
        or "0" in text
        or "2" in text
        or "3" in text
        or "4" in text
        or "5" in text
        or "6" in text
        or "7" in text
        or "8" in text
        or "9" in text
    )


def _match_token(text: str, match: re.Match[str], lead: str, shape: SecretPattern) -> SecretMatch | None:
    start, end = match.start() + 1 - len(lead), match.end()
    if shape.head:
        before = _run_before(text, start)
        head = re.fullmatch(shape.head, text[before:start])
        if head is None:
            return None
        start = before + head.start(head.lastindex or 0)
    body = text[match.start() + 1 : end]
    is_example = len(set(text[start:end])) < len(set(lead)) + 3 or "EXAMPLE" in body or "xxxx" in body.lower()
    return None if is_example else SecretMatch(start, end, shape.kind)


def _run_before(text: str, end: int) -> int:
    """Return the start of the run of letters, digits, `_` and `-` that ends here."""
    start = end
    while start > max(0, end - MAX_HEAD_LENGTH) and (text[start - 1].isalnum() or text[start - 1] in "_-"):
        start -= 1
    return start


def _build_scans() -> Iterator[PivotScan]:
    rows: dict[str, list[TokenRow]] = {context.pivot: [] for context in CONTEXTS.values()}
    for shape in SECRET_PATTERNS:
        for lead in shape.leads.split():
            rows.setdefault(lead[-1], []).append((lead, shape))
    for pivot, group in rows.items():
        # Prefixes with the same character before the pivot share one check of it; short ones have none.
        short = sorted((row for row in group if len(row[0]) <= 2), key=_lookbehind)
        long = sorted((row for row in group if len(row[0]) > 2), key=lambda row: row[0][-2])
        parts = [_guarded_pattern(long), _short_pattern(short), _context_pattern(pivot)]
        ahead = _TOKEN_AHEAD.get(pivot, "")
        pattern = re.compile(f"{re.escape(pivot)}{ahead}(?:{'|'.join(filter(None, parts))})")
        literals = {lead for lead, _ in group}
        literals |= {context.literal or pivot for context in CONTEXTS.values() if context.pivot == pivot}
        yield PivotScan(pivot, literals.pop() if len(literals) == 1 else pivot, pattern, (*long, *short))


def _guarded_pattern(rows: list[TokenRow]) -> str:
    """Return a regex for prefixes of three characters or more, with checks that reject most positions early."""
    if not rows:
        return ""
    letters = ("".join(sorted({lead[offset] for lead, _ in rows})) for offset in (-3, -2, -1))
    behind = "".join(f"[{re.escape(characters)}]" for characters in letters)
    groups = (
        f"(?<={re.escape(before)}[{re.escape(rows[0][0][-1])}])(?:{'|'.join(map(_tail_pattern, group))})"
        for before, group in groupby(rows, key=lambda row: row[0][-2])
    )
    # Names in code have no digit or capital letter soon after a `_` or `-`.
    ahead = r"(?=[a-z_/+-]{0,24}+[0-9A-Z%])(?=[0-9A-Za-z_%+/-]{16})"
    return f"(?<={behind}){ahead}(?:{'|'.join(groups)})"


def _short_pattern(rows: list[TokenRow]) -> str:
    """Return a regex for prefixes of one or two characters.

    Patterns with the same lookbehind share it, so that `re` checks the next character before it tries one.
    """
    groups = groupby(rows, key=_lookbehind)
    parts = "|".join(f"{behind}(?:{'|'.join(_tail(row) for row in group)})" for behind, group in groups)
    return f"(?=[/A])(?:{parts})" if rows and rows[0][0] == ":" else parts


def _tail_pattern(row: TokenRow) -> str:
    return _lookbehind(row) + _tail(row)


def _tail(row: TokenRow) -> str:
    # In `re`, `\w` for all scripts is slower than an ASCII class.
    return "(" + row[1].tail.replace(r"\w", "0-9A-Za-z_") + ")"


def _lookbehind(row: TokenRow) -> str:
    prefix, shape = re.escape(row[0]), row[1]
    if shape.head:
        return f"(?<={prefix})" if len(row[0]) > 1 else ""
    # The letter before a prefix may be part of an escape: `\nghp_…`.
    return rf"(?<={prefix})(?:(?<![0-9A-Za-z]{prefix})|(?<=\\[nrt]{prefix}))"


def _context_pattern(pivot: str) -> str:
    contexts = ((name, context) for name, context in CONTEXTS.items() if context.pivot == pivot)
    parts = [f"{context.before}(?P<{name}>{context.after})" for name, context in contexts]
    return f"{GATES.get(pivot, '')}(?:{'|'.join(parts)})" if parts else ""


_TOKEN_AHEAD = {"-": "(?=[0-9A-Za-z])", ".": "(?=[0-9A-Za-z_=-]{6})", "_": "(?=[0-9A-Za-z])"}
"""What every token has after these pivots, to reject positions before the alternatives are tried."""
_SCANS = tuple((scan.literal, scan.pattern.search, scan) for scan in _build_scans())
_DIGITLESS_SCANS = tuple(scan for scan in _SCANS if scan[0] in "_:")
"""Scans that find secrets of letters alone: Hugging Face tokens, and passwords in URLs."""
