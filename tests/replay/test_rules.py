"""The rules of other tools on small conversations: what each removes, and when."""

import sys
from collections.abc import Callable

import pytest
from small_traces import agent, call, did, result, user

from thresher.errors import OptionError
from thresher.model import History, Message
from thresher.replay import Rates, ResidencyChecker
from thresher.replay.conversation import ReplayConversation
from thresher.replay.recording import Recording, build_recording
from thresher.replay.simulate import Strategy, replay_recording
from thresher.replay.strategies.peer_libraries import (
    find_missing_libraries,
    langchain_clear_strategy,
    langchain_trim_strategy,
    to_chat_message,
)
from thresher.replay.strategies.peer_rules import (
    CLEARED,
    clear_tool_uses_sticky_strategy,
    clear_tool_uses_strategy,
    cline_strategy,
    opencode_strategy,
    openhands_strategy,
    swe_agent_strategy,
)
from thresher.store import InMemoryContentStore

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa "
MAKERS: list[Callable[[int], Strategy]] = [
    clear_tool_uses_strategy,
    clear_tool_uses_sticky_strategy,
    swe_agent_strategy,
    openhands_strategy,
    cline_strategy,
    opencode_strategy,
]


def recording(*groups: list[Message]) -> Recording:
    return build_recording(History(tuple(message for group in groups for message in group)), "small")


def steps(count: int, *, words: int = 40, first: int = 1) -> list[Message]:
    """Build calls with results of about `words` words; a result starts with its number."""
    return [
        message
        for number in range(first, first + count)
        for message in did(str(number), "Bash", f"out{number} {WORDS * (words // 10)}", command=f"make {number}")
    ]


def run(of: Recording, strategy: Strategy) -> list[list[str]]:
    """Return the texts of every request, without refetching."""
    conversation = ReplayConversation(of, InMemoryContentStore())
    build_request = strategy.start(conversation, ResidencyChecker(of.trace))
    sent = []
    for one in of.trace.calls:
        conversation.advance(one.stop)
        sent.append([piece.text for piece in build_request(one.time)])
    return sent


def whole(of: Recording) -> list[list[str]]:
    return run(of, Strategy("full", lambda conversation, _: lambda _: conversation.all_pieces()))


def outputs(texts: list[str]) -> list[str]:
    """Return the first word of each result that is unchanged."""
    return [text.split()[0] for text in texts if text.startswith("out")]


# All rules


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
class TestAll:
    def test_a_wide_budget_sends_all(self, make: Callable[[int], Strategy]) -> None:
        of = recording(user("go"), steps(6), agent("done"), user("more"), steps(6, first=7), agent("done"))
        assert run(of, make(1_000_000)) == whole(of)

    def test_a_narrow_one_sends_less_and_keeps_the_task_and_the_newest(self, make: Callable[[int], Strategy]) -> None:
        exchanges = [
            one for n in range(6) for one in (*user(f"task {n}"), *steps(3, first=3 * n + 1), *agent(f"done {n}"))
        ]
        of = recording(exchanges)
        last, before = run(of, make(240))[-1], whole(of)[-1]
        assert sum(map(len, last)) < sum(map(len, before))
        assert last[0] == "task 0"
        assert outputs(last)[-1] == "out18"

    def test_a_replay_fetches_and_goes_on(self, make: Callable[[int], Strategy]) -> None:
        used = did("u", "Edit", "ok", file_path="a.py", old_string=f"out1 {WORDS}", new_string="x")
        of = recording(
            user("go"),
            steps(9),
            agent("done"),
            user("b"),
            agent("b"),
            user("c"),
            agent("c"),
            user("d"),
            used,
            agent("e"),
        )
        told = replay_recording(of, make(600), Rates())
        assert told.calls == len(of.trace.calls)
        assert told.refetch_calls == told.calls_with_references - told.served

    def test_equal_settings_send_equal_requests(self, make: Callable[[int], Strategy]) -> None:
        of = recording(user("go"), steps(9), agent("done"))
        strategy = make(600)
        assert run(of, strategy) == run(of, strategy)


def test_empty_conversation_sends_nothing() -> None:
    of = recording(user("go"))
    assert [run(of, make(600)) for make in MAKERS] == [[] for _ in MAKERS]


# Anthropic


