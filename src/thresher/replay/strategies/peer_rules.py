"""The rules by which others keep requests small, as they document or publish them, told again in few lines each.

Every rule is set to a budget, so that a curve can be drawn over it; each says what of it the budget stands for, and at
which one it is as it comes. All weights are those of the feed, and all words that stand in for others are ours: a rule
is what is tested here, not a wording. Where a rule leaves a result without its call, or cannot be told from what is
written about it, the reading is the one that costs it least, and is said.

What is rewritten stays so: with all of these rules the part of a history that is rewritten only grows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain

from thresher.model import Text, ToolCall, ToolResult
from thresher.model.tool_calls import describe_tool_call
from thresher.replay.conversation import ConversationRow, ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy

CLEARED = "[cleared to save context]"


def clear_tool_uses_strategy(budget: int, *, keep: int = 3, at_least: int = 0) -> Strategy:
    """Anthropic's `clear_tool_uses_20250919`: over 100,000 tokens (the budget) all results but the newest 3 go.

    The client sends its whole history each time, so that is what is weighed, on every request anew; with `at_least`
    nothing goes unless so many tokens would.
    """
    return Strategy("clear-tool-uses", _make_clearing_start(budget, keep, at_least, stays=False), budget)


def clear_tool_uses_sticky_strategy(budget: int, *, keep: int = 3, at_least: int | None = None) -> Strategy:
    """The kinder reading of it: what was cleared counts as cleared, and more goes when a fifth of the budget would."""
    least = budget // 5 if at_least is None else at_least
    return Strategy("clear-tool-uses-sticky", _make_clearing_start(budget, keep, least, stays=True), budget)


def swe_agent_strategy(budget: int, *, polling: int = 1) -> Strategy:
    """SWE-agent's `last_n_observations`: all results but the last n (5) are masked; n is a 3,000th of the budget.

    With `polling` the mask moves only every so many results.
    """
    keep = max(1, budget // 3000)

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        shown = _RewrittenRows(feed)
        masked = 0

        def ask(_: float | None) -> list[RequestPiece]:
            nonlocal masked
            shown.take_new_rows()
            # The task counts as an observation there, one that is never masked.
            wanted = (len(feed.result_rows) + 1) // polling * polling - keep - 1
            for number in feed.result_rows[masked : max(masked, wanted)]:
                lines = feed.rows[number].pieces[0].text.count("\n") + 1
                shown.rewrite_row(number, f"[old output: {lines} lines left out]")
            masked = max(masked, wanted)
            return shown.pieces()

        return ask

    return Strategy("swe-agent", start, budget)


def openhands_strategy(budget: int) -> Strategy:
    """OpenHands' observation masking: results before the last 100 events are masked; an event is 1,500 of the budget.

    An event is an action (a call, or words without one), a result, or a message.
    """
    window = max(1, budget // 1500)

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        shown = _RewrittenRows(feed)
        events: list[int] = []
        """The row that each event is of."""
        passed = 0

        def ask(_: float | None) -> list[RequestPiece]:
            nonlocal passed
            for number in shown.take_new_rows():
                calls = sum(isinstance(part, ToolCall) for part in feed.rows[number].parts)
                events.extend([number] * max(1, calls))
            for number in events[passed : max(passed, len(events) - window)]:
                if feed.rows[number].role == "tool":
                    shown.rewrite_row(number, "<MASKED>")
            passed = max(passed, len(events) - window)
            return shown.pieces()

        return ask

    return Strategy("openhands", start, budget)


def opencode_strategy(budget: int) -> Strategy:
    """opencode's prune: results before the newest 40,000 tokens of them are cleared, if that frees over 20,000.

    It runs when an exchange is over, so before the next prompt, and passes over the last two exchanges: in a run after
    one prompt it does nothing. Of the budget two thirds are protected, a third is the least that is freed: 60,000 is
    what it comes with.
    """

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        shown = _RewrittenRows(feed)
        answered = False

        def ask(_: float | None) -> list[RequestPiece]:
            nonlocal answered
            for number in shown.take_new_rows():
                if answered and _is_human_prompt(feed, number):
                    _prune(feed, shown, number, protect=budget * 2 / 3, least=budget / 3)
                    answered = False
                answered = answered or feed.rows[number].role == "assistant"
            return shown.pieces()

        return ask

    return Strategy("opencode", start, budget)


def cline_strategy(budget: int) -> Strategy:
    """Cline's truncation: over its limit (the budget; 160,000 of 200,000) older reads of a file go, then old messages.

    Of a file that was read several times only the newest read stays. If that saves less than 30 %, half of what stands
    between the first exchange and the end goes, or three quarters where there is twice as much as may be. What counts
    is the last request with its answer. Its edits hand back whole files and so count as reads; those recorded here do
    not. Results whose calls went go, too.
    """
    return Strategy("cline", lambda feed, _: _ClineConversation(feed, budget).build_request, budget)


class _RewrittenRows:
    """What is sent of each row that has come: its own pieces, or what stands in for them."""

    def __init__(self, feed: ReplayConversation) -> None:
        self._conversation = feed
        self._rows: list[tuple[RequestPiece, ...]] = []
        self.rewritten_rows: set[int] = set()
        self.tokens = sum(piece.tokens for piece in feed.tool_pieces)
        """What all of it weighs, and what it weighed before it was rewritten."""
        self.original_tokens = self.tokens

    def take_new_rows(self) -> range:
        """Take in what is new: the numbers of those rows."""
        new = range(len(self._rows), len(self._conversation.rows))
        for number in new:
            row = self._conversation.rows[number]
            self._rows.append(row.pieces)
            self.tokens += row.tokens
            self.original_tokens += row.tokens
        return new

    def rewrite_row(self, number: int, words: str) -> int:
        """Put other words in place of a row's: the tokens that this saves."""
        changed = self._conversation.rewrite_row(self._conversation.rows[number], words)
        saved = self.row_tokens(number) - sum(piece.tokens for piece in changed)
        self._rows[number] = changed
        self.rewritten_rows.add(number)
        self.tokens -= saved
        return saved

    def row_tokens(self, number: int) -> int:
        """What a row weighs as it is shown."""
        return sum(piece.tokens for piece in self._rows[number])

    def pieces(self, numbers: Iterable[int] | None = None) -> list[RequestPiece]:
        """All of it, or some rows, behind the definitions of tools."""
        rows = self._rows if numbers is None else [self._rows[number] for number in numbers]
        return [*self._conversation.tool_pieces, *chain.from_iterable(rows)]


