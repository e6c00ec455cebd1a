import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.memory.index.tokenizer import tokenize_words
from thresher.memory.search.snippets import TermFinder, build_snippet, split_unspaced


def finder(query: str) -> TermFinder:
    return TermFinder(tokenize_words(query), split_unspaced(query), tokenize_words)


def marked(query: str, text: str) -> list[str]:
    return [text[mark.start : mark.stop] for mark in finder(query).find_matches(text)]


@pytest.mark.parametrize(
    ("query", "text", "wanted"),
    [
        ("fix", "We fixed it, fixing fixes.", ["fixed", "fixing", "fixes"]),
        ("token", "refreshToken and TOKEN_LIMIT, tokens", ["Token", "TOKEN", "tokens"]),
        ("token", "naïve: refreshToken and TOKEN_LIMIT, tokens", ["Token", "TOKEN", "tokens"]),
        ("Größe", "die GRÖSSE, Größe und größer", ["Größe"]),
        ("refresh", "refreshToken", ["refresh"]),
        ("test", "the latest contest", []),
        ("topic11 utf8", "topic11 and topic1, Utf8Decoder", ["topic11", "Utf8"]),
        ("authentication", "authenticate, authenticated", ["authenticate", "authenticated"]),
        ("登录", "修复登录错误", ["登录"]),
        ("errors", "no such thing", []),
    ],
)
def test_forms_and_parts_of_identifiers_are_found(query: str, text: str, wanted: list[str]) -> None:
    assert marked(query, text) == wanted


def test_a_third_precedes_the_match() -> None:
    text = "x " * 500 + "needle " + "y " * 500
    piece = build_snippet(text, finder("needle").find_matches(text), 300)
    before, after = piece.text.split("needle")
    assert 80 <= len(before) <= 100
    assert 170 <= len(after) <= 200
    assert piece.cut == (True, True)


def test_the_passage_with_most_words_is_shown() -> None:
    text = "alpha " + "x " * 400 + "alpha beta gamma " + "y " * 400
    piece = build_snippet(text, finder("alpha beta gamma").find_matches(text), 120)
    assert "alpha beta gamma" in piece.text


def test_a_short_text_is_shown_completely_on_one_line() -> None:
    text = "first\n\n  second   needle\t third"
    piece = build_snippet(text, finder("needle").find_matches(text), 300)
    assert piece.text == "first second needle third"
    assert piece.cut == (False, False)
    assert [piece.text[start:stop] for start, stop in piece.marks] == ["needle"]


@given(st.text(max_size=600), st.integers(10, 200))
def test_marks_stay_on_their_words(text: str, length: int) -> None:
    told = f"{text} needle {text}"
    found = finder("needle").find_matches(told)
    piece = build_snippet(told, found, length)
    assert all(tokenize_words(piece.text[start:stop]) == tokenize_words("needle") for start, stop in piece.marks)
    assert len(piece.text) <= length + 20
