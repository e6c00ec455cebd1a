"""The policy `tools`: which calls its options select, and its actions."""

import json

import pytest
from hypothesis import given
from tool_chains import Did, body, closed, told

from strategies import histories
from thresher.budget import load_settings
from thresher.edits import apply, build_plan, find_verified_placeholders
from thresher.errors import OptionError
from thresher.model import History, Message, Text, ToolCall, ToolResult
from thresher.policies import make_policy
from thresher.policies.tools import EditToolCalls
from thresher.tokens import default_token_weights

SCALE = default_token_weights(counter="estimate")
BODY = "".join(f"{n}: some line of output\n" for n in range(300))
CALLS: tuple[tuple[str, str, dict[str, str], str, bool], ...] = (
    ("read", "Read", {"file_path": "src/a.py"}, BODY, False),
    ("edit", "Edit", {"file_path": "src/a.py", "old_string": BODY, "new_string": "b"}, "ok", False),
    ("git", "Bash", {"command": "git status"}, BODY, False),
    ("make", "Bash", {"command": "make test"}, f"Exit code 2\n{BODY}", True),
    ("stop", "Bash", {"command": "make serve"}, "[Request interrupted by user for tool use]", False),
    ("query", "mcp__db__query", {"sql": "select 1"}, BODY, False),
    ("ask", "AskUserQuestion", {"question": "Which one?"}, "The second, please.", False),
    ("deny", "Write", {"file_path": "b.py"}, "It was rejected; the user said:\nnot there", True),
    ("other", "Unheard", {"x": "y"}, BODY, False),
)


def history_of(*asked: str) -> History:
    said: list[Message] = [Message("user", (Text("go"),))]
    for call_id, name, arguments, text, is_error in CALLS:
        said += [
            Message("assistant", (ToolCall(call_id, name, json.dumps(arguments)),), author="model"),
            Message("tool", (ToolResult(call_id, (Text(text),), is_error),), author="tool"),
        ]
        if call_id in asked:
            said.append(Message("user", (Text("and now?"),)))
    return History((*said, Message("assistant", (Text("done"),), author="model"), Message("user", (Text("thanks"),))))


HISTORY = history_of()


def after(policy: EditToolCalls, history: History) -> History:
    return apply(history, build_plan(history, policy(history), SCALE))


def dropped(policy: EditToolCalls, history: History = HISTORY) -> set[str]:
    left = {call.id for message in after(policy, history) for call in message.calls}
    answered = {result.call_id for message in after(policy, history) for result in message.results}
    assert left == answered
    return {row[0] for row in CALLS} - left


@pytest.mark.parametrize(
    ("policy", "meant"),
    [
        (EditToolCalls(), set()),
        (EditToolCalls(names=("read",)), {"read"}),
        (EditToolCalls(names=("BASH",)), {"git", "make", "stop"}),
        (EditToolCalls(names=("mcp__*",)), {"query"}),
        (EditToolCalls(categories=("mcp",)), {"query"}),
        (EditToolCalls(categories=("file_edit", "project")), {"edit", "git"}),
        (EditToolCalls(names=("read",), categories=("execution",)), {"read", "make", "stop"}),
        (EditToolCalls(failed=True), {"make", "stop"}),
        (EditToolCalls(failed=True, categories=("file_read",)), set()),
        (EditToolCalls(failed=False, names=("Bash",)), {"git"}),
        (EditToolCalls(failed=False), {"read", "edit", "git", "query", "other"}),
        (EditToolCalls(names=("*",), exclude_tools=("bash", "mcp__*")), {"read", "edit", "other"}),
        (EditToolCalls(categories=("other",)), {"other"}),
        (EditToolCalls(categories=("question",)), {"ask"}),
        (EditToolCalls(names=("AskUserQuestion",)), {"ask"}),
        (EditToolCalls(names=("ask*",)), {"ask"}),
        (EditToolCalls(names=("Write",)), {"deny"}),
    ],
)
def test_options_select_calls(policy: EditToolCalls, meant: set[str]) -> None:
    assert dropped(policy) == meant


def test_the_last_exchange_is_unchanged() -> None:
    history = history_of("git")
    older = History(history.messages[:-1])
    assert dropped(EditToolCalls(names=("*",), older_exchanges_only=True), older) == {"read", "edit", "git"}


def results(history: History) -> dict[str, str]:
    return {result.call_id: result.text for message in history for result in message.results}


def test_replace_keeps_calls() -> None:
    smaller = after(EditToolCalls(names=("*",), action="replace"), HISTORY)
    assert [list(message.calls) for message in smaller] == [list(message.calls) for message in HISTORY]
    texts = results(smaller)
    assert texts["read"].startswith("[thresher t1:")
    assert "Read src/a.py" in texts["read"]
    assert "failed" in texts["make"]
    assert texts["ask"] == "The second, please."
    assert texts["deny"].endswith("not there")


def test_replace_calls_keeps_results() -> None:
    smaller = after(EditToolCalls(categories=("file_edit",), action="replace_calls"), HISTORY)
    calls = {call.id: call.arguments for message in smaller for call in message.calls}
    assert "removed" in json.loads(calls["edit"])
    assert json.loads(calls["read"]) == {"file_path": "src/a.py"}
    assert results(smaller) == results(HISTORY)


