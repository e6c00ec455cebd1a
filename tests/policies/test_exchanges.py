"""The policy `exchanges`: the latest exchanges and open tasks stay, older ones are summarized."""

import json

import pytest

from thresher.edits import Drop, Edit, Summarize, apply, build_plan, is_legal
from thresher.errors import OptionError
from thresher.model import History, Message, Part, Summary, Text, ToolCall, ToolResult
from thresher.policies.exchanges import SummarizeExchanges
from thresher.tokens import default_token_weights

SCALE = default_token_weights()
LONG = "a line of output that nobody reads twice\n" * 30


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def said(*parts: Part) -> Message:
    return Message("assistant", parts, author="model")


def chain(id_: str, name: str, result: str = LONG, **arguments: object) -> list[Message]:
    call = ToolCall(id_, name, json.dumps(arguments))
    return [said(call), Message("tool", (ToolResult(id_, (Text(result),)),), author="tool")]


def exchange(number: int, *, tools: bool = True) -> list[Message]:
    work = chain(f"c{number}", "Bash", f"{number} {LONG}", command=f"make step{number}") if tools else []
    return [user(f"request {number}"), *work, said(Text(f"answer {number}" + " in many words" * 40))]


def talk(*tools: bool) -> History:
    system = Message("system", (Text("be brief"),), author="harness")
    return History((system, *(message for n, has in enumerate(tools, 1) for message in exchange(n, tools=has))))


def fitted(history: History, policy: SummarizeExchanges) -> History:
    return apply(history, build_plan(history, policy(history), SCALE))


def whole(history: History, policy: SummarizeExchanges) -> list[int]:
    """Return the numbers of the exchanges that stay unchanged."""
    after = set(fitted(history, policy).messages)
    numbers = range(1, len(history.exchanges) + 1)
    return [n for n in numbers if all(message in after for message in exchange(n, tools=_has_tools(history, n)))]


def _has_tools(history: History, number: int) -> bool:
    return any(call.id == f"c{number}" for message in history for call in message.calls)


@pytest.mark.parametrize(
    ("tools", "options", "kept"),
    [
        ((True, True), {}, [1, 2]),
        ((True, True, True), {}, [2, 3]),
        ((True, True, False, True), {}, [2, 4]),  # exchanges with tools come first
        ((True, False, False), {}, [1, 3]),
        ((False,) * 4, {}, [3, 4]),
        ((True,) * 8, {}, [7, 8]),
        ((True,) * 8, {"keep": 3}, [6, 7, 8]),
        ((True,) * 8, {"keep": 1}, [8]),
        ((True,) * 8, {"keep": 0}, [8]),  # the current exchange always stays
        ((True,) * 8, {"keep": 50}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ((True,) * 5, {"pressure": 0.7}, [4, 5]),
        ((True,) * 6, {"pressure": 0.7}, [6]),  # a long conversation
        ((True,) * 8, {"pressure": 0.6}, [7, 8]),
        ((True,) * 8, {"pressure": 0.9}, [8]),
        ((True,) * 8, {"pressure": 1.0}, [8]),
        ((True, True), {"pressure": 0.9}, [2]),
    ],
)
def test_the_number_of_kept_exchanges(tools: tuple[bool, ...], options: dict[str, float], kept: list[int]) -> None:
    assert whole(talk(*tools), SummarizeExchanges(**options)) == kept  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tools", "pressure", "kept"),
    [
        ((True,), 0.65, [1]),
        ((False, False), 0.65, [1, 2]),
        ((False, True), 0.8, [1, 2]),
        ((True,) * 5, 0.8, [4, 5]),
        ((True,) * 6, 0.65, [5, 6]),
        ((True,) * 6, 0.8, [6]),
    ],
)
@pytest.mark.parametrize("is_working", [False, True])
def test_two_completed_exchanges_stay_before_a_prompt_and_one_of_a_long_conversation(
    tools: tuple[bool, ...], pressure: float, kept: list[int], is_working: bool
) -> None:
    work = chain("now", "Bash", command="ls") if is_working else []
    history = History((*talk(*tools).messages, user("and now?"), *work))
    policy = SummarizeExchanges(pressure=pressure)
    after = fitted(history, policy)
    numbers = range(1, len(tools) + 1)
    whole = [n for n in numbers if all(message in after.messages for message in exchange(n, tools=tools[n - 1]))]
    assert whole == kept
    assert not build_plan(after, policy(after), SCALE).edits


def test_important_exchanges_stay_if_there_is_room() -> None:
    past = [
        user("round the invoice totals"),
        *chain("i", "Bash", f"invoice totals {LONG}"),
        said(Text("Totals are round.")),
    ]
    history = talk(*[True] * 7)
    history = History(
        (*history.messages[:5], *past, *history.messages[5:], user("are invoice totals round everywhere?"))
    )
    kept = [call.id for message in fitted(history, SummarizeExchanges(pressure=0.2)) for call in message.calls]
    assert len(kept) == 4
    assert "i" in kept


