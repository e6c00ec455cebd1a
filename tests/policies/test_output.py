"""The policy `output`: squeeze command output and truncate long output."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_chains import Did, closed, results, told

from strategies import histories
from thresher.edits import Truncate, apply_elisions
from thresher.errors import OptionError
from thresher.model import History
from thresher.policies.output import TruncateOutput, find_output_noise

_GREEK = ("alpha beta gamma delta epsilon zeta eta theta iota kappa", "lambda mu nu xi omicron pi rho sigma tau")
WORDS = [word for words in _GREEK for word in words.split()]


def unlike(size: int) -> str:
    """Return lines of which no two neighbors are similar."""
    lines: list[str] = []
    while sum(map(len, lines)) + len(lines) <= size:
        lines.append(f"{WORDS[len(lines) % 19]} {WORDS[len(lines) // 19 % 19]} came and went")
    return "\n".join(lines)[:size]


def after(text: str, policy: TruncateOutput, name: str = "Bash", command: str = "make") -> str:
    return results(closed(told(Did(name, {"command": command}, text)), policy)[1])[0]


@pytest.mark.parametrize("size", [10, 1_000, 1_001, 9_000, 10_000])
def test_short_output_is_unchanged(size: int) -> None:
    assert after(unlike(size), TruncateOutput()) == unlike(size)


@pytest.mark.parametrize("size", [10_001, 45_231, 300_000])
def test_long_output_keeps_head_and_tail(size: int) -> None:
    text = unlike(size)
    short = after(text, TruncateOutput())
    head, note, tail = short.partition(f" · truncated: {size:,} chars, {text.count(chr(10)) + 1:,} lines in total]\n")
    head = head[: head.index("\n[thresher t1:")]
    assert note
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 1_900 <= len(head) <= 2_000
    assert 1_900 <= len(tail) <= 2_000


@pytest.mark.parametrize(("size", "left"), [(1_000, 1_000), (2_100, 2_100), (5_000, 2_200), (50_000, 2_200)])
def test_the_option_pressure_keeps_less(size: int, left: int) -> None:
    assert len(after(unlike(size), TruncateOutput(pressure=True))) <= left


def test_only_command_output_is_truncated() -> None:
    text = unlike(20_000)
    assert after(text, TruncateOutput(), "Bash", "git log") != text
    for name in ("Read", "mcp__db__query", "Task", "skill"):
        assert after(text, TruncateOutput(), name) == text


LOG = "\n".join(f"INFO step {n} of 400 took {n * 3} ms" for n in range(400))
SQUEEZED: dict[str, tuple[str, str]] = {
    "numbers aside": (
        f"start\n{LOG}\nend",
        "start\nINFO step 0 of 400 took 0 ms [… 399 similar lines, 399 distinct …]\nend",
    ),
    "times": (
        "".join(f"2026-01-31T12:00:{n:02}.5Z [{n}/60] t={n}ms, {n}% done\n" for n in range(60)),
        "2026-01-31T12:00:00.5Z [0/60] t=0ms, 0% done [… 59 similar lines, 59 distinct …]\n",
    ),
    "few distinct": ("tick 1\n" + "tick 2\n" * 40, "tick 1 [… 40 similar lines, 1 distinct …]\n"),
    "a listing": ("".join(f"src/module_{n}/part-{n:05}.csv\n" for n in range(90)),) * 2,
    "names with digits": ("".join(f"test_{n} ok\nuser{n}@host{n}\nbuild/{n}/out\nv1.{n}-rc\n" for n in range(9)),) * 2,
    "two runs": ("aaa\n" * 40 + "bbb\n" * 40, "aaa [… 39 identical lines …]\nbbb [… 39 identical lines …]\n"),
    "windows": ("aaa\r\n" * 40 + "b", "aaa [… 39 identical lines …]\r\nb"),
    "two are no run": ("a long line, twice over\n" * 2, "a long line, twice over\n" * 2),
    "too short to gain": ("a\n" * 5, "a\n" * 5),
    "a table": ("1.5 2.5\n" * 2 + "".join(f"{n} {n}\n" for n in range(90)),) * 2,
    "errors": ("".join(f"src/a.ts({n},5): error TS1: no\n" for n in range(9)),) * 2,
    "matches": ("".join(f"src/a.py:{n}:    return\n" for n in range(9)),) * 2,
    "traceback": ("".join(f'  File "a", line {n}, in f\n' for n in range(9)),) * 2,
    "colours": ("\x1b[1;32mok\x1b[0m and \x1b]8;;https://a.example\x1b\\link\x1b]8;;\x07", "ok and link"),
    "colours in a run": ("\x1b[32mpassed\x1b[0m one\n" * 30, "passed one [… 29 identical lines …]\n"),
    "progress": (
        "get\n" + "\r".join(f"Getting {n}% done" for n in range(101)) + "\nend",
        "get\nGetting 100% done\nend",
    ),
    "spinner": ("\r".join(f"\x1b[2K{'⠋⠙⠹'[n % 3]} building" for n in range(9)), "⠹ building"),
    "bars": ("\r".join(f"{n}%|{'#' * n}|" for n in range(9)), "8%|########|"),
    "one bar, then the next": ("Load 1%\rLoad 2%\rSave 1%\rSave 2%", "Load 2%\rSave 2%"),
    "old line ends": ("one\rtwo\rthree",) * 2,
    "two returns": ("one\r\r\ntwo\r\r\n",) * 2,
    "a broken escape": ("\x1b[99999", "\x1b[99999"),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("name", SQUEEZED)
def test_output_is_squeezed(name: str) -> None:
    text, squeezed = SQUEEZED[name]
    assert apply_elisions(text, find_output_noise(text)) == squeezed


def test_squeezed_output_states_its_original_size() -> None:
    short = after(unlike(2_000) + "\n" + "again and again\n" * 100, TruncateOutput())
    assert "again and again [… 99 identical lines …]\n\n[thresher t1:" in short
    assert short.endswith(" · condensed: 3,601 chars, 181 lines in total]")


def test_a_displayed_file_is_not_squeezed() -> None:
    text = "return None  # nothing to see here\n" * 100
    assert after(text, TruncateOutput(), command="cat a.py") == text
    assert len(after(text, TruncateOutput())) < 200
    assert after(text, TruncateOutput(squeeze=False)) == text


def test_head_and_tail_are_measured_after_squeezing() -> None:
    text = "\n".join([unlike(1_500), "hop\n" * 20_000, unlike(1_500)])
    assert after(text, TruncateOutput()).startswith(unlike(1_500)[:1_400])
    assert "truncated:" not in after(text, TruncateOutput()), "with the repeats gone, all of it fits"
    long = "\n".join(["\x1b[31mred\x1b[0m\n" + unlike(9_000), "hop\n" * 20_000, unlike(9_000)])
    short = after(long, TruncateOutput())
    assert short.startswith("red\n" + unlike(1_800))
    assert short.endswith(unlike(9_000)[-1_800:])
    assert "similar" not in short


PIECES = ("\n", "\r", "\r\n", "\x1b[31m", "\x1b[", "\x1b]8;;", "\x07", "step 1", "step 22", "7", "é\u0301", "😀", "  ")
NOISE = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@given(NOISE, st.integers(0, 60), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_gaps_are_in_order_and_inside_the_text(noise: str, limit: int, head: int, tail: int, pressure: bool) -> None:
    text = noise * 20
    policy = TruncateOutput(keep_below=0, truncate_above=limit, head=head, tail=tail, pressure=pressure)
    for edit in policy(told(Did("Bash", {"command": "make"}, text))):
        assert isinstance(edit, Truncate)
        assert edit.gaps[0].start >= 0
        assert edit.gaps[-1].stop <= len(text)
        assert all(gap.start <= gap.stop for gap in edit.gaps)
        assert all(before.stop <= behind.start for before, behind in pairwise(edit.gaps))
        assert len(apply_elisions(text, edit.gaps)) < len(text)
        assert sum("[thresher " in gap.note for gap in edit.gaps) == 1, "what is missing can be asked for"
    closed(told(Did("Bash", {"command": "make"}, text)), policy)


@given(NOISE)
def test_squeezing_never_adds_characters(noise: str) -> None:
    once = apply_elisions(noise, find_output_noise(noise))
    assert len(once) <= len(noise)


@pytest.mark.parametrize("options", [{"head": -1}, {"truncate_above": 1.5}, {"keep_below": "1k"}, {"tail": None}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        TruncateOutput(**options)


@given(histories)
def test_any_history_is_accepted(history: History) -> None:
    closed(history, TruncateOutput(keep_below=0, truncate_above=0, head=0, tail=0))
