"""Conversation structure: what is found in a conversation, and what stays when its older part has to go."""

from typing import Any

import pytest
from fitted_conversations import (
    Conversation,
    Row,
    fit,
    fit_and_plan,
    has,
    said,
    text_of,
    tools,
)

import thresher as th
from thresher.policies.exchanges import SummarizeExchanges
from thresher.store import InMemoryContentStore

DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")
CONTEXT = 'SYSTEM CONTEXT (JSON):\n{"branch": "main", "files": 12}'


def exchanges(count: int, with_tools: tuple[int, ...] = (), *, current: str = "And now?") -> Conversation:
    """Return completed exchanges, some of them with a tool call, and a new prompt."""
    talk = Conversation()
    for number in range(count):
        talk.human(f"request {number}")
        if number in with_tools:
            talk.uses("Bash", text_of(f"output{number}", 20), command=f"make step{number}")
        talk.agent(f"answer {number}: {text_of(f'word{number}')}")
    return talk.human(current) if current else talk


def keep_exchanges(talk: Conversation | list[Row], **options: Any) -> list[Row]:
    """Keep the latest exchanges, as the policy for whole exchanges chooses them."""
    return fit(talk, policy=[SummarizeExchanges(**options)])


def whole_exchanges(messages: list[Row], count: int) -> list[int]:
    return [n for n in range(count) if has(messages, f"answer {n}: {text_of(f'word{n}')}")]


# What is found.


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_chain_is_a_call_with_its_result(dialect: str) -> None:
    talk = Conversation().human("Begin.").uses("Read", "x = 1", file_path="a.py").uses("Bash", "ok", command="make")
    history = th.parse(th.emit(th.parse(talk.agent("Done.").messages), dialect), dialect)
    assert [(link.call.name, link.result.text if link.result else None) for link in history.links] == [
        ("Read", "x = 1"),
        ("Bash", "ok"),
    ]


def test_a_chain_is_active_until_the_model_has_answered_and_not_longer() -> None:
    talk = Conversation().human("Begin.").uses("Read", "x = 1", file_path="a.py")
    assert [chain.active for chain in th.parse(talk.messages).chains] == [True]
    talk.uses("Bash", "ok", command="make")
    assert [chain.active for chain in th.parse(talk.messages).chains] == [False, True]
    talk.agent("Done.")
    assert [chain.active for chain in th.parse(talk.messages).chains] == [False, False]


def test_parallel_calls_are_paired_by_id_in_any_order_of_results() -> None:
    talk = Conversation().human("Begin.")
    talk.uses_in_parallel(("Read", {}, "of Read"), ("Bash", {}, "of Bash"), ("Grep", {}, "of Grep"), order=(2, 0, 1))
    links = th.parse(talk.messages).links
    assert [link.result.text for link in links if link.result] == [f"of {link.call.name}" for link in links]


