"""The published rules of other tools, reimplemented in a few lines each.

Every rule scales with a budget, so it can be measured at several budgets. Each docstring says which setting the budget
scales, with the default of that setting. Token counts come from the conversation. Replacement texts are ours, because
the comparison is about rules and not about wording. Where a rule leaves a result without its call, or the documentation
of a rule is ambiguous, the docstring says so and the code uses the interpretation that is most favorable to the rule.

Rewritten rows stay rewritten: under all these rules the rewritten part of a history only grows.
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
    """Anthropic's `clear_tool_uses_20250919`: above 100,000 tokens (the budget) clear all results except the newest 3.

    The client sends its full history each time, so every request is measured without earlier clearing. With `at_least`,
    results are cleared only if that removes at least this many tokens.
    """
    return _clearing_strategy("clear-tool-uses", budget, keep, at_least, is_sticky=False)


def clear_tool_uses_sticky_strategy(budget: int, *, keep: int = 3, at_least: int | None = None) -> Strategy:
    """A more favorable reading of the same rule: cleared results stay cleared.

    More results are cleared only if that removes at least 20 % of the budget.
    """
    least = budget // 5 if at_least is None else at_least
    return _clearing_strategy("clear-tool-uses-sticky", budget, keep, least, is_sticky=True)


def swe_agent_strategy(budget: int, *, polling: int = 1) -> Strategy:
    """SWE-agent's `last_n_observations`: mask all results except the last n.

    SWE-agent's n is 5; here, n is the budget divided by 3,000. The mask moves after every `polling` results.
    """
    keep = max(1, budget // 3000)

    def start(conversation: ReplayConversation, rows: "_RewrittenRows") -> Callable[[range], None]:
        masked = 0

        def update(_: range) -> None:
            nonlocal masked
            # SWE-agent counts the task as an observation that is never masked.
            target = (len(conversation.result_rows) + 1) // polling * polling - keep - 1
            for number in conversation.result_rows[masked : max(masked, target)]:
                lines = conversation.rows[number].pieces[0].text.count("\n") + 1
                rows.rewrite_row(number, f"[old output: {lines} lines left out]")
            masked = max(masked, target)

        return update

    return _rewriting_strategy("swe-agent", budget, start)


def openhands_strategy(budget: int) -> Strategy:
    """OpenHands' observation masking: mask all results before the last events.

    OpenHands keeps the last 100 events; this strategy keeps one event for every 1,500 tokens of the budget. An event is
    an action (a call, or text without one), a result, or a message.
    """
    window = max(1, budget // 1500)

    def start(conversation: ReplayConversation, rows: "_RewrittenRows") -> Callable[[range], None]:
        events: list[int] = []
        """The row of each event."""
        passed = 0

        def update(new_rows: range) -> None:
            nonlocal passed
            for number in new_rows:
                calls = sum(isinstance(part, ToolCall) for part in conversation.rows[number].parts)
                events.extend([number] * max(1, calls))
            for number in events[passed : max(passed, len(events) - window)]:
                if conversation.rows[number].role == "tool":
                    rows.rewrite_row(number, "<MASKED>")
            passed = max(passed, len(events) - window)

        return update

    return _rewriting_strategy("openhands", budget, start)


def opencode_strategy(budget: int) -> Strategy:
    """opencode's prune: clear results before the newest 40,000 tokens of results, if that frees more than 20,000.

    It runs after an exchange, so before the next prompt, and skips the last two exchanges. In a session with a single
    prompt it does nothing. Two thirds of the budget are protected and one third is the minimum to free, so a budget of
    60,000 gives the defaults.
    """

    def start(conversation: ReplayConversation, rows: "_RewrittenRows") -> Callable[[range], None]:
        is_answered = False

        def update(new_rows: range) -> None:
            nonlocal is_answered
            for number in new_rows:
                if is_answered and _is_human_prompt(conversation, number):
                    _prune(conversation, rows, number, protect=budget * 2 / 3, least=budget / 3)
                    is_answered = False
                is_answered = is_answered or conversation.rows[number].role == "assistant"

        return update

    return _rewriting_strategy("opencode", budget, start)


def cline_strategy(budget: int) -> Strategy:
    """Cline's truncation: above 160,000 tokens (the budget) drop older reads of a file, then old messages.

    Only the newest read of each file is kept. If that saves less than 30 %, half of the messages after the first
    exchange are dropped, or three quarters if the request is more than twice the limit. The rule measures the
    last request and its response. In Cline, edits return whole files and count as reads. Recorded edits do not return
    whole files, so they do not count here. Results whose calls are dropped are dropped too.
    """
    return Strategy("cline", lambda conversation, _: _ClineConversation(conversation, budget).build_request, budget)


class _RewrittenRows:
    """The rows of a conversation, each either unchanged or rewritten."""

    def __init__(self, conversation: ReplayConversation) -> None:
        self._conversation = conversation
        self._rows: list[tuple[RequestPiece, ...]] = []
        self.rewritten_rows: set[int] = set()
        self.tokens = sum(piece.tokens for piece in conversation.tool_pieces)
        """Token count of the tool definitions and all rows, with their rewrites."""
        self.original_tokens = self.tokens
        """Token count of the tool definitions and all rows, without any rewrite."""

    def take_new_rows(self) -> range:
        """Add the new rows and return their numbers."""
        new = range(len(self._rows), len(self._conversation.rows))
        for number in new:
            row = self._conversation.rows[number]
            self._rows.append(row.pieces)
            self.tokens += row.tokens
            self.original_tokens += row.tokens
        return new

    def rewrite_row(self, number: int, words: str) -> int:
        """Replace the text of a row and return the number of tokens saved."""
        changed = self._conversation.rewrite_row(self._conversation.rows[number], words)
        saved = self.row_tokens(number) - sum(piece.tokens for piece in changed)
        self._rows[number] = changed
        self.rewritten_rows.add(number)
        self.tokens -= saved
        return saved

    def row_tokens(self, number: int) -> int:
        """Token count of a row, after its rewrite if it was rewritten."""
        return sum(piece.tokens for piece in self._rows[number])

    def pieces(self, numbers: Iterable[int] | None = None) -> list[RequestPiece]:
        """Return the tool definitions and the pieces of the numbered rows, by default of all rows."""
        rows = self._rows if numbers is None else [self._rows[number] for number in numbers]
        return [*self._conversation.tool_pieces, *chain.from_iterable(rows)]


def _rewriting_strategy(
    name: str, budget: int, start: Callable[[ReplayConversation, _RewrittenRows], Callable[[range], None]]
) -> Strategy:
    """Return a strategy that rewrites rows. `start` returns a function that gets the new rows of each call."""

    def start_conversation(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        rows = _RewrittenRows(conversation)
        update = start(conversation, rows)

        def build_request(_: float | None) -> list[RequestPiece]:
            update(rows.take_new_rows())
            return rows.pieces()

        return build_request

    return Strategy(name, start_conversation, budget)


def _clearing_strategy(name: str, budget: int, keep: int, at_least: int, *, is_sticky: bool) -> Strategy:
    def start(conversation: ReplayConversation, rows: _RewrittenRows) -> Callable[[range], None]:
        cleared = 0

        def tokens_removed(numbers: Iterable[int]) -> int:
            old = [conversation.rows[number] for number in numbers]
            return sum(row.tokens - conversation.rewrite_row(row, CLEARED)[0].tokens for row in old)

        def update(_: range) -> None:
            nonlocal cleared
            old = conversation.result_rows[cleared : max(cleared, len(conversation.result_rows) - keep)]
            saved = 0 if is_sticky else rows.original_tokens - rows.tokens
            if rows.tokens + saved > budget and old and tokens_removed(old) + saved >= max(1, at_least):
                for number in old:
                    rows.rewrite_row(number, CLEARED)
                cleared += len(old)

        return update

    return _rewriting_strategy(name, budget, start)


def _is_human_prompt(conversation: ReplayConversation, number: int) -> bool:
    """Report whether a row is a prompt that a person wrote."""
    message = conversation.messages[conversation.rows[number].first_message]
    is_user = conversation.rows[number].role == "user" and message.role == "user"
    return is_user and message.author not in ("harness", "context")


def _prune(conversation: ReplayConversation, shown: _RewrittenRows, stop: int, *, protect: float, least: float) -> None:
    """Clear unprotected results before a row, back to the newest result that is already cleared."""
    deep_results: list[int] = []
    prompts = tokens = 0
    for number in range(stop - 1, -1, -1):
        row = conversation.rows[number]
        prompts += _is_human_prompt(conversation, number)
        if prompts < 2 or row.role != "tool" or _tool_name(conversation, row) == "skill":
            continue
        if number in shown.rewritten_rows:
            break
        tokens += row.tokens
        if tokens > protect:
            deep_results.append(number)
    if sum(conversation.rows[number].tokens for number in deep_results) > least:
        for number in deep_results:
            shown.rewrite_row(number, CLEARED)


def _tool_name(conversation: ReplayConversation, row: ConversationRow) -> str:
    result = row.parts[0]
    return conversation.tool_names.get(result.call_id, "").lower() if isinstance(result, ToolResult) else ""


class _ClineConversation:
    """One conversation under Cline's rule. Consecutive rows of the same role form a message."""

    MIN_SAVED_SHARE = 0.3

    def __init__(self, conversation: ReplayConversation, limit: int) -> None:
        self._conversation = conversation
        self._limit = limit
        self._rewritten = _RewrittenRows(conversation)
        self._system_rows: list[int] = []
        self._messages: list[list[int]] = []
        """The rows of each message."""
        self._first_kept = 2
        """The first kept message after the first two."""
        self._path_by_call: dict[str, str] = {}
        """The file that each call reads, by call id."""
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
        """Token count of the last request and its response."""
        if len(self._messages) < 2:
            return 0
        rows = self._rows_to_send()
        while rows and self._conversation.rows[rows[-1]].role != "assistant":
            rows.pop()
        return sum(piece.tokens for piece in self._rewritten.pieces(rows))

    def _rows_to_send(self) -> list[int]:
        """Return the rows to send. After a gap, leading results are dropped because their calls are missing."""
        first, rest = self._messages[:2], self._messages[self._first_kept :]
        if self._first_kept > 2 and rest:
            rest = [[number for number in rest[0] if self._conversation.rows[number].role != "tool"], *rest[1:]]
        return [*self._system_rows, *chain.from_iterable(first), *chain.from_iterable(rest)]

    def _remove_duplicate_reads(self) -> float:
        """Replace all reads of a file except the newest and return the share of tokens saved."""
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
        """Replace the text of the first response by a notice."""
        for number in self._messages[1] if not self._is_notice_written else ():
            if any(isinstance(part, Text) for part in self._conversation.rows[number].parts):
                self._rewritten.rewrite_row(number, "[some messages after this one were left out]")
        self._is_notice_written = True
