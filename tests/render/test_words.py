"""Cleaning transcript text for a terminal."""

import pytest

from thresher.render.text import shorten, strip_control_codes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07end\x9b", "red end"),
        ("two\tcells\nand a line", "two\tcells\nand a line"),
        ("half \ud800", "half ?"),
        *((f"a{sign}b", "ab") for sign in map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))),
        *((f"a{sign}b", "ab") for sign in ("\u200e", "\u200f", "\u061c")),
        ("שלום, 你好 👩\u200d💻", "שלום, 你好 👩\u200d💻"),
    ],
)
def test_terminal_control_codes_are_removed(text: str, told: str) -> None:
    assert strip_control_codes(text) == told


def test_shortened_line_is_clean() -> None:
    assert shorten("a \u202egnp\n  b", 80) == "a gnp b"
    assert shorten("abcdef", 4) == "abc…"
