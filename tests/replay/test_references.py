"""The definition of references: each kind, and each guard against false ones."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import agent, call, did, last_needles, texts, trace, user

import thresher as th
from thresher.model import Thinking, ToolCall
from thresher.replay import REFERENCE_DEFINITION, Reference, ReferenceIndex, Trace, find_references, trace_session
from thresher.replay.references import (
    ReferenceKind,
    find_path_tails,
    find_quotable_lines,
    is_distinctive_word,
    split_phrases,
)

FILE = "def total(items):\n    return sum(item.price for item in items)\n\n    x = 1\n"
NUMBERED = "".join(f"{n:6}→{line}\n" for n, line in enumerate(FILE.splitlines(), 1))
PROSE = "the invoice total must include shipping costs unless the customer collects"


def edit(old: str, new: str = "", id: str = "9") -> ToolCall:
    return call("Edit", id, file_path="/elsewhere", old_string=old, new_string=new)


def read(text: str, id: str = "1") -> list[th.Message]:
    return did(id, "Read", text, file_path="/elsewhere")


def test_definition_has_a_name() -> None:
    assert REFERENCE_DEFINITION == "v1"


# E


def test_old_lines_of_an_edit_are_found_where_they_were_read() -> None:
    of = trace(user("go"), read(NUMBERED), agent(edit(FILE)))
    assert last_needles(of) == [
        Reference("E", "def total(items):", 1, frozenset({2}), 0),
        Reference("E", "return sum(item.price for item in items)", 1, frozenset({2}), 0),
    ]


def test_line_that_is_not_visible_is_no_reference() -> None:
    assert last_needles(trace(user("go"), read("nothing of it"), agent(edit(FILE))), "E") == []


def test_edit_that_starts_inside_a_word_is_found() -> None:
    of = trace(user("go"), read("prefix_total_value = compute(first)\n"), agent(edit("total_value = compute(fir")))
    assert texts(last_needles(of, "E")) == ["total_value = compute(fir"]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("  return total  ", True),
        ("return a+b", False),
        ("aaaaaaaaaaaaaaaa", False),
        ("}  // ______ {}", False),
        ("value = ______", False),
        ("} else if ok {", True),
    ],
)
def test_line_needs_twelve_characters_and_two_words(line: str, counts: bool) -> None:
    assert list(find_quotable_lines(line)) == ([line.strip()] if counts else [])


def test_several_edits_per_call_and_other_argument_names_are_supported() -> None:
    listed = call(
        "MultiEdit", "9", file_path="f", edits=[{"old_string": "first old line"}, {"oldText": "second old line"}]
    )
    of = trace(user("go"), read("first old line\nsecond old line"), agent(listed))
    assert texts(last_needles(of, "E")) == ["first old line", "second old line"]


def test_patch_quotes_what_it_changes() -> None:
    patch = "*** Begin Patch\n*** Update File: f\n@@\n kept context line\n-the old line\n+the new line\n*** End Patch"
    of = trace(
        user("go"), read("kept context line\nthe old line\nthe new line"), agent(ToolCall("9", "apply_patch", patch))
    )
    assert texts(last_needles(of, "E")) == ["kept context line", "the old line"]


def test_agents_own_text_is_a_source_of_lines() -> None:
    written = did("1", "Write", "ok", file_path="/elsewhere", content=FILE)
    references = last_needles(trace(user("go"), written, agent(edit(FILE))), "E")
    assert [sorted(reference.sources) for reference in references] == [[1], [1]]


# G


@pytest.mark.parametrize(
    "written",
    [
        agent(call("Write", "9", file_path="f", content=PROSE)),
        agent(edit("something else altogether", PROSE)),
        agent(call("Bash", "9", command=PROSE)),
        agent(PROSE),
    ],
    ids=["content", "new text", "command", "prose"],
)
def test_phrase_of_ten_words_is_found(written: list[th.Message]) -> None:
    assert texts(last_needles(trace(user(f"Mind: {PROSE}."), written), "G")) == [" ".join(PROSE.split()[:10])]


def test_punctuation_between_words_does_not_matter() -> None:
    wrapped = PROSE.replace(" ", ",\n  ")
    assert len(last_needles(trace(user(wrapped), agent(PROSE)), "G")) == 1
    assert last_needles(trace(user(PROSE.replace("invoice", "invoices")), agent(PROSE)), "G") == []


def test_thinking_and_other_arguments_have_no_phrases() -> None:
    assert last_needles(trace(user(PROSE), agent(Thinking(PROSE), call("Task", "9", prompt=PROSE))), "G") == []


def test_text_quoted_as_old_by_the_same_call_is_not_new() -> None:
    shifted = f"{PROSE} today"
    assert last_needles(trace(user(shifted), agent(edit(shifted, PROSE))), "G") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one two three four five 1 2 3 4 5", 1),
        ("one two three four 0 1 2 3 4 5", 0),
        ("one two three four five six seven eight nine", 0),
        (" ".join(f"word{n}" for n in range(29)), 2),
        ("if x in ab or y in cd: no", 0),
    ],
)
def test_phrase_has_ten_words_and_phrases_do_not_overlap(text: str, found: int) -> None:
    assert len(list(split_phrases(text))) == found


# I and P


@pytest.mark.parametrize(
    ("word", "counts"),
    [
        ("user_id", True), ("parseUrl", True), ("sha256", True), ("HTTPServer", True), ("Parser", False),
        ("parser", False), ("a_b", False), ("README", False), ("______", False), ("1a2b3c4", True),
        ("deadbeef", False), ("a" * 100_000, False),
        ("1a2b3c", False), ("DEADBE3F", True), ("4711", True), ("471", False), ("_total", True), ("total_", True),
    ],
)  # fmt: skip
def test_distinctive_words_are_identifiers(word: str, counts: bool) -> None:
    assert is_distinctive_word(word) is counts


def test_identifiers_are_whole_words_in_arguments() -> None:
    told = user("call parse_header and parse_headers_all, see 4711")
    of = trace(told, agent("parse_header 4711", call("Grep", "9", pattern="parse_header|parse_headers", line=4711)))
    assert texts(last_needles(of, "I")) == ["parse_header", "4711"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/home/sam/src/app/main.py:12", ["app/main.py"]),
        ("see src/main.go.", ["src/main.go"]),
        ("a/b/c.ts, d/e.tsx", ["b/c.ts", "d/e.tsx"]),
        ("main.py and src/main and 1.5/2.5", []),
        ("Foo.app/Contents", []),
        ("./.github/ci.yml", [".github/ci.yml"]),
        ("a" * 100_000 + "/", []),
    ],
)
def test_path_is_its_last_two_components_with_extension(text: str, found: list[str]) -> None:
    assert find_path_tails(text) == found


def test_paths_are_found_in_text_and_arguments() -> None:
    told = user("look at /repo/src/app.py and lib/tool.rb")
    of = trace(told, agent("In src/app.py:", call("Read", "9", file_path="/other/lib/tool.rb")))
    assert texts(last_needles(of, "P")) == ["src/app.py", "lib/tool.rb"]


# Guards for all kinds


def test_text_the_agent_wrote_first_counts_only_for_edits() -> None:
    coined = did(
        "1", "Write", f"wrote {FILE} src/new_file.py {PROSE}", path="src/new_file.py", content=f"{FILE}\n{PROSE}"
    )
    again = agent(PROSE, edit(FILE), call("Read", "8", file_path="src/new_file.py"))
    assert {reference.kind for reference in last_needles(trace(user("go"), coined, again))} == {"E"}
    told_before = trace(user(f"src/new_file.py {PROSE}"), coined, again)
    assert {reference.kind for reference in last_needles(told_before)} == {"E", "G", "I", "P"}


def test_text_the_agent_thought_first_is_its_own() -> None:
    thought = [*agent(Thinking("try parse_header"), call("Bash", "1", command="ls")), *did("2", "Bash", "parse_header")]
    assert last_needles(trace(user("go"), thought, agent(call("Grep", "9", pattern="parse_header")))) == []


@pytest.mark.parametrize(("holders", "others", "kept"), [(6, 0, True), (7, 0, False), (7, 40, True), (8, 40, False)])
def test_text_in_many_blocks_is_ignored(holders: int, others: int, kept: bool) -> None:
    """Seven of 47 blocks are less than 15 %, eight of 48 are more."""
    held = [message for _ in range(holders) for message in user("mind user_id")]
    rest = [message for _ in range(others) for message in user("mind nothing")]
    found = last_needles(trace(held, rest, agent(call("Grep", "9", pattern="user_id"))))
    assert bool(found) is kept


def test_reference_counts_once_per_call_and_ages_from_its_newest_copy() -> None:
    of = trace(
        user("mind user_id"),
        agent("one"), user("user_id again"),
        agent("two"), user("go"),
        agent(call("Grep", "8", pattern="user_id user_id"), call("Grep", "9", pattern="user_id")),
    )  # fmt: skip
    assert last_needles(of) == [Reference("I", "user_id", 2, frozenset({0, 2}), 1)]


def test_later_text_is_not_a_source() -> None:
    of = trace(user("go"), agent(call("Grep", "1", pattern="user_id")), user("user_id"), agent("end"))
    assert find_references(of) == ((), ())


# Positions of references


pieces = st.lists(
    st.sampled_from(["ab_cd1", "ab_cd12", "word", "b_cd1", "lib/a.py", "x/lib/a.py", ",", "\n", " ", "é"])
)
small_texts = pieces.map("".join)


def plainly(kind: ReferenceKind, text: str, within: str) -> bool:
    match kind:
        case "E":
            return text in within
        case "I":
            return text in "".join(c if c.isalnum() or c == "_" else " " for c in within).split()
        case _:
            return text in find_path_tails(within)


@given(st.lists(small_texts, max_size=6), small_texts)
def test_index_agrees_with_a_plain_search(held: list[str], text: str) -> None:
    index = ReferenceIndex()
    assert [index.add(one) for one in held] == list(range(len(held)))
    sought: list[tuple[ReferenceKind, str]] = [("I", "ab_cd1"), ("P", "lib/a.py")]
    sought += [("E", line) for line in find_quotable_lines(text) if len(line.split()) > 2]
    for kind, reference in sought:
        assert set(index.find_holders(kind, reference)) == {
            n for n, one in enumerate(held) if plainly(kind, reference, one)
        }
        assert index.find_holders(kind, reference, {1, 3}) == index.find_holders(kind, reference) & {1, 3}


# Coincidence


def held_by(other: Trace, references: list[Reference]) -> dict[str, float]:
    """Return the share of each kind that another conversation contains."""
    index = ReferenceIndex()
    for block in other.blocks:
        index.add(block.text)
    found = Counter(reference.kind for reference in references if index.find_holders(reference.kind, reference.text))
    return {kind: found[kind] / count for kind, count in Counter(reference.kind for reference in references).items()}


def test_another_conversation_contains_no_reference() -> None:
    told = user(f"In src/bill.py user_id is wrong. {PROSE}")
    of = trace(told, read(FILE), agent(PROSE, edit(FILE), call("Grep", "8", pattern="user_id", path="src/bill.py")))
    other = trace(user("Write a parser for dates in lib/date.py, mind leap_years."), read("def parse(text):\n    ..."))
    assert held_by(of, last_needles(of)) == {"G": 1.0, "E": 1.0, "I": 1.0, "P": 1.0}
    assert held_by(other, last_needles(of)) == {"G": 0.0, "E": 0.0, "I": 0.0, "P": 0.0}


def test_most_calls_of_recordings_have_references_not_by_coincidence(shared_data: Path) -> None:
    """At most 10 % of lines and phrases may occur in a session of another project."""
    files = [f"claude_code/{name}.jsonl.gz" for name in ("entire-007", "cipherbox-003", "packmind-004")]
    found = [max(trace_session(th.read_all(shared_data / file)[0]), key=lambda one: len(one.calls)) for file in files]
    for of, other in zip(found, [*found[1:], found[0]], strict=True):
        calls = find_references(of)
        references = [reference for one in calls for reference in one]
        assert sum(map(bool, calls)) > 0.3 * len(calls)
        assert all(share <= 0.1 for kind, share in held_by(other, references).items() if kind in "EG")
