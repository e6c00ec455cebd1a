"""The policy `decay`: which parts decay, how fast, and which identifiers their placeholders list."""

import json
from collections.abc import Iterable

import pytest

from thresher.edits import Replace, apply, build_plan, get_placeholder_id
from thresher.errors import OptionError
from thresher.model import History, Message, Place, Text, ToolCall, ToolResult, part_text
from thresher.policies.decay import DecayResults
from thresher.policies.identifiers import IdentifierSelector, find_identifiers
from thresher.tokens import default_token_weights

SCALE = default_token_weights()
FILLER = "and so the story goes on and on with nothing that anyone would call by its name\n" * 12


def user(text: str = "go on") -> list[Message]:
    return [Message("user", (Text(text),), author="human")]


def did(name: str, text: str, /, **given: str) -> list[Message]:
    """Return a call and its result, with an id derived from their text."""
    id = f"{name}{len(text)}{sum(map(ord, text + json.dumps(given)))}"
    return [
        Message("assistant", (ToolCall(id, name, json.dumps(given)),), author="model"),
        Message("tool", (ToolResult(id, (Text(text),)),), author="tool"),
    ]


def calls(count: int) -> list[Message]:
    return [one for n in range(count) for one in did("Bash", f"fine {n}", command=f"make {n}")]


def told(*groups: Iterable[Message]) -> History:
    return History(tuple(message for group in groups for message in group))


def worn(history: History, **options: int) -> list[int]:
    """Return the messages that a policy replaces, most decayed first; small results are ignored."""
    policy = DecayResults(**options, scale=SCALE)
    return [history.places[edit.target].message for edit in policy(history) if _large(history, edit.target.content)]


def _large(history: History, content: str) -> bool:
    place = next(history.places[one] for one in history.occurrences if one.content == content)
    return len(part_text(history.part(place))) > 300


def test_other_output_decays_faster_than_files() -> None:
    def after(count: int, name: str) -> History:
        return told(user(), did(name, FILLER, file_path="/a.py", command="make"), calls(count))

    assert worn(after(10, "Read"), max_decay=10) == []
    assert worn(after(11, "Read"), max_decay=10) == [2]
    assert worn(after(6, "Bash"), max_decay=10) == []
    assert worn(after(7, "Bash"), max_decay=10) == [2]


def test_each_later_prompt_increases_the_decay_by_half() -> None:
    def after(prompts: int) -> History:
        return told(user(), did("Read", FILLER, file_path="/a.py"), *[user()] * prompts, calls(8))

    assert [bool(worn(after(prompts), max_decay=15)) for prompts in (0, 1, 2, 3)] == [False, False, True, True]
    assert worn(after(3), max_decay=20) == worn(after(9), max_decay=20) == []


def test_edited_files_and_repeated_results_decay_faster() -> None:
    edit = did("Edit", "done", file_path="/a.py", old_string="story", new_string="tale")
    read = did("Read", FILLER, file_path="/a.py")
    assert worn(told(user(), read, edit, calls(8)), max_decay=9) == [2]
    assert worn(told(user(), edit, read, calls(8)), max_decay=9) == []
    assert worn(told(user(), read, read, calls(8)), max_decay=12) == [2]


def test_the_most_decayed_come_first_and_long_calls_last() -> None:
    write = did("Write", "done", file_path="/b.py", content=FILLER)
    history = told(
        user(), write, did("Read", FILLER, file_path="/a.py"), did("Bash", FILLER[1:], command="make"), calls(9)
    )
    assert worn(history, max_decay=4) == [6, 4, 1]


def test_protected_parts_stay() -> None:
    question = did("AskUserQuestion", FILLER, question="which?")
    pointer = did("Read", "[thresher t1:0123456789abcdef · Read /a.py · 342 lines]", file_path="/a.py")
    history = told(user(), question, pointer, calls(20), did("Bash", FILLER, command="last")[:1])
    assert worn(history, max_decay=1) == []


CODE = "class OrderBook:\n    def match_orders(self): ...\n# see src/orders/book.py\n" + FILLER


def test_a_placeholder_lists_identifiers_that_appear_nowhere_else() -> None:
    other = did("Bash", "OrderBook parsed_rows\n" + FILLER, command="run")
    history = told(user("parsed_rows is wrong"), did("Read", CODE, file_path="/a.py"), other, calls(20))
    notes = {
        history.places[edit.target].message: edit.note
        for edit in DecayResults(max_decay=5)(history)
        if isinstance(edit, Replace)
    }
    assert notes[2].split() == ["src/orders/book.py", "OrderBook", "match_orders"]
    assert notes[4] == ""
    assert (
        next(edit.note for edit in DecayResults(max_decay=5, max_identifiers=0)(history) if isinstance(edit, Replace))
        == ""
    )


def test_placeholders_with_many_identifiers_are_recognized() -> None:
    names = "\n".join(f"some_rather_long_name_of_a_function_number_{n}_that_is_there" for n in range(400))
    history = told(user(), did("Read", names + FILLER, file_path="/" + "deep/" * 70 + "a.py"), calls(30))
    after = apply(history, build_plan(history, DecayResults(max_decay=5, max_identifiers=400)(history), SCALE))
    assert get_placeholder_id(after.part(Place(2, 0)))
    assert list(DecayResults(max_decay=5)(after)) == [] or all(
        _small(after, edit) for edit in DecayResults(max_decay=5)(after)
    )


def _small(history: History, edit: object) -> bool:
    return isinstance(edit, Replace) and history.places[edit.target].message != 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("call parse_rows(HTTPServer, getValue) in src/a/b.py", ("parse_rows", "HTTPServer", "getValue", "src/a/b.py")),
        ("The README says NOTHING about it, at 10:30 in 2026", ()),
        ("MAX_SIZE of sha256 at 77ab0d4, not deadbeef", ("MAX_SIZE", "sha256", "77ab0d4")),
        ("snake_case snake_case", ("snake_case",)),
        ("x" * 70 + "_long", ()),
        ("https://example.org/docs/page.html", ("example.org/docs/page.html",)),
    ],
)
def test_identifiers_are_recognized(text: str, names: tuple[str, ...]) -> None:
    assert find_identifiers(Message("user", (Text(text),)))[0] == names


def test_an_identifier_is_listed_once_and_frequent_ones_first() -> None:
    results = [did("Bash", f"often_used rare_{n} some/file_{n}.py", command=f"run {n}") for n in range(3)]
    names = IdentifierSelector(told(user("known_word"), *results))
    assert names.select(["rare_0", "often_used", "known_word", "some/file_0.py"], 2) == "some/file_0.py often_used"
    assert names.select(["often_used", "rare_0", "rare_1"], 9) == "rare_0 rare_1"
    assert names.select(["rare_0"], 9) == ""


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(OptionError, match="whole number"):
        DecayResults(max_decay=-1)
