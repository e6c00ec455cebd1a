"""Replay of one recording: the clock, and the cost of a refetch."""

from msgspec import structs
from small_traces import agent, call, did, trace, user

from thresher.replay import (
    Rates,
    Recording,
    ReplayConversation,
    RequestPiece,
    ResidencyChecker,
    Strategy,
    build_recording,
    replay_requests,
)
from thresher.replay.conversation import RequestBuilder
from thresher.replay.cost import REFETCH_CALL_TOKENS
from thresher.store import InMemoryContentStore

LINE = "value_7 = compute(first_7, second_7)  # as it always was"


def recording(*times: float | None) -> Recording:
    """Build a recording that reads a file, does something else, then edits a line of the file."""
    edit = agent(call("Edit", "3", file_path="/a.py", old_string=LINE, new_string=""))
    steps = (did("1", "Read", LINE, file_path="/a.py"), did("2", "Bash", "fine", command="make"))
    found = build_recording(trace(user("go"), *steps, edit).history)
    calls = tuple(one._replace(time=at) for one, at in zip(found.trace.calls, times, strict=True))
    return structs.replace(found, trace=structs.replace(found.trace, calls=calls))


def test_unrecorded_time_counts_as_no_time() -> None:
    asked: list[float | None] = []

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        def build_request(at: float | None) -> list[RequestPiece]:
            asked.append(at)
            return conversation.all_pieces()

        return build_request

    def costs(*times: float | None) -> list[float]:
        one, store = recording(*times), InMemoryContentStore()
        strategy = Strategy("full", start)
        return [
            told.cost
            for told in replay_requests(
                one, strategy, Rates(minimum=1), ResidencyChecker(one.trace, store=store), store
            )
        ]

    assert costs(None, 5.0, None) == costs(0.0, 5.0, 5.0)
    assert asked[:3] == [0.0, 5.0, 5.0]
    assert costs(0.0, None, 1_000.0) == costs(0.0, 0.0, 1_000.0) != costs(0.0, 0.0, 0.0)


def test_refetch_costs_the_context_the_text_and_the_call() -> None:
    one, store = recording(0.0, 1.0, 2.0), InMemoryContentStore()
    rates = Rates(minimum=1)
    fed: list[ReplayConversation] = []

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        fed.append(conversation)
        return lambda _: conversation.pieces_since(0)[:1]  # only the first request

    *_, last = replay_requests(one, Strategy("amnesia", start), rates, ResidencyChecker(one.trace, store=store), store)
    fetched = sum(row.tokens for row in fed[0].rows[-2:])
    assert last.refetch_calls == 1
    assert last.refetch_cost == rates.read * last.tokens + rates.write * fetched + rates.output * REFETCH_CALL_TOKENS
