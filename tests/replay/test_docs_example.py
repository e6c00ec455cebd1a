"""The replay page documents the actual output of its examples and the actual constants."""

import re
from pathlib import Path

import pytest

from thresher.replay import REFERENCE_DEFINITION, Rates
from thresher.replay.cost import REFETCH_CALL_TOKENS
from thresher.replay.references import ALWAYS_ALLOWED_SOURCES, MAX_SOURCE_SHARE, PHRASE_WORDS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "replay.md"


def blocks() -> list[tuple[str, str]]:
    """Return every code block of the page with its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run_page(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], dict[str, object]]:
    """Return the output of each Python block on the page, and the final names."""
    names: dict[str, object] = {}
    printed = []
    for language, code in blocks():
        if language == "python":
            exec(compile(code, str(PAGE), "exec"), names)
            printed.append(capsys.readouterr().out)
    return printed, names


def test_page_shows_the_actual_output(capsys: pytest.CaptureFixture[str]) -> None:
    printed, _ = run_page(capsys)
    said = [code for language, code in blocks() if language == "text"]
    assert len(said) == 3
    assert said == [text for text in printed if text]


def test_page_example_has_all_kinds_and_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    printed, _ = run_page(capsys)
    assert {line.split()[1] for line in printed[0].splitlines()} == {"E", "G", "I", "P"}
    assert all(word in printed[1] for word in ("served", "recoverable", "lost"))


def test_page_calculates_the_cost_of_turn_5_correctly(capsys: pytest.CaptureFixture[str]) -> None:
    _, names = run_page(capsys)
    runs, rates = names["runs"], names["rates"]
    assert isinstance(runs, dict)
    assert isinstance(rates, Rates)
    told, full = runs["newest"][4], runs["full"][4]
    shared = runs["newest"][0].tokens  # the first request is the common prefix of turns 4 and 5
    assert told.cost == pytest.approx(rates.read * shared + rates.write * (told.tokens - shared))
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert (
        f"shares the first {shared} of its {told.tokens:,} tokens with turn 4, costs {rates.read} × {shared} + "
        f"{rates.write} × {told.tokens - shared:,} = {told.cost:,.0f}; the full history, larger by a third, costs "
        f"{full.cost:,.0f}."
    ) in page
    assert full.tokens / told.tokens == pytest.approx(4 / 3, abs=0.01)


def test_page_contains_the_constants_of_the_code() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    rates = Rates()
    assert f"a version, **{REFERENCE_DEFINITION}**" in page
    assert f"more than {MAX_SOURCE_SHARE:.0%}".replace("%", " %") in page
    assert (ALWAYS_ALLOWED_SOURCES, PHRASE_WORDS) == (6, 10)
    assert f"costs {rates.read} a token" in page
    assert f"({rates.ttl:.0f} seconds by the recorded times; {rates.minimum:,} tokens at least)" in page
    assert f"{REFETCH_CALL_TOKENS} tokens of output to ask for it, at {rates.output:.0f} each" in page
