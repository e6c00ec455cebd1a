"""Remove encoded data from text before indexing."""

import re

SAMPLE = 100
LONGEST_RUN = 200
"""Minimum length of a base64 run that counts as data."""


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DATA_URL = re.compile(r"data:[\w.+-]{1,60}/[\w.+-]{1,60}(?:;[\w.=-]{1,60})*,[^\s\"'<>()\\]*")
_PLAIN = re.compile(rf"(?:(?![A-Za-z0-9+/]{{{SAMPLE}}}).{{{SAMPLE}}})*+", re.DOTALL)
_RUN = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def strip_embedded_data(text: str) -> str:
    """Remove data URLs and long runs of base64.

    The scan checks only every hundredth position, since a run of 200 characters fills at least one aligned block of
    100.
    """
    if "data:" in text:
        text = _DATA_URL.sub("", text)
    if len(text) < LONGEST_RUN:
        return text
    pieces: list[str] = []
    position = cursor = 0
    while (cursor := _PLAIN.match(text, cursor).end()) + SAMPLE <= len(text):  # type: ignore[union-attr]  # always matches
        preceding = text[max(position, cursor - SAMPLE) : cursor]
        start = cursor - len(preceding) + len(preceding.rstrip(_ALPHABET))
        cursor = _RUN.match(text, cursor).end()  # type: ignore[union-attr]  # always matches
        if cursor - start >= LONGEST_RUN:
            pieces.append(text[position:start])
            position = cursor
    return "".join([*pieces, text[position:]]) if pieces else text