def test_clear_tool_uses_keeps_three_results_above_its_trigger() -> None:
    of = recording(user("go"), steps(8), agent("done"))
    sent = run(of, clear_tool_uses_strategy(400))
    assert outputs(sent[3]) == ["out1", "out2", "out3"]
    assert outputs(sent[-1]) == ["out6", "out7", "out8"]
    assert sent[-1].count(CLEARED) == 5


def test_clear_tool_uses_measures_the_full_history_and_sticky_the_rest() -> None:
    of = recording(user("go"), steps(12), agent("done"))
    anew, sticky = run(of, clear_tool_uses_strategy(450)), run(of, clear_tool_uses_sticky_strategy(450))
    over = next(n for n, sent in enumerate(anew) if CLEARED in sent)
    assert [len(outputs(sent)) for sent in anew[over:]] == [3] * (len(anew) - over)
    assert {len(outputs(sent)) for sent in sticky[over:]} > {3, 4}


def test_clear_tool_uses_waits_until_enough_is_removed() -> None:
    of = recording(user("go"), steps(8), agent("done"))
    assert run(of, clear_tool_uses_strategy(400, at_least=100_000)) == whole(of)
    assert len(outputs(run(of, clear_tool_uses_strategy(400, at_least=1))[-1])) == 3


# SWE-agent and OpenHands


def test_swe_agent_masks_all_but_the_last_n() -> None:
    of = recording(user("go"), steps(8), agent("done"))
    sent = run(of, swe_agent_strategy(6000))
    assert [outputs(texts) for texts in sent[2:5]] == [["out1", "out2"], ["out2", "out3"], ["out3", "out4"]]
    assert "[old output: 1 lines left out]" in sent[-1]


def test_swe_agent_masks_at_polling_steps() -> None:
    of = recording(user("go"), steps(12), agent("done"))
    kept = [len(outputs(texts)) for texts in run(of, swe_agent_strategy(6000, polling=5))]
    assert kept == [0, 1, 2, 3, 2, 3, 4, 5, 6, 2, 3, 4, 5]


def test_openhands_counts_calls_results_and_messages() -> None:
    of = recording(user("go"), steps(4), agent("done"))
    # The last request has nine events: the task, and four calls with their results.
    assert outputs(run(of, openhands_strategy(4 * 1500))[-1]) == ["out3", "out4"]
    assert outputs(run(of, openhands_strategy(5 * 1500))[-1]) == ["out2", "out3", "out4"]
    assert outputs(run(of, openhands_strategy(7 * 1500))[-1]) == ["out1", "out2", "out3", "out4"]


def test_openhands_counts_each_parallel_call() -> None:
    calls = agent(*(call("Bash", str(n), command=f"make {n}") for n in (1, 2, 3)))
    of = recording(user("go"), calls, *(result(f"out{n} {WORDS}", str(n)) for n in (1, 2, 3)), agent("done"))
    assert outputs(run(of, openhands_strategy(3 * 1500))[-1]) == ["out1", "out2", "out3"]
    assert outputs(run(of, openhands_strategy(2 * 1500))[-1]) == ["out2", "out3"]


# opencode


def test_opencode_clears_before_the_last_two_exchanges_at_a_prompt() -> None:
    groups = [[*user(f"task {n}"), *steps(4, first=4 * n + 1), *agent(f"done {n}")] for n in range(4)]
    of = recording(*groups)
    sent = run(of, opencode_strategy(150))
    at = [n for n, texts in enumerate(sent) if CLEARED in texts]
    # At the third prompt two exchanges are over, and both are protected; at the fourth the first is not.
    assert sent[at[0]][-1] == "task 3"
    assert at == list(range(at[0], len(sent)))
    assert "out5" in outputs(sent[-1])
    assert "out1" not in outputs(sent[-1])


def test_opencode_does_nothing_after_a_single_prompt() -> None:
    of = recording(user("go"), steps(20), agent("done"))
    assert run(of, opencode_strategy(150)) == whole(of)


