"""The policy `reads`: which reads of a file stay, and that placeholders state facts."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_chains import Did, body, closed, results, told, touched

from strategies import histories
from thresher.errors import OptionError
from thresher.model import History, Message, Text, ToolCall, ToolResult
from thresher.model.line_extents import LineExtent, parse_read_extent
from thresher.model.paths import normalize_path
from thresher.model.tool_calls import describe_tool_call
from thresher.policies.file_accesses import collect_file_accesses, find_changed_paths
from thresher.policies.reads import DeduplicateReads, choose_kept_reads

A, B = "/work/a/config.py", "/work/b/config.py"


def read(path: str = A, text: str = "same", **arguments: Any) -> Did:
    return Did("Read", {"file_path": path, **arguments}, body(text))


def edit(path: str = A) -> Did:
    return Did("Edit", {"file_path": path, "old_string": "a", "new_string": "b"})


KEPT = {
    1: {0},
    2: {0, 1},
    3: {0, 2},
    4: {0, 3},
    5: {0, 4},
    6: {0, 1, 3, 4, 5},
    7: {0, 2, 3, 5, 6},
    8: {0, 2, 4, 5, 7},
    9: {0, 2, 4, 6, 8},
    10: {0, 2, 5, 7, 9},
    11: {0, 3, 5, 8, 10},
    12: {0, 3, 6, 8, 11},
    13: {0, 3, 6, 9, 12},
    14: {0, 3, 7, 10, 13},
    15: {0, 4, 7, 11, 14},
    16: {0, 4, 8, 11, 15},
    17: {0, 4, 8, 12, 16},
    18: {0, 4, 9, 13, 17},
    19: {0, 5, 9, 14, 18},
    20: {0, 5, 10, 14, 19},
}


@pytest.mark.parametrize("count", KEPT)
def test_first_and_last_read_stay_and_samples_of_many(count: int) -> None:
    history = told(*(read() for _ in range(count)))
    plan, smaller = closed(history, DeduplicateReads())
    assert touched(history, plan.edits) == sorted(set(range(count)) - KEPT[count])
    assert [text == body("same") for text in results(smaller)] == [n in KEPT[count] for n in range(count)]


@given(st.integers(0, 200), st.integers(2, 12), st.none() | st.integers(0, 12))
def test_kept_reads_are_few_and_evenly_spread(count: int, most: int, samples: int | None) -> None:
    kept = sorted(choose_kept_reads(count, most, samples))
    assert set(kept) <= set(range(count))
    assert {0, count - 1} <= set(kept) or not count
    between = 0 if count < 6 else most - 2 if samples is None else min(samples, most - 2)
    assert len(kept) == min(count, between + 2) <= most
    steps = {after - before for before, after in pairwise(kept)}
    assert not steps or max(steps) - min(steps) <= 1


@pytest.mark.parametrize("most", range(1, 13))
def test_no_more_reads_stay_than_the_option_permits_and_a_higher_limit_keeps_no_fewer(most: int) -> None:
    for count in range(1, 30):
        kept = choose_kept_reads(count, most)
        assert count - 1 in kept
        assert len(kept) <= most
        assert len(kept) <= len(choose_kept_reads(count, most + 1))
    assert len(choose_kept_reads(30, most)) == most


def test_one_read_is_the_latest_and_zero_is_an_error() -> None:
    history = told(*(read() for _ in range(4)))
    plan, _ = closed(history, DeduplicateReads(max_file_reads=1))
    assert touched(history, plan.edits) == [0, 1, 2]
    with pytest.raises(OptionError, match="1 or more"):
        DeduplicateReads(max_file_reads=0)


def test_placeholders_name_the_file_and_the_read_with_the_text() -> None:
    history = told(read(), read(), read(text="other"), read(text="other"))
    _, smaller = closed(history, DeduplicateReads())
    _, first, second, _ = results(smaller)
    assert first.endswith("turn 2 · re-read; same text as the read at turn 1]")
    assert second.endswith("turn 3 · re-read; same text as the read at turn 4]")


def test_a_placeholder_names_an_edit_between_reads() -> None:
    history = told(read(), read(text="one"), edit(), read(text="two"))
    _, smaller = closed(history, DeduplicateReads())
    stale = "older state; the file was edited at turn 3 since; read again at turn 4]"
    assert results(smaller)[1].endswith(stale)


def test_a_placeholder_reports_an_unexplained_change() -> None:
    history = told(read(), read(text="one"), edit(B), read(text="two"))
    _, smaller = closed(history, DeduplicateReads())
    assert results(smaller)[1].endswith("older state; the text has changed since; read again at turn 4]")


def test_duplicate_reads_are_proposed_first() -> None:
    history = told(read(text="one"), read(text="two"), read(text="one"), read(text="three"))
    assert [edit.why for edit in DeduplicateReads()(history)] == ["re-read", "stale read"]


UNLIKE = {
    "two files of one name": (read(A), read(B), read(A), read(B)),
    "other lines": (read(offset=1, limit=60), read(offset=61, limit=60), read(offset=121, limit=60), read()),
    "failed reads are none": (
        read(),
        Did("Read", {"file_path": A}, body("no such file"), is_error=True),
        Did("Read", {"file_path": A}, None),
        read(),
    ),
    "other pages": tuple(read("/a/b.pdf", pages=f"{n}-{n}") for n in range(4)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_different_text_has_no_placeholder(name: str) -> None:
    assert list(DeduplicateReads()(told(*UNLIKE[name]))) == []


def test_paths_are_normalized() -> None:
    shell = Did("Bash", {"command": "cat ./src/../config.py", "workdir": "/work/a"}, body("same"))
    history = told(read(), shell, read("/work/a/./config.py"))
    assert touched(history, closed(history, DeduplicateReads())[0].edits) == [1]


def test_a_relative_path_matches_the_only_file_that_ends_with_it() -> None:
    def paths(*given: str) -> list[str]:
        return [one.path for one in collect_file_accesses(told(*map(read, given))).reads]

    assert paths("a/config.py", A, "config.py") == [A, A, A]
    assert paths("config.py", A, B) == ["config.py", A, B]
    assert paths("fig.py", A) == ["fig.py", A]


PATHS = {
    "a.py": "a.py",
    "./a.py": "a.py",
    "src//x/../a.py": "src/a.py",
    "/a/../../b.py": "/b.py",
    "C:\\Work\\a.py": "C:/Work/a.py",
    "C:/Work/x/../a.py": "C:/Work/a.py",
    "C:\\..\\a.py": "C:/a.py",
    "src\\a.py": "src/a.py",
    "~/a/../b.py": "~/b.py",
    "~": "~",
    "~me/x": "~me/x",
    "../a.py": "../a.py",
    " a.py ": "a.py",
    "": "",
    "Read.ME": "Read.ME",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_has_one_normal_form(path: str) -> None:
    assert normalize_path(path) == PATHS[path]
    assert normalize_path(PATHS[path]) == PATHS[path]


def test_a_relative_path_starts_at_the_working_directory() -> None:
    assert normalize_path("../b.py", "/work/a") == "/work/b.py"
    assert normalize_path("b.py", "C:\\work") == "C:/work/b.py"
    assert normalize_path("/b.py", "/work/a") == "/b.py"


EXTENTS: list[tuple[str, dict[str, Any], LineExtent]] = [
    ("Read", {"file_path": A}, LineExtent()),
    ("Read", {"file_path": A, "offset": 10, "limit": 5}, LineExtent(10, 14)),
    ("Read", {"file_path": A, "limit": 5, "offset": None}, LineExtent(1, 5)),
    ("Read", {"file_path": A, "offset": 0}, LineExtent()),
    ("Read", {"file_path": A, "offset": -5}, LineExtent(variant='{"offset":-5}')),
    ("Read", {"file_path": A, "pages": "1-3"}, LineExtent(variant='{"pages":"1-3"}')),
    ("read_file", {"path": A, "start_line": 3, "end_line": 9}, LineExtent(3, 9)),
    ("read_file", {"path": A, "line_start": 3, "line_end": 9}, LineExtent(3, 9)),
    ("read_file", {"target_file": A, "explanation": "why"}, LineExtent()),
    ("read_many_files", {"paths": [A, B]}, LineExtent(variant=f'{{"paths":["{A}","{B}"]}}')),
    ("str_replace_editor", {"command": "view", "path": A, "view_range": [3, 9]}, LineExtent(3, 9)),
    ("str_replace_editor", {"command": "view", "path": A, "view_range": [3, -1]}, LineExtent(3)),
    ("Bash", {"command": f"cat -n {A}"}, LineExtent()),
    ("Bash", {"command": f"sed -n '10,20p' {A}"}, LineExtent(10, 20)),
    ("Bash", {"command": f"cd /x && sed -n 10p {A}"}, LineExtent(10, 10)),
    ("Bash", {"command": f"sed -n '10,$p' {A}"}, LineExtent(10)),
    ("Bash", {"command": f"nl -ba {A} | sed -n '1,5p'"}, LineExtent(1, 5)),
    ("Bash", {"command": f"sed -n '1,5p;8,9p' {A}"}, LineExtent(variant=f"sed -n '1,5p;8,9p' {A}")),
    ("Bash", {"command": f"head {A}"}, LineExtent(1, 10)),
    ("Bash", {"command": f"head -n 7 {A}"}, LineExtent(1, 7)),
    ("Bash", {"command": f"cat {A} | head -7"}, LineExtent(1, 7)),
    ("Bash", {"command": f"head -c 7 {A}"}, LineExtent(variant=f"head -c 7 {A}")),
    ("Bash", {"command": f"tail -n +7 {A}"}, LineExtent(7)),
    ("Bash", {"command": f"tail -n 7 {A}"}, LineExtent(variant=f"tail -n 7 {A}")),
    ("Bash", {"command": f"head -n 20 {A} | tail -n 5"}, LineExtent(variant=f"head -n 20 {A} | tail -n 5")),
]


@pytest.mark.parametrize(("name", "arguments", "extent"), EXTENTS)
def test_the_extent_of_a_read(name: str, arguments: dict[str, Any], extent: LineExtent) -> None:
    (call,) = told(Did(name, arguments)).messages[1].calls
    use = describe_tool_call(call)
    assert parse_read_extent(call, use) == extent
    assert use.path in (A, "") or use.operation != "read"


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: ./b.py\n+x\n*** Delete File: c.py\n*** End Patch"


@pytest.mark.parametrize("arguments", [PATCH, {"input": PATCH}, {"command": ["apply_patch", PATCH]}])
def test_a_patch_changes_all_its_files(arguments: Any) -> None:
    name = "shell" if isinstance(arguments, dict) and "command" in arguments else "apply_patch"
    (call,) = told(Did(name, arguments)).messages[1].calls
    assert find_changed_paths(call, describe_tool_call(call)) == {"a.py": "edit", "b.py": "write", "c.py": "delete"}


def test_a_move_changes_source_and_target() -> None:
    (call,) = told(Did("move_file", {"source": "a.py", "destination": "b.py"})).messages[1].calls
    assert find_changed_paths(call, describe_tool_call(call)) == {"a.py": "move", "b.py": "move"}


def test_a_placeholder_counts_as_a_read_when_the_history_grows() -> None:
    _, smaller = closed(told(*(read() for _ in range(5))), DeduplicateReads())
    last = (
        Message("assistant", (ToolCall("x", "Read", f'{{"file_path":"{A}"}}'),), author="model"),
        Message("tool", (ToolResult("x", (Text(body("same")),)),), author="tool"),
        Message("assistant", (Text("Done."),), author="model"),
    )
    grown = History((*smaller.messages, *last))
    assert touched(grown, DeduplicateReads()(grown)) == [], "of six reads only the third would go, and it has gone"


@pytest.mark.parametrize("options", [{"samples": -1}, {"max_file_reads": "5"}, {"samples": True}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        DeduplicateReads(**options)


@given(histories)
def test_any_history_is_accepted(history: History) -> None:
    closed(history, DeduplicateReads(max_file_reads=1))