def test_the_current_message_is_the_persons_latest_prompt_and_no_result() -> None:
    history = th.parse(Conversation().human("First.").agent("Yes?").human("Second.").uses("Bash", "ok").messages)
    assert history.current is not None
    assert history.current.text == "Second."


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_messages_are_found(role: str) -> None:
    history = th.parse([{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hi."}], "openai-chat")
    assert history.shape.system_messages == (0,)


def test_declared_context_is_found_and_is_no_prompt() -> None:
    history = th.parse(Conversation().human("Go.").agent("Yes?").human(CONTEXT).messages)
    assert history.shape.injected_messages == (2,)
    assert history.current is not None
    assert history.current.text == "Go."


def test_an_exchange_reaches_from_a_prompt_to_the_next_with_all_its_steps() -> None:
    talk = Conversation().human("First.").uses("Read", "x").uses("Bash", "ok").agent("Done.").human("Second.")
    assert [tuple(exchange) for exchange in th.parse(talk.messages).exchanges] == [(0, 6), (6, 7)]


@pytest.mark.parametrize(
    ("dialect", "rows"),
    [
        ("openai-chat", [{"role": role, "content": "x"} for role in ("system", "developer", "user", "assistant")]),
        ("openai-chat", [{"role": "function", "name": "f", "content": "x"}, {"role": "critic", "content": "y"}]),
        ("gemini", [{"role": role, "parts": [{"text": "x"}]} for role in ("user", "model", "function")]),
        ("anthropic", [{"role": role, "content": "x"} for role in ("user", "assistant", "narrator")]),
    ],
)
def test_no_role_is_lost_not_even_an_unknown_one(dialect: str, rows: list[Row]) -> None:
    assert th.emit(th.parse(rows, dialect), dialect) == rows


# What always stays.


@pytest.mark.parametrize("policy", ["exchanges", "auto", "smart", "aggressive", "mask", "sliding-window"])
def test_the_essential_parts_stay_under_every_policy(policy: str) -> None:
    """System text, declared context, the current message, and the call and the latest result of the open chain."""
    talk = exchanges(6, with_tools=(1, 4), current=CONTEXT).human("Now run the tests.")
    talk.uses("Bash", "2 failed", command="make test")
    body = {"system": "Be brief.", "messages": talk.messages}
    left = th.fit(body, policy=policy, budget=th.count(body) // 4, store=InMemoryContentStore())
    assert left["system"] == "Be brief."
    assert has(left, CONTEXT)
    assert left["messages"][-3:] == talk.messages[-3:]


def test_the_user_can_name_the_first_words_of_more_context() -> None:
    talk = exchanges(3, current="").messages
    talk[2]["content"] = f"PROJECT FACTS:\n{text_of('fact', 5)}"
    options: dict[str, Any] = {"policy": [SummarizeExchanges(keep=1)]}
    assert not has(fit(talk, **options), text_of("fact", 5))
    assert has(fit(talk, context_marks=("PROJECT FACTS:",), **options), text_of("fact", 5))


@pytest.mark.parametrize("pressure", [0.1, 0.65, 0.9, 0.95])
@pytest.mark.parametrize("with_tools", [(), (0,), (0, 1, 2)])
def test_at_least_one_recent_exchange_stays(pressure: float, with_tools: tuple[int, ...]) -> None:
    left = keep_exchanges(exchanges(4, with_tools), pressure=pressure)
    assert 3 in whole_exchanges(left, 4)


def test_above_95_percent_pressure_its_question_and_answer_stay() -> None:
    talk = exchanges(4, with_tools=(3,))
    left = keep_exchanges(talk, pressure=0.97)
    assert "request 3" in said(left, "user")
    assert whole_exchanges(left, 4) == [3]
    assert not has(left, "output3 aaa")


def test_recent_exchanges_with_tool_calls_are_preferred() -> None:
    assert whole_exchanges(keep_exchanges(exchanges(4, with_tools=(0, 1))), 4) == [1, 3]


# How much stays.


@pytest.mark.parametrize(
    ("count", "pressure", "kept"),
    [
        (1, 0.7, [0]),
        (2, 0.7, [0, 1]),  # a short conversation keeps two
        (3, 0.7, [1, 2]),  # a medium one keeps two as well
        (5, 0.7, [3, 4]),
        (6, 0.7, [5]),  # a long one keeps one if the window is fuller than usual
        (12, 0.7, [11]),
        (6, 0.6, [4, 5]),  # and else two
        (12, 0.6, [10, 11]),
    ],
)
def test_the_number_of_exchanges_that_stay_depends_on_the_length(count: int, pressure: float, kept: list[int]) -> None:
    assert whole_exchanges(keep_exchanges(exchanges(count), pressure=pressure), count) == kept


@pytest.mark.parametrize(("pressure", "number"), [(0.3, 4), (0.6, 2), (0.7, 1), (0.9, 1)])
def test_the_fuller_the_window_the_fewer_exchanges_stay(pressure: float, number: int) -> None:
    assert len(whole_exchanges(keep_exchanges(exchanges(8), pressure=pressure), 8)) == number


def test_the_number_can_be_set() -> None:
    assert whole_exchanges(keep_exchanges(exchanges(8), keep=5), 8) == [4, 5, 6, 7]  # and the current one


def test_one_line_takes_the_place_of_each_removed_exchange() -> None:
    """They are not dropped silently: the line quotes the request and lists the calls, so the story stays readable."""
    left = keep_exchanges(exchanges(6, with_tools=(1,)), pressure=0.7)
    (bridge,) = (text for text in said(left, "user") + said(left, "assistant") if text.startswith("[thresher"))
    lines = [line for line in bridge.splitlines() if line.startswith("asked:")]
    assert [f'"request {n}"' in line for n, line in enumerate(lines, 1)] == [True] * 4
    assert [", 1 call" in line or "1 call" in line for line in lines] == [True, False, False, False]


def test_the_order_of_what_stays_never_changes() -> None:
    talk = exchanges(8, with_tools=(1, 2, 5))
    for pressure in (0.3, 0.6, 0.9):
        left = [text for text in said(keep_exchanges(talk, pressure=pressure), "assistant") if "answer" in text[:7]]
        assert left == [text for text in said(talk.messages, "assistant") if text in left]


def test_the_exchange_that_shares_words_with_the_current_request_stays_if_there_is_room() -> None:
    talk = Conversation()
    for topic in ("lexer", "kiosk", "walrus", "printer", "garden", "violin"):
        talk.human(f"Tell me about the {topic}.").agent(f"The {topic}: {text_of(topic, 20)}")
    left = keep_exchanges(talk.human("What did you say about the kiosk?"), pressure=0.3)
    assert has(left, text_of("kiosk", 20))
    assert not has(left, text_of("lexer", 20))


def test_the_read_before_an_edit_that_stays_stays_too() -> None:
    talk = Conversation().human("Look.").uses("Read", text_of("source"), file_path="a.py").agent("Seen.")
    talk.human("Look there.").uses("Read", text_of("other"), file_path="b.py").agent("Seen, too.")
    talk.human("Fix it.").uses("Edit", "done", file_path="a.py", old_string="x", new_string="y").agent("Fixed.")
    left = keep_exchanges(talk.human("Thanks."), keep=2)
    assert has(left, text_of("source"))
    assert not has(left, text_of("other"))


@pytest.mark.parametrize("is_open", [True, False])
def test_a_task_that_is_not_finished_keeps_its_request_and_its_plan(is_open: bool) -> None:
    talk = Conversation().human("Port the whole parser to Rust.")
    talk.uses("TodoWrite", "ok", todos=[{"content": "port the lexer", "status": "pending"}]).agent("I begin.")
    talk.chat(8, lines=10)
    if not is_open:
        talk.uses("TodoWrite", "ok", todos=[{"content": "port the lexer", "status": "completed"}])
    left = keep_exchanges(talk.human("Go on."), pressure=0.7)
    assert "Port the whole parser to Rust." in said(left, "user")
    assert has(left, "pending") is is_open
    assert not has(left, text_of("topic3", 10))


# Tool flows.


def test_a_finished_tool_flow_can_go() -> None:
    """A chain whose answer came long ago is not active, whatever tools it called."""
    left = keep_exchanges(exchanges(8, with_tools=tuple(range(8))), pressure=0.7)
    assert tools(left) == ["Bash"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("share", [0.8, 0.4, 0.15])
def test_no_call_loses_its_result_and_no_result_its_call(dialect: str, share: float) -> None:
    messages = th.emit(th.parse(exchanges(10, with_tools=(0, 2, 3, 7, 9)).messages), dialect)
    size = th.count(messages)
    left = th.fit(messages, budget=int(size * share), dialect=dialect, store=InMemoryContentStore())
    history = th.parse(left, dialect)
    assert th.count(left) < size
    assert th.check(left, dialect) == ()
    assert [chain.result is None for chain in history.chains] == [False] * len(history.chains)
    assert history.orphans == ()


@pytest.mark.parametrize("dialect", ["gemini", "openai-chat"])
def test_a_short_conversation_with_tools_is_never_cut_down_to_an_orphan(dialect: str) -> None:
    """Eleven messages of three turns keep their latest turns whole, whatever the agent calls the model's role."""
    talk = exchanges(3, with_tools=(0, 1, 2), current="")
    messages = th.emit(th.parse(talk.messages), dialect)
    left = th.parse(th.fit(messages, policy="exchanges", dialect=dialect, store=InMemoryContentStore()), dialect)
    assert [call.name for message in left for call in message.calls] == ["Bash"] * 2
    assert [message.text for message in left if message.author == "human"][-2:] == ["request 1", "request 2"]


def test_an_agents_loop_ends_although_its_history_is_fitted_at_every_step() -> None:
    """The agent reads files until it has seen all: it must recognize in each request what it has already done."""
    talk, window = Conversation().human("Read the ten files."), th.Window(budget=3_000, store=InMemoryContentStore())
    for step in range(30):
        request = window.fit(talk.messages, at=60 * step)
        assert th.count(request) <= 3_000
        seen = {name for name in (f"file{n}.py" for n in range(10)) if has(request, name)}
        if len(seen) == 10:
            break
        talk.uses("Read", text_of(f"file{step}", 25), file_path=f"file{len(seen)}.py")
    assert step == 10


def test_a_growing_conversation_does_not_grow_the_requests() -> None:
    talk, window, sizes = Conversation(), th.Window(budget=4_000, store=InMemoryContentStore()), []
    for turn in range(12):
        talk.human(f"request {turn}").uses("Bash", text_of(f"output{turn}", 25), command=f"make step{turn}")
        sizes.append(th.count(window.fit(talk.messages, at=60 * turn)))
        talk.agent(f"answer {turn}")
    assert th.count(talk.messages) > 8_000
    assert max(sizes) <= 4_000
    assert sizes[0] < sizes[1] < sizes[2]  # nothing goes before it must


def test_filtering_can_remove_nine_tenths_of_a_long_conversation() -> None:
    talk = exchanges(30, with_tools=tuple(range(0, 30, 2)))
    left = keep_exchanges(talk, pressure=0.9)
    assert th.count(left) < th.count(talk.messages) / 10
    assert left[-1] == talk.messages[-1]


# Edge cases.


@pytest.mark.parametrize(
    "talk",
    [
        Conversation(),
        Conversation().human("Hi."),
        Conversation().human("Hi.").agent("Hello."),
        Conversation().human("Begin.").uses("Bash", "ok").uses("Bash", "ok").uses("Bash", "ok"),  # only tools
        Conversation().human("Begin.").uses_in_parallel(("Bash", {}, "a"), ("Read", {}, "b")),
        Conversation().human("One.").human("Two.").human("Three."),
    ],
    ids=["empty", "one message", "no tools", "only tools", "parallel tools", "only prompts"],
)
@pytest.mark.parametrize("policy", ["exchanges", "smart", "auto"])
def test_small_and_unusual_conversations_stay_as_they_are(talk: Conversation, policy: str) -> None:
    assert fit(talk, policy=policy) == talk.messages


def test_a_conversation_that_begins_with_the_model_is_fitted() -> None:
    rows = [{"role": "assistant", "content": "How can I help?"}, *exchanges(8).messages]
    left = th.fit(rows, policy="exchanges", dialect="openai-chat", store=InMemoryContentStore())
    assert th.count(left) < th.count(rows)
    assert left[-1] == rows[-1]


def test_a_broken_conversation_is_repaired_and_the_repair_is_reported() -> None:
    talk = Conversation().human("Begin.").uses("Bash", "ok", command="make").agent("Done.").human("Go on.")
    broken = [row for row in talk.messages if not has(row, "tool_result")]
    left, plan = fit_and_plan(broken)
    assert has(left, "tool_result")
    assert [repair.rule for repair in plan.repairs] != []


def test_a_budget_that_cannot_be_met_names_the_smallest_size_and_what_it_contains() -> None:
    talk = Conversation().human(text_of("request", 100))
    with pytest.raises(th.BudgetError, match="the latest request") as caught:
        fit(talk, budget=100)
    assert fit(talk, budget=caught.value.smallest) == talk.messages


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3, 0.1])
def test_any_budget_is_met_and_nothing_is_removed_without_need(share: float) -> None:
    talk = exchanges(12, with_tools=(2, 5, 9, 11))
    size = th.count(talk.messages)
    left = fit(talk, budget=int(size * share))
    assert th.count(left) <= int(size * share)
    assert (left == talk.messages) is (share == 1.0)