def _make_clearing_start(
    trigger: int, keep: int, at_least: int, *, stays: bool
) -> Callable[[ReplayConversation, ResidencyChecker], RequestBuilder]:
    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        shown = _RewrittenRows(feed)
        cleared = 0

        def gain(numbers: Iterable[int]) -> int:
            rows = [feed.rows[number] for number in numbers]
            return sum(row.tokens - feed.rewrite_row(row, CLEARED)[0].tokens for row in rows)

        def ask(_: float | None) -> list[RequestPiece]:
            nonlocal cleared
            shown.take_new_rows()
            old = feed.result_rows[cleared : max(cleared, len(feed.result_rows) - keep)]
            saved = 0 if stays else shown.original_tokens - shown.tokens
            if shown.tokens + saved > trigger and old and gain(old) + saved >= max(1, at_least):
                for number in old:
                    shown.rewrite_row(number, CLEARED)
                cleared += len(old)
            return shown.pieces()

        return ask

    return start


def _is_human_prompt(feed: ReplayConversation, number: int) -> bool:
    """Whether a row is what a person said."""
    message = feed.messages[feed.rows[number].first_message]
    return feed.rows[number].role == "user" and message.role == "user" and message.author != "harness"


def _prune(feed: ReplayConversation, shown: _RewrittenRows, stop: int, *, protect: float, least: float) -> None:
    """Clear the results before a row that lie deeper than what is protected, up to the newest that was cleared."""
    found: list[int] = []
    prompts = tokens = 0
    for number in range(stop - 1, -1, -1):
        row = feed.rows[number]
        prompts += _is_human_prompt(feed, number)
        if prompts < 2 or row.role != "tool" or _tool_name(feed, row) == "skill":
            continue
        if number in shown.rewritten_rows:
            break
        tokens += row.tokens
        if tokens > protect:
            found.append(number)
    if sum(feed.rows[number].tokens for number in found) > least:
        for number in found:
            shown.rewrite_row(number, CLEARED)


