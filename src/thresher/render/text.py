"""Small words: numbers, sizes, and text made safe and short."""

import re

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    # Signs that turn the direction of what is written: a line would show other words than it holds.
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def strip_control_codes(text: str) -> str:
    """Text without terminal codes, and with what cannot be printed replaced."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()


def shorten(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(strip_control_codes(text).split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def format_count(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def format_token_count(number: int) -> str:
    """About how many tokens, as a person says it: 850, 12k, 1.2M."""
    if number < 1_000:
        return str(number)
    if number < 999_500:
        return f"{number / 1_000:.0f}k" if number >= 9_950 else f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def format_byte_size(number: int) -> str:
    """A size in bytes, as a person says it."""
    for unit, scale in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} B"