def test_pressure_comes_from_the_budget() -> None:
    history = talk(*[True] * 8)
    tokens = SCALE.history(history)
    sizes = [len(fitted(history, SummarizeExchanges(budget=int(tokens / full)))) for full in (0.3, 0.6, 0.9)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_a_bridge_quotes_the_request_and_lists_the_actions() -> None:
    edited = chain("e", "Edit", "ok", file_path="src/a.py", old_string="x", new_string="y" * 400)
    messages = [user("please fix the rounding"), *chain("b", "Bash", command="ls"), *edited, said(Text("It is fixed."))]
    history = History((*exchange(1), *messages, *exchange(3), *exchange(4)))
    (fold,) = build_plan(history, SummarizeExchanges()(history), SCALE).edits
    assert isinstance(fold, Summarize)
    first, *lines = fold.text.splitlines()
    assert first.endswith("2 exchanges removed, turns 1-5]")
    assert lines[1] == 'asked: "please fix the rounding" → 2 calls, edited a.py; ended: ok; said: "It is fixed."'


def test_the_exchanges_per_bridge_are_limited() -> None:
    history = talk(*[True] * 8)
    labels = [
        edit.label
        for edit in SummarizeExchanges(keep=1, max_exchanges_per_summary=3)(history)
        if isinstance(edit, Summarize)
    ]
    assert [label.split(" removed")[0] for label in labels] == ["3 exchanges", "3 exchanges", "1 exchange"]


def test_kept_parts_are_byte_identical_and_in_order() -> None:
    history = talk(*[True] * 6)
    after = fitted(history, SummarizeExchanges())
    assert after.messages[:2] == history.messages[:2]
    assert after.messages[-8:] == history.messages[-8:]
    assert [type(part) for part in after[2].parts] == [Summary]
    assert is_legal(after)


@pytest.mark.parametrize("options", [{}, {"keep": 1}, {"pressure": 0.2}, {"pressure": 0.9}, {"pressure": 1.0}])
@pytest.mark.parametrize("bridges", [True, False])
@pytest.mark.parametrize("tools", [(True,) * 7, (True, False) * 4, (False,) * 5])
def test_a_second_run_changes_nothing(options: dict[str, float], bridges: bool, tools: tuple[bool, ...]) -> None:
    policy = SummarizeExchanges(summaries=bridges, **options)  # type: ignore[arg-type]
    after = fitted(talk(*tools), policy)
    assert not build_plan(after, policy(after), SCALE).edits


def test_bridges_survive_a_growing_history() -> None:
    history = talk(*[True] * 4)
    for number in range(5, 9):
        history = fitted(history, SummarizeExchanges())
        history = History((*history.messages, *exchange(number)))
    text = "\n".join(part.text for message in history for part in message.parts if isinstance(part, Summary))
    assert [n for n in range(1, 9) if f"request {n}" in text] == [2, 3, 4, 5]
    assert "request 1" in history[1].text


def test_without_summaries_exchanges_are_dropped() -> None:
    history = talk(*[True] * 4)
    edits: list[Edit] = list(SummarizeExchanges(summaries=False)(history))
    assert {type(edit) for edit in edits} == {Drop}
    after = fitted(history, SummarizeExchanges(summaries=False))
    assert [message.text for message in after if message.role == "user"] == ["request 1", "request 3", "request 4"]


def test_an_unanswered_prompt_keeps_one_more_exchange() -> None:
    history = History((*talk(*[True] * 6).messages, user("and now?")))
    assert whole(history, SummarizeExchanges(pressure=0.9)) == [6]
    assert whole(history, SummarizeExchanges(pressure=1.0)) == []


def redis_or_postgres(*after: Message) -> History:
    question = [user("Which database?"), said(Text("A Redis or B Postgres? " + "Both are installed. " * 30))]
    return History((*talk(*[True] * 5).messages, *question, *after))


@pytest.mark.parametrize("options", [{}, {"keep": 1}, {"pressure": 0.3}, {"pressure": 0.9}, {"pressure": 0.95}])
def test_the_newest_exchange_stays_without_tools(options: dict[str, float]) -> None:
    history = redis_or_postgres(user("B please"))
    after = fitted(history, SummarizeExchanges(**options))  # type: ignore[arg-type]
    assert after.messages[-3:] == history.messages[-3:]


@pytest.mark.parametrize("unanswered", [1, 2])
def test_in_an_emergency_the_newest_request_and_its_answer_stay(unanswered: int) -> None:
    work = chain("last", "Bash", f"last {LONG}", command="make")
    newest = [user("compare them"), *work, said(Text("A Redis or B Postgres? " + "Both would do. " * 30))]
    history = History((*talk(*[True] * 5).messages, *newest, *[user("B please")] * unanswered))
    after = fitted(history, SummarizeExchanges(pressure=1.0))
    assert {newest[0], newest[-1]} <= set(after.messages)
    assert not [call for message in after for call in message.calls]
    assert not build_plan(after, SummarizeExchanges(pressure=1.0)(after), SCALE).edits


def test_the_read_before_an_edit_stays() -> None:
    read = chain("r", "Read", file_path="/w/a.py")
    older = chain("r0", "Read", file_path="/w/a.py")
    other = chain("o", "Read", file_path="/w/b.py")
    edit = chain("e", "Edit", "ok", file_path="/w/./a.py", old_string="1", new_string="2")
    past = [user("look"), *older, *read, *other, said(Text("seen"))]
    history = History((*exchange(1), *past, *exchange(3), user("change it"), *edit, said(Text("done"))))
    assert {call.id for m in fitted(history, SummarizeExchanges()) for call in m.calls} == {"r", "c3", "e"}
    assert {call.id for m in fitted(history, SummarizeExchanges(pressure=1.0)) for call in m.calls} == {"e"}


def test_the_script_that_a_command_runs_stays() -> None:
    write = chain("w", "Write", "ok", file_path="/w/tools/probe.py", content="print(1)\n" * 100)
    run = chain("b", "Bash", command="python tools/probe.py --all")
    past = [user("write it"), *write, *chain("x", "Bash", command="ls"), said(Text("written"))]
    history = History((*exchange(1), *past, *exchange(3), user("run it"), *run, said(Text("ran"))))
    assert {call.id for m in fitted(history, SummarizeExchanges()) for call in m.calls} == {"w", "c3", "b"}


def test_the_latest_plan_stays() -> None:
    plans = [chain(f"p{n}", "TodoWrite", "ok", todos=[{"content": f"step {n}", "status": "pending"}]) for n in range(2)]
    past = [user("plan"), *plans[0], *plans[1], *chain("x", "Bash"), *chain("s", "submit"), said(Text("planned"))]
    history = History((*exchange(1), *past, *exchange(3), *exchange(4)))
    assert {call.id for m in fitted(history, SummarizeExchanges(pressure=1.0)) for call in m.calls} == {"p1", "c4"}


# --- one long exchange -------------------------------------------------------------------------------------------


def endless(turns: int, *, prompt: bool = True) -> History:
    messages = [user("fix the parser in src/parser.py")] if prompt else []
    for number in range(turns):
        messages += chain(f"c{number}", "Bash", f"{number} {LONG}", command=f"make step{number}")
    return History(tuple(messages))


@pytest.mark.parametrize(("pressure", "stay"), [(0.2, 20), (None, 10), (0.9, 5), (1.0, 3)])
@pytest.mark.parametrize("prompt", [True, False])
def test_older_turns_of_a_long_exchange_are_summarized(pressure: float | None, stay: int, prompt: bool) -> None:
    history = endless(60, prompt=prompt)
    policy = SummarizeExchanges(pressure=pressure)
    after = fitted(history, policy)
    calls = [call.id for message in after for call in message.calls]
    assert calls[-stay:] == [f"c{n}" for n in range(60 - stay, 60)]
    assert len(calls) == stay + 5
    assert not build_plan(after, policy(after), SCALE).edits


def test_a_short_exchange_is_unchanged() -> None:
    assert fitted(endless(12), SummarizeExchanges()) == endless(12)
    assert list(SummarizeExchanges()(History())) == []


def test_an_unanswered_question_stays() -> None:
    asks = said(Text("Should I also change the lexer?"), ToolCall("q", "Bash", '{"command":"ls"}'))
    answer = Message("tool", (ToolResult("q", (Text(LONG),)),), author="tool")
    history = endless(30)
    history = History((*history.messages[:5], asks, answer, *history.messages[5:]))
    after = fitted(history, SummarizeExchanges(pressure=1.0))
    assert any("change the lexer?" in message.text for message in after if not message.text.startswith("[thresher"))


def test_the_most_important_call_stays() -> None:
    history = endless(40)
    read = chain("r", "Read", "class Parser: parse src/parser.py", file_path="src/parser.py")
    history = History((*history.messages[:7], *read, *history.messages[7:]))
    assert "r" in {call.id for message in fitted(history, SummarizeExchanges()) for call in message.calls}


@pytest.mark.parametrize("options", [{"keep": -1}, {"pressure": 2}, {"pressure": True}, {"budget": 0}, {"budget": 1.5}])
def test_invalid_options_are_rejected(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="exchanges"):
        SummarizeExchanges(**options)  # type: ignore[arg-type]