def test_summarize_writes_one_line_per_chain() -> None:
    smaller = after(EditToolCalls(categories=("file_read",), action="summarize"), HISTORY)
    assert "read" not in results(smaller)
    (line,) = [message.text for message in smaller if "thresher" in message.text]
    assert "src/a.py" in line
    assert "301 lines" in line or "300 lines" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("policy", "most", "starts", "ends"),
    [
        (EditToolCalls(names=("read",), action="truncate", limit=1000), 1000, True, True),
        (EditToolCalls(names=("read",), action="truncate", head=200, tail=800), 1000, True, True),
        (EditToolCalls(names=("read",), action="truncate", head=500), 500, True, False),
        (EditToolCalls(names=("read",), action="truncate", tail=500), 500, False, True),
    ],
)
def test_truncate_keeps_head_and_tail(policy: EditToolCalls, most: int, starts: bool, ends: bool) -> None:
    text = results(after(policy, HISTORY))["read"]
    assert len(text) <= most
    assert text.startswith("0: some line") == starts
    assert text.endswith("299: some line of output\n") == ends


def test_reasons_are_short() -> None:
    whys = {edit.why for edit in EditToolCalls(names=("*",))(HISTORY)}
    assert whys == {"file read", "file edit", "project", "execution", "mcp", "other"}
    assert {edit.why for edit in EditToolCalls(failed=True)(HISTORY)} == {"failed"}


@pytest.mark.parametrize(
    "options",
    [
        {"names": "Bash"},
        {"categories": ("files",)},
        {"action": "burn"},
        {"limit": -1},
        {"action": "truncate", "limit": 20},
        {"action": "truncate", "head": 10},
        {"head": "many"},
    ],
)
def test_invalid_options_are_rejected(options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="policy `tools`"):
        EditToolCalls(**options)  # type: ignore[arg-type]


POLICIES = (
    EditToolCalls(names=("*",)),
    EditToolCalls(failed=True),
    EditToolCalls(failed=False, action="replace"),
    EditToolCalls(names=("*",), action="replace_calls"),
    EditToolCalls(names=("*",), action="summarize"),
    EditToolCalls(names=("*",), action="truncate", limit=100),
)


@given(histories)
def test_a_second_run_changes_nothing(history: History) -> None:
    for policy in POLICIES:
        once = after(policy, history)
        stand_ins = find_verified_placeholders(once, set)
        assert apply(once, build_plan(once, policy(once), SCALE, placeholders=stand_ins)) == once


def test_a_call_with_a_placeholder_is_not_replaced_again() -> None:
    """A new placeholder would have the same length, and ids differ in their token counts."""
    policy = EditToolCalls(names=("*",), action="replace_calls")
    for number in range(200):
        call = ToolCall("c", "Bash", json.dumps({"words": f"{number} or so, " * 20}))
        asked = (Message("user", (Text("go"),)), Message("assistant", (call,), author="model"))
        answered = Message("tool", (ToolResult("c", (Text("done"),)),), author="tool")
        said = Message("assistant", (Text("Done."),), author="model")
        once = after(policy, History((*asked, answered, said, Message("user", (Text("go on"),)))))
        stand_ins = find_verified_placeholders(once, set)
        assert stand_ins
        assert apply(once, build_plan(once, policy(once), SCALE, placeholders=stand_ins)) == once


@pytest.mark.parametrize("policy", POLICIES)
def test_a_second_run_on_a_long_history_changes_nothing(policy: EditToolCalls) -> None:
    once = after(policy, HISTORY)
    stand_ins = find_verified_placeholders(once, set)
    assert apply(once, build_plan(once, policy(once), SCALE, placeholders=stand_ins)) == once


SHELL_STATUS = {"command": "git status"}
TOOLS_BY_CATEGORY: dict[str, list[tuple[str, dict[str, str]]]] = {
    "file_edit": [("Edit", {}), ("MultiEdit", {}), ("Write", {}), ("NotebookEdit", {})],
    "file_read": [("Read", {}), ("Glob", {}), ("Grep", {}), ("LS", {})],
    "execution": [("Bash", {"command": "ls"}), ("executeCode", {}), ("mcp__ide__executeCode", {})],
    "web": [("WebSearch", {}), ("WebFetch", {})],
    "analysis": [("Task", {}), ("Agent", {})],
    "project": [("TodoWrite", {}), ("Bash", SHELL_STATUS), ("git_commit", {}), ("git", {"args": "log"})],
    "mcp": [("mcp__ide__getDiagnostics", {}), ("mcp__tracker__list_issues", {}), ("ListMcpResourcesTool", {})],
}


@pytest.mark.parametrize("category", TOOLS_BY_CATEGORY)
def test_an_excluded_category_removes_its_tools_and_no_others(category: str) -> None:
    calls = [call for tools in TOOLS_BY_CATEGORY.values() for call in tools]
    history = told(*(Did(name, {"id": str(n), **arguments}, body(name)) for n, (name, arguments) in enumerate(calls)))
    settings = {f"{prefix}EXCLUDE_TOOL_CATEGORIES": category for prefix in ("CLAUDIST_", "THRESHER_")}
    ((_, options),) = load_settings(environment=settings).steps("none")
    _, smaller = closed(history, make_policy("tools", **options))
    left = [call.name for message in smaller for call in message.calls]
    expected = [call for other, tools in TOOLS_BY_CATEGORY.items() if other != category for call in tools]
    assert left == [name for name, _ in expected]