def test_opencode_waits_until_enough_is_removed_and_keeps_skills() -> None:
    rest = [one for n in range(3) for one in (*user(f"t{n}"), *agent(f"d{n}"))]
    spared = did("s", "skill", f"outskill {WORDS * 40}", topic="x")
    of = recording(user("go"), spared, agent("done"), rest)
    assert run(of, opencode_strategy(60)) == whole(of)
    few = recording(user("go"), steps(1, words=10), steps(1, words=40, first=2), agent("done"), rest)
    conversation = ReplayConversation(few, InMemoryContentStore())
    conversation.advance(len(few.trace.history))
    small, large = (conversation.rows[number].tokens for number in conversation.result_rows)
    assert small < large / 2
    assert run(few, opencode_strategy(large * 3 // 2 + 1)) == whole(few)  # all but the small one is protected
    assert CLEARED in run(few, opencode_strategy(large))[-1]


# Cline


def read(id: str, path: str, text: str) -> list[Message]:
    return did(id, "Read", text, file_path=path)


def test_cline_drops_older_reads_and_nothing_else_if_that_is_enough() -> None:
    long = WORDS * 20
    of = recording(
        user("go"),
        steps(1, words=10),
        read("a", "src/a.py", f"outA1 {long}"),
        read("b", "src/b.py", f"outB1 {long}"),
        read("c", "src/a.py", f"outA2 {long}"),
        read("d", "src/a.py", f"outA3 {long}"),
        agent("next"),
        user("more"),
        agent("done"),
    )
    weight = ReplayConversation(of, InMemoryContentStore())
    weight.advance(of.trace.calls[-1].stop)
    last = run(of, cline_strategy(sum(piece.tokens for piece in weight.all_pieces()) - 20))[-1]
    assert outputs(last) == ["out1", "outB1", "outA3"]
    assert "more" in last


def test_cline_drops_half_after_the_first_exchange_without_repeated_reads() -> None:
    of = recording(user("go"), steps(12), agent("done"))
    sent = run(of, cline_strategy(600))
    cut = next(n for n, texts in enumerate(sent) if "go" in texts and "out1" not in outputs(texts) and n)
    kept = outputs(sent[cut])
    # A result is kept only with its call.
    assert f"Bash\nmake {kept[0][3:]}" in sent[cut]
    assert sent[cut][:2] == ["go", "Bash\nmake 1"]
    assert kept == [f"out{n}" for n in range(int(kept[0][3:]), cut + 1)]
    assert 0.3 < len(kept) / cut < 0.6


def test_cline_drops_three_quarters_at_twice_the_limit() -> None:
    of = recording(user("go"), steps(6, words=10), steps(1, words=2000, first=7), agent("x"), user("y"), agent("z"))
    assert outputs(run(of, cline_strategy(900))[-1]) == ["out7"]
    assert outputs(run(of, cline_strategy(2000))[-1]) == ["out5", "out6", "out7"]


def test_cline_writes_a_notice_into_the_first_answer() -> None:
    of = recording(user("go"), agent("I begin", call("Bash", "0", command="ls")), result("out0", "0"), steps(12))
    sent = run(of, cline_strategy(500))
    assert "I begin" in sent[1]
    assert "I begin" not in sent[-1]
    assert any("left out" in text for text in sent[-1][:2])


# Libraries


def test_row_converts_to_a_chat_message() -> None:
    of = recording(user("go"), agent("so", call("Bash", "1", command="ls")), result("a b", "1"))
    conversation = ReplayConversation(of, InMemoryContentStore())
    conversation.advance(len(of.trace.history))
    said, called, told = map(to_chat_message, conversation.rows)
    assert said == {"role": "user", "content": "go"}
    assert called["content"] == "so"
    assert called["tool_calls"][0]["function"] == {"name": "Bash", "arguments": '{"command": "ls"}'}
    assert told == {"role": "tool", "content": "a b", "tool_call_id": called["tool_calls"][0]["id"]}


def test_missing_langchain_is_an_error_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain", None)
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    assert find_missing_libraries() == ["langchain", "langchain-core"]
    with pytest.raises(OptionError, match="pip install langchain"):
        langchain_clear_strategy(1000)
    with pytest.raises(OptionError, match="pip install langchain-core"):
        langchain_trim_strategy(1000)


@pytest.mark.skipif(bool(find_missing_libraries()), reason="needs langchain")
class TestLangChain:
    def test_it_clears_as_the_rule_does(self) -> None:
        of = recording(user("go"), steps(8), agent("done"))
        sent = run(of, langchain_clear_strategy(400))
        assert [outputs(texts) for texts in sent] == [
            outputs(texts) for texts in run(of, clear_tool_uses_strategy(400))
        ]

    def test_it_trims_to_a_prompt_or_to_nothing(self) -> None:
        of = recording(user("go"), steps(8), agent("done"), user("more"), agent("done"))
        sent = run(of, langchain_trim_strategy(300))
        assert sent[1] == whole(of)[1]
        assert sent[8] == []
        assert sent[-1] == ["more"]
