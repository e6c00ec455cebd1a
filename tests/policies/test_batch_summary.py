"""The policy `batch-summary`: old calls are summarized in batches; human and agent text stays."""

import json

import pytest

import thresher as th
from thresher.budget import load_settings
from thresher.edits import Edit, Replace, Summarize, apply, build_plan, is_legal
from thresher.errors import OptionError
from thresher.model import History, Message, Part, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.policies import make_policy
from thresher.policies.batch_summary import SummarizeBatches
from thresher.policies.xml_tools import find_xml_chains
from thresher.tokens import default_token_weights

SCALE = default_token_weights()
LONG = "a line of output that nobody reads twice\n" * 30


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def said(*parts: Part) -> Message:
    return Message("assistant", parts, author="model")


def chain(number: int, name: str = "Read", *, text: str = "", mark: str = "", result: str = LONG) -> list[Message]:
    call = ToolCall(f"c{number}", name, json.dumps({"file_path": f"f{number}.py", "note": mark}))
    words: list[Part] = [Text(text)] if text else []
    return [said(*words, call), Message("tool", (ToolResult(call.id, (Text(result),)),), author="tool")]


def story(*names: str, after: int = 20) -> History:
    """Return a prompt, one chain per tool name, and a number of short messages."""
    messages = [user("go"), *(message for n, name in enumerate(names) for message in chain(n, name))]
    messages += [message for n in range(after // 2) for message in (user(f"q{n}"), said(Text(f"a{n}")))]
    return History(tuple(messages))


def taken(history: History, policy: SummarizeBatches) -> tuple[Edit, ...]:
    return build_plan(history, policy(history), SCALE).edits


@pytest.mark.parametrize(
    ("calls", "after", "fires"),
    [
        (12, 20, True),  # many are old
        (9, 20, False),  # too few, and not old enough
        (6, 40, True),  # few, but very old
        (6, 26, False),
        (12, 0, False),  # only two calls are older than the latest twenty messages
        (0, 60, False),
    ],
)
def test_a_batch_waits_for_number_or_age(calls: int, after: int, fires: bool) -> None:
    assert bool(taken(story(*["Read"] * calls, after=after), SummarizeBatches())) is fires


def test_the_calls_per_summary_are_limited() -> None:
    folds = taken(story(*["Read"] * 25), SummarizeBatches(max_calls_per_summary=10))
    assert [len(one.targets) for one in folds if isinstance(one, Summarize)] == [20, 20, 10]


def test_a_batch_is_one_summary_in_place_of_calls_and_results() -> None:
    history = story(*["Read"] * 12)
    (fold,) = taken(history, SummarizeBatches())
    assert isinstance(fold, Summarize)
    assert len(fold.targets) == 24
    assert "12 calls summarized, turns 1-12" in fold.text
    assert "f11.py" in fold.text
    after = apply(history, build_plan(history, [fold], SCALE))
    assert after[0] == user("go")
    assert isinstance(after[1].parts[0], Summary)
    assert after.messages[2:] == history.messages[25:]
    assert is_legal(after)


def test_human_and_agent_text_stays_in_order() -> None:
    messages = [user("one"), *chain(0, text="looking"), *chain(1), user("two"), *chain(2), *chain(3, text="hm")]
    history = History((*messages, *story(after=20).messages[1:]))
    policy = SummarizeBatches(min_calls=2)
    after = apply(history, build_plan(history, policy(history), SCALE))
    told = [
        part.text.partition("\n")[0] for message in after for part in message.parts if isinstance(part, Text | Summary)
    ]
    assert [text if not text.startswith("[") else text.partition(" · ")[2] for text in told[:6]] == [
        "one",
        "looking",
        "2 calls summarized, turns 1-2]",
        "two",
        "2 calls summarized, turns 3-4]",
        "hm",
    ]


@pytest.mark.parametrize(
    ("never", "kept"),
    [
        (None, {"AskUserQuestion", "attempt_completion"}),
        ((), set()),
        (("read",), {"Read", "AskUserQuestion", "attempt_completion"}),
        (("B*",), {"Bash", "AskUserQuestion", "attempt_completion"}),
    ],
)
def test_some_tools_are_never_summarized(never: tuple[str, ...] | None, kept: set[str]) -> None:
    history = story("Read", "AskUserQuestion", "Bash", "attempt_completion", "Read", "Bash")
    policy = SummarizeBatches(min_calls=1, exclude_tools=never)
    after = apply(history, build_plan(history, policy(history), SCALE))
    assert {call.name for message in after for call in message.calls} == kept
    assert {name for name, _ in policy.count_excluded(history)} == kept


def test_excluded_calls_do_not_count() -> None:
    history = story(*["AskUserQuestion"] * 30, after=60)
    assert not list(SummarizeBatches()(history))
    mixed = story(*["AskUserQuestion"] * 10, *["Read"] * 5, after=20)
    assert not list(SummarizeBatches()(mixed))


def test_a_question_and_its_answer_are_unchanged() -> None:
    asked = chain(0, "AskUserQuestion", result="the blue one")
    history = History((user("go"), *asked, *story(*["Bash"] * 30, after=40).messages[1:]))
    after = apply(history, build_plan(history, SummarizeBatches()(history), SCALE))
    assert after.messages[1:3] == tuple(asked)


def test_a_marked_call_stays() -> None:
    messages = [*chain(0), *chain(1, mark="[keep] this"), *chain(2, text="[keep] as reference"), *chain(3)]
    history = History((user("go"), *messages, *story(after=20).messages[1:]))
    policy = SummarizeBatches(min_calls=1)
    after = apply(history, build_plan(history, policy(history), SCALE))
    assert [call.id for message in after for call in message.calls] == ["c1", "c2"]
    assert policy.notes(history) == ("batch-summary excluded 2 calls: Read 2 (marked)",)
    unmarked = SummarizeBatches(min_calls=1, keep_marked="")
    assert not [
        call for message in apply(history, build_plan(history, unmarked(history), SCALE)) for call in message.calls
    ]


def test_small_calls_stay() -> None:
    messages = [*chain(0, result="ok"), *chain(1), *chain(2, result="ok")]
    history = History((user("go"), *messages, *story(after=20).messages[1:]))
    policy = SummarizeBatches(min_calls=1, min_tokens=100)
    (fold,) = taken(history, policy)
    assert isinstance(fold, Summarize)
    assert len(fold.targets) == 2
    assert policy.notes(history) == ("batch-summary excluded 2 calls: Read 2 (small)",)


@pytest.mark.parametrize("counter", ["estimate", "auto"])
@pytest.mark.parametrize("least", [45, 70, 100])
def test_the_note_on_small_calls_agrees_with_the_plan(counter: str, least: int) -> None:
    messages = [one for n in range(12) for one in chain(n, result="word " * (8 * n))]
    history = History((user("go"), *messages, *story(after=20).messages[1:]))
    policy = SummarizeBatches(min_calls=1, min_tokens=least)
    made = th.plan(history, policy=policy, model="gpt-5", counter=counter)
    kept = sum(1 for _ in apply(history, made).chains)
    assert 0 < kept < 12
    assert made.notes == (f"batch-summary excluded {kept} call{'s' * (kept > 1)}: Read {kept} (small)",)


@pytest.mark.parametrize("tools", ["none", " NONE ", ""])
def test_none_excludes_no_tool_also_in_the_environment(tools: str) -> None:
    history = story("AskUserQuestion", "submit", "Read", "finish", after=30)
    ((_, options),) = load_settings(environment={"THRESHER_BATCH_SUMMARY_EXCLUDE_TOOLS": tools}).steps("batch-summary")
    assert options == ({"exclude_tools": ()} if tools else {})
    policies = SummarizeBatches(min_calls=1, exclude_tools=()), make_policy("batch-summary", min_calls=1, **options)
    left = [{call.name for one in th.fit(history, policy=policy) for call in one.calls} for policy in policies]
    assert left == [set(), set() if tools else {"AskUserQuestion", "submit", "finish"}]


def test_notes_name_excluded_calls() -> None:
    history = story("AskUserQuestion", "Read", "AskUserQuestion", "submit")
    assert SummarizeBatches().notes(history) == ("batch-summary excluded 3 calls: AskUserQuestion 2, submit 1",)
    assert SummarizeBatches().notes(story("Read")) == ()


def test_thinking_is_summarized_with_its_calls() -> None:
    history = story(*["Read"] * 12)
    thought = said(Thinking("let me see " * 50), *history[1].parts)
    history = History((history[0], thought, *history.messages[2:]))
    (fold,) = taken(history, SummarizeBatches())
    assert isinstance(fold, Summarize)
    assert len(fold.targets) == 25


def test_earlier_summaries_survive_a_growing_history() -> None:
    history = story(*["Read"] * 12)
    policy = SummarizeBatches()
    for _ in range(3):
        history = apply(history, build_plan(history, policy(history), SCALE))
        assert not taken(history, policy)
        more = [message for n in range(12) for message in chain(n, "Bash")]
        history = History((*history.messages, *more, *story(after=20).messages[1:]))
    summaries = [part for message in history for part in message.parts if isinstance(part, Summary)]
    assert len(summaries) == 3


# --- calls in text -----------------------------------------------------------------------------------------------


def xml(path: str, around: str = "", *, answer: str = LONG, extra: str = "") -> list[Message]:
    call = f"{around}<read_file>\n<path>{path}</path>\n</read_file>"
    result = [Text(f"[read_file for '{path}'] Result:"), Text(answer), *([Text(extra)] if extra else [])]
    return [said(Text(call)), Message("user", tuple(result), author="harness")]


def xml_story(*chains: list[Message]) -> History:
    return History((user("go"), *(message for one in chains for message in one), *story(after=20).messages[1:]))


def test_calls_in_text_are_summarized_with_their_results() -> None:
    environment = "<environment_details>\nnow\n</environment_details>"
    history = xml_story(*(xml(f"f{n}.py", extra=environment) for n in range(4)))
    (fold,) = taken(history, SummarizeBatches(min_calls=2))
    assert isinstance(fold, Summarize)
    assert len(fold.targets) == 12
    assert "4 calls summarized" in fold.text
    assert "read_file f3.py" in fold.text
    after = apply(history, build_plan(history, SummarizeBatches(min_calls=2)(history), SCALE))
    assert [message.text for message in after.messages[2:6]] == [environment] * 4
    assert not taken(after, SummarizeBatches(min_calls=2))
    assert not taken(history, SummarizeBatches(min_calls=2, xml=False))


def test_prose_around_a_call_stays() -> None:
    prose = "The rounding happens in two places, and the second one is wrong because it truncates.\n" * 4
    history = xml_story(xml("a.py", prose), xml("b.py", prose))
    edits = taken(history, SummarizeBatches(min_calls=2))
    assert [type(edit) for edit in edits] == [Replace, Replace]
    after = apply(history, build_plan(history, edits, SCALE))
    assert after[1] == history[1]
    assert after[2].parts[0] == history[2].parts[0]
    assert not taken(after, SummarizeBatches(min_calls=2))


@pytest.mark.parametrize(
    ("call", "answer", "name"),
    [
        ("<read_file><path>a</path></read_file>", "[read_file for 'a'] Result:\n\ntext", "read_file"),
        ("I look.\n<tool>\n<tool_name>grep</tool_name></tool>", "[grep] Result: none", "grep"),
        ("<tool><tool_name>bash</tool_name></tool>", "Tool 'bash' result:\nok", "bash"),
        ('<tool>{"tool_name": "bash", "arguments": {"command": "ls"}}</tool>', "Tool 'bash' result:\nok", "bash"),
        ("<read_file><path>a</path>", "[read_file for 'a'] Result:", None),
        ("say `<read_file>` and </read_file>", "[read_file for 'a'] Result:", None),
        ("<read_file><path>a</path></read_file>", "[list_files for 'a'] Result:", None),
        ("<read_file><path>a</path></read_file>", "thanks", None),
        ("<div>a</div>", "[div] Result:", None),
        (
            "<execute_command><command>a</command></execute_command>",
            "[execute_command for 'a'] Result:\nThe user denied this operation and provided the following feedback:",
            None,
        ),
    ],
)
def test_texts_are_parsed_as_calls(call: str, answer: str, name: str | None) -> None:
    history = History((user("go"), said(Text(call)), user(answer), said(Text("done"))))
    assert [one.name for one in find_xml_chains(history)] == ([name] if name else [])


DESCRIPTIONS = {
    "<tool><tool_name>run</tool_name><arguments><command>ls -l</command></arguments></tool>": "run ls -l",
    '<tool>{"tool_name": "bash", "arguments": {"command": "ls -l"}}</tool>': "bash ls -l",
    "<use_mcp_tool><tool_name>t</tool_name><arguments><a>b</a></arguments></use_mcp_tool>": 'use_mcp_tool t {"a":"b"}',
}


@pytest.mark.parametrize(("call", "description"), DESCRIPTIONS.items())
def test_a_call_in_text_is_described_by_its_arguments(call: str, description: str) -> None:
    name = description.partition(" ")[0]
    history = History((user("go"), said(Text(call)), user(f"[{name}] Result:\nok"), said(Text("done"))))
    assert [one.description for one in find_xml_chains(history)] == [description]


@pytest.mark.parametrize(
    "options",
    [
        {"older_than": -1},
        {"min_calls": "3"},
        {"exclude_tools": "Read"},
        {"keep_marked": None},
        {"max_chars": 1.0},
        {"min_tokens": True},
    ],
)
def test_invalid_options_are_rejected(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="batch-summary"):
        SummarizeBatches(**options)  # type: ignore[arg-type]