def _tool_name(feed: ReplayConversation, row: ConversationRow) -> str:
    result = row.parts[0]
    return feed.tool_names.get(result.call_id, "").lower() if isinstance(result, ToolResult) else ""


class _ClineConversation:
    """One conversation under Cline's rule; a message of it is all that one side says in a row."""

    MIN_SAVED_SHARE = 0.3

    def __init__(self, feed: ReplayConversation, limit: int) -> None:
        self._conversation = feed
        self._limit = limit
        self._rewritten = _RewrittenRows(feed)
        self._system_rows: list[int] = []
        self._messages: list[list[int]] = []
        """The rows of each message."""
        self._first_kept = 2
        """The first message that stays, behind the first two."""
        self._path_by_call: dict[str, str] = {}
        """The file that a call reads, by the call's id."""
        self._is_notice_written = False

    def build_request(self, _: float | None) -> list[RequestPiece]:
        for number in self._rewritten.take_new_rows():
            self._add_row(number)
        tokens = self._last_request_tokens()
        if tokens >= self._limit and self._remove_duplicate_reads() < self.MIN_SAVED_SHARE:
            self._truncate(quarter=tokens / 2 > self._limit)
        return self._rewritten.pieces(self._rows_to_send())

    def _add_row(self, number: int) -> None:
        row = self._conversation.rows[number]
        if row.role == "system":
            self._system_rows.append(number)
            return
        for part in row.parts:
            if isinstance(part, ToolCall) and (use := describe_tool_call(part)).category == "file_read" and use.path:
                self._path_by_call[part.id] = use.path
        if not self._messages or self._is_answer(self._messages[-1]) != (row.role == "assistant"):
            self._messages.append([])
        self._messages[-1].append(number)

    def _is_answer(self, message: list[int]) -> bool:
        return self._conversation.rows[message[0]].role == "assistant"

    def _last_request_tokens(self) -> int:
        """What the last request weighed, and what was answered."""
        if len(self._messages) < 2:
            return 0
        rows = self._rows_to_send()
        while rows and self._conversation.rows[rows[-1]].role != "assistant":
            rows.pop()
        return sum(piece.tokens for piece in self._rewritten.pieces(rows))

    def _rows_to_send(self) -> list[int]:
        """The rows that are sent: of what stays behind a gap, no results in front."""
        first, rest = self._messages[:2], self._messages[self._first_kept :]
        if self._first_kept > 2 and rest:
            rest = [[number for number in rest[0] if self._conversation.rows[number].role != "tool"], *rest[1:]]
        return [*self._system_rows, *chain.from_iterable(first), *chain.from_iterable(rest)]

    def _remove_duplicate_reads(self) -> float:
        """Take out all reads of a file but the newest; the share that this saves."""
        before = sum(piece.tokens for piece in self._rewritten.pieces(self._rows_to_send()))
        reads: dict[str, list[int]] = defaultdict(list)
        for number in chain.from_iterable(self._messages[self._first_kept :]):
            result = self._conversation.rows[number].parts[0]
            if isinstance(result, ToolResult) and number not in self._rewritten.rewritten_rows:
                reads[self._path_by_call.get(result.call_id, "")].append(number)
        reads.pop("", None)
        older = [number for numbers in reads.values() for number in numbers[:-1]]
        saved = sum(
            self._rewritten.rewrite_row(number, "[left out: this file was read again later]") for number in older
        )
        return saved / before if before else 0.0

    def _truncate(self, *, quarter: bool) -> None:
        there = len(self._messages) - self._first_kept
        stop = self._first_kept + (there * 3 // 4 // 2 * 2 if quarter else there // 4 * 2)
        if stop > self._first_kept and not self._is_answer(self._messages[stop - 1]):
            stop -= 1
        if stop > self._first_kept:
            self._first_kept = stop
            self._write_notice()

    def _write_notice(self) -> None:
        """Say so in the first answer, in place of its words."""
        for number in self._messages[1] if not self._is_notice_written else ():
            if any(isinstance(part, Text) for part in self._conversation.rows[number].parts):
                self._rewritten.rewrite_row(number, "[some messages after this one were left out]")
        self._is_notice_written = True
