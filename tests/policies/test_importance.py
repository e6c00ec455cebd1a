"""Importance: each feature alone moves the score in the right direction."""

import json

import pytest

from thresher.model import History, Message, Place, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.policies.importance import (
    extract_scored_names,
    extract_scored_words,
    measure_kept_importance,
    score_importance,
)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def call(
    number: int, name: str, result: str = "done", *, error: bool = False, **arguments: str
) -> tuple[Message, Message]:
    made = ToolCall(f"c{number}", name, json.dumps(arguments))
    answer = ToolResult(f"c{number}", (Text(result),), is_error=error)
    return Message("assistant", (made,), author="model"), Message("tool", (answer,), author="tool")


def test_an_empty_history_has_no_scores() -> None:
    assert score_importance(History()) == {}
    assert measure_kept_importance(History(), set()) == 1.0


def test_words_of_the_current_request_raise_the_score() -> None:
    history = History(
        (
            user("hello"),
            *call(1, "Bash", "the invoice totals are rounded", command="a"),
            *call(2, "Bash", "the weather outside is lovely", command="b"),
            user("why are invoiceTotals wrong?"),
        )
    )
    scores = score_importance(history)
    assert scores[Place(2, 0)] > scores[Place(4, 0)]


def test_recency_raises_the_score() -> None:
    history = History((user("go"), *(message for n in range(5) for message in call(n, "Bash", command="same"))))
    scores = score_importance(history)
    found = [scores[Place(index, 0)] for index in range(1, len(history), 2)]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_references_by_later_calls_raise_the_score() -> None:
    history = History(
        (
            user("go"),
            *call(1, "Bash", "see src/rounding_rules.py", command="a"),
            *call(2, "Bash", "see src/unrelated_thing.py", command="a"),
            *call(3, "Read", file_path="src/rounding_rules.py"),
        )
    )
    scores = score_importance(history)
    assert scores[Place(2, 0)] > scores[Place(4, 0)]


@pytest.mark.parametrize(("mended", "more"), [(True, False), (False, True)])
def test_an_error_scores_high_until_a_retry_succeeds(mended: bool, more: bool) -> None:
    history = History(
        (
            user("go"),
            *call(1, "Bash", "boom", error=True, command="make test"),
            *call(2, "Bash", "boom", error=not mended, command="make test"),
        )
    )
    plain = History(
        (
            user("go"),
            *call(1, "Bash", "boom", command="make test"),
            *call(2, "Bash", "boom", error=not mended, command="make test"),
        )
    )
    assert (score_importance(history)[Place(2, 0)] > score_importance(plain)[Place(2, 0)]) is more


def test_a_failed_command_is_an_error() -> None:
    bad = History((user("go"), *call(1, "bash", "<returncode>1</returncode>\n<output>\nboom</output>", command="x")))
    good = History((user("go"), *call(1, "bash", "<returncode>0</returncode>\n<output>\nboom</output>", command="x")))
    assert score_importance(bad)[Place(2, 0)] > score_importance(good)[Place(2, 0)]


def test_kinds_of_parts_are_ordered() -> None:
    rows = (
        Message("user", (Text("a"),)),
        Message("assistant", (Text("b?"),), author="model"),
        Message("assistant", (Text("b"),), author="model"),
        *(
            Message("assistant", (ToolCall(name, name, json.dumps(given)),), author="model")
            for name, given in (
                ("Edit", {"file_path": "q"}),
                ("Bash", {"command": "q"}),
                ("Read", {"file_path": "q"}),
                ("LS", {"path": "q"}),
            )
        ),
        Message("assistant", (Thinking("c"),), author="model"),
    )
    # One turn, so that only the kind differs.
    scores = [score_importance(History(rows))[Place(index, 0)] for index in range(1, len(rows))]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


def test_quality_is_the_kept_share_of_the_score() -> None:
    history = History((user("fix it"), *call(1, "Read", "text", file_path="a.py"), user("and now?")))
    scores = score_importance(history)
    assert measure_kept_importance(history, set(scores)) == pytest.approx(1.0)
    assert measure_kept_importance(history, set()) == 0.0
    human, read = {Place(0, 0)}, {Place(2, 0)}
    assert measure_kept_importance(history, human) > measure_kept_importance(history, read) > 0
    assert measure_kept_importance(history, human | read) == pytest.approx(
        measure_kept_importance(history, human) + measure_kept_importance(history, read)
    )


def test_a_summary_scores_nearly_as_high_as_human_text() -> None:
    history = History((Message("user", (Summary("what was"), Text("x")), author="harness"), user("go on")))
    scores = score_importance(history)
    assert scores[Place(0, 0)] > scores[Place(0, 1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parseHTMLPage parse_html_page", {"parse", "html", "page"}),
        ("src/thresher/a_b.py", {"src", "thresher"}),
        ("the and 12 1234", {"1234"}),
        ("日本 naïve Straße", {"日本", "naïve", "straße"}),
    ],
)
def test_identifiers_and_paths_are_split_into_words(text: str, words: set[str]) -> None:
    assert extract_scored_words(text) == words


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("read src/a.py now", {"src/a.py", "a.py"}),
        ("C:\\work\\main.rs", {"work/main.rs", "main.rs"}),
        ("call parseThing or parse_thing here", {"parseThing", "parse_thing"}),
        ("plain words only.", set()),
    ],
)
def test_names_are_distinguished_from_words(text: str, names: set[str]) -> None:
    assert extract_scored_names(text) == names
