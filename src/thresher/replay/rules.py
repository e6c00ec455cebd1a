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
from thresher.model.tools import tool_use
from thresher.replay.feed import Ask, Feed, Piece, Row
from thresher.replay.outcome import Referee
from thresher.replay.run import Way

CLEARED = "[cleared to save context]"


def clear_tool_uses(budget: int, *, keep: int = 3, at_least: int = 0) -> Way:
    """Anthropic's `clear_tool_uses_20250919`: over 100,000 tokens (the budget) all results but the newest 3 go.

    The client sends its whole history each time, so that is what is weighed, on every request anew; with `at_least`
    nothing goes unless so many tokens would.
    """
    return Way("clear-tool-uses", _clearing(budget, keep, at_least, stays=False), budget)


def clear_tool_uses_sticky(budget: int, *, keep: int = 3, at_least: int | None = None) -> Way:
    """The kinder reading of it: what was cleared counts as cleared, and more goes when a fifth of the budget would."""
    least = budget // 5 if at_least is None else at_least
    return Way("clear-tool-uses-sticky", _clearing(budget, keep, least, stays=True), budget)


def swe_agent(budget: int, *, polling: int = 1) -> Way:
    """SWE-agent's `last_n_observations`: all results but the last n (5) are masked; n is a 3,000th of the budget.

    With `polling` the mask moves only every so many results.
    """
    keep = max(1, budget // 3000)

    def start(feed: Feed, _: Referee) -> Ask:
        shown = _Shown(feed)
        masked = 0

        def ask(_: float | None) -> list[Piece]:
            nonlocal masked
            shown.grow()
            # The task counts as an observation there, one that is never masked.
            wanted = (len(feed.results) + 1) // polling * polling - keep - 1
            for number in feed.results[masked : max(masked, wanted)]:
                lines = feed.rows[number].pieces[0].text.count("\n") + 1
                shown.rewrite(number, f"[old output: {lines} lines left out]")
            masked = max(masked, wanted)
            return shown.pieces()

        return ask

    return Way("swe-agent", start, budget)


def openhands(budget: int) -> Way:
    """OpenHands' observation masking: results before the last 100 events are masked; an event is 1,500 of the budget.

    An event is an action (a call, or words without one), a result, or a message.
    """
    window = max(1, budget // 1500)

    def start(feed: Feed, _: Referee) -> Ask:
        shown = _Shown(feed)
        events: list[int] = []
        """The row that each event is of."""
        passed = 0

        def ask(_: float | None) -> list[Piece]:
            nonlocal passed
            for number in shown.grow():
                calls = sum(isinstance(part, ToolCall) for part in feed.rows[number].parts)
                events.extend([number] * max(1, calls))
            for number in events[passed : max(passed, len(events) - window)]:
                if feed.rows[number].role == "tool":
                    shown.rewrite(number, "<MASKED>")
            passed = max(passed, len(events) - window)
            return shown.pieces()

        return ask

    return Way("openhands", start, budget)


def opencode(budget: int) -> Way:
    """opencode's prune: results before the newest 40,000 tokens of them are cleared, if that frees over 20,000.

    It runs when an exchange is over, so before the next prompt, and passes over the last two exchanges: in a run after
    one prompt it does nothing. Of the budget two thirds are protected, a third is the least that is freed: 60,000 is
    what it comes with.
    """

    def start(feed: Feed, _: Referee) -> Ask:
        shown = _Shown(feed)
        answered = False

        def ask(_: float | None) -> list[Piece]:
            nonlocal answered
            for number in shown.grow():
                if answered and _is_prompt(feed, number):
                    _prune(feed, shown, number, protect=budget * 2 / 3, least=budget / 3)
                    answered = False
                answered = answered or feed.rows[number].role == "assistant"
            return shown.pieces()

        return ask

    return Way("opencode", start, budget)


def cline(budget: int) -> Way:
    """Cline's truncation: over its limit (the budget; 160,000 of 200,000) older reads of a file go, then old messages.

    Of a file that was read several times only the newest read stays. If that saves less than 30 %, half of what stands
    between the first exchange and the end goes, or three quarters where there is twice as much as may be. What counts
    is the last request with its answer. Its edits hand back whole files and so count as reads; those recorded here do
    not. Results whose calls went go, too.
    """
    return Way("cline", lambda feed, _: _Cline(feed, budget).ask, budget)


class _Shown:
    """What is sent of each row that has come: its own pieces, or what stands in for them."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rows: list[tuple[Piece, ...]] = []
        self.rewritten: set[int] = set()
        self.tokens = sum(piece.tokens for piece in feed.tools)
        """What all of it weighs, and what it weighed before it was rewritten."""
        self.before = self.tokens

    def grow(self) -> range:
        """Take in what is new: the numbers of those rows."""
        new = range(len(self._rows), len(self._feed.rows))
        for number in new:
            row = self._feed.rows[number]
            self._rows.append(row.pieces)
            self.tokens += row.tokens
            self.before += row.tokens
        return new

    def rewrite(self, number: int, words: str) -> int:
        """Put other words in place of a row's: the tokens that this saves."""
        changed = self._feed.rewritten(self._feed.rows[number], words)
        saved = self.weight(number) - sum(piece.tokens for piece in changed)
        self._rows[number] = changed
        self.rewritten.add(number)
        self.tokens -= saved
        return saved

    def weight(self, number: int) -> int:
        """What a row weighs as it is shown."""
        return sum(piece.tokens for piece in self._rows[number])

    def pieces(self, numbers: Iterable[int] | None = None) -> list[Piece]:
        """All of it, or some rows, behind the definitions of tools."""
        rows = self._rows if numbers is None else [self._rows[number] for number in numbers]
        return [*self._feed.tools, *chain.from_iterable(rows)]


def _clearing(trigger: int, keep: int, at_least: int, *, stays: bool) -> Callable[[Feed, Referee], Ask]:
    def start(feed: Feed, _: Referee) -> Ask:
        shown = _Shown(feed)
        cleared = 0

        def gain(numbers: Iterable[int]) -> int:
            rows = [feed.rows[number] for number in numbers]
            return sum(row.tokens - feed.rewritten(row, CLEARED)[0].tokens for row in rows)

        def ask(_: float | None) -> list[Piece]:
            nonlocal cleared
            shown.grow()
            old = feed.results[cleared : max(cleared, len(feed.results) - keep)]
            saved = 0 if stays else shown.before - shown.tokens
            if shown.tokens + saved > trigger and old and gain(old) + saved >= max(1, at_least):
                for number in old:
                    shown.rewrite(number, CLEARED)
                cleared += len(old)
            return shown.pieces()

        return ask

    return start


def _is_prompt(feed: Feed, number: int) -> bool:
    """Whether a row is what a person said."""
    message = feed.messages[feed.rows[number].message]
    return feed.rows[number].role == "user" and message.role == "user" and message.author != "harness"


def _prune(feed: Feed, shown: _Shown, stop: int, *, protect: float, least: float) -> None:
    """Clear the results before a row that lie deeper than what is protected, up to the newest that was cleared."""
    found: list[int] = []
    prompts = tokens = 0
    for number in range(stop - 1, -1, -1):
        row = feed.rows[number]
        prompts += _is_prompt(feed, number)
        if prompts < 2 or row.role != "tool" or _tool_name(feed, row) == "skill":
            continue
        if number in shown.rewritten:
            break
        tokens += row.tokens
        if tokens > protect:
            found.append(number)
    if sum(feed.rows[number].tokens for number in found) > least:
        for number in found:
            shown.rewrite(number, CLEARED)


def _tool_name(feed: Feed, row: Row) -> str:
    result = row.parts[0]
    return feed.names.get(result.call_id, "").lower() if isinstance(result, ToolResult) else ""


class _Cline:
    """One conversation under Cline's rule; a message of it is all that one side says in a row."""

    ENOUGH = 0.3

    def __init__(self, feed: Feed, limit: int) -> None:
        self._feed = feed
        self._limit = limit
        self._shown = _Shown(feed)
        self._system: list[int] = []
        self._messages: list[list[int]] = []
        """The rows of each message."""
        self._rest = 2
        """The first message that stays, behind the first two."""
        self._paths: dict[str, str] = {}
        """The file that a call reads, by the call's id."""
        self._noted = False

    def ask(self, _: float | None) -> list[Piece]:
        for number in self._shown.grow():
            self._take(number)
        tokens = self._last_request()
        if tokens >= self._limit and self._without_duplicates() < self.ENOUGH:
            self._truncate(quarter=tokens / 2 > self._limit)
        return self._shown.pieces(self._sent())

    def _take(self, number: int) -> None:
        row = self._feed.rows[number]
        if row.role == "system":
            self._system.append(number)
            return
        for part in row.parts:
            if isinstance(part, ToolCall) and (use := tool_use(part)).category == "file_read" and use.path:
                self._paths[part.id] = use.path
        if not self._messages or self._is_answer(self._messages[-1]) != (row.role == "assistant"):
            self._messages.append([])
        self._messages[-1].append(number)

    def _is_answer(self, message: list[int]) -> bool:
        return self._feed.rows[message[0]].role == "assistant"

    def _last_request(self) -> int:
        """What the last request weighed, and what was answered."""
        if len(self._messages) < 2:
            return 0
        rows = self._sent()
        while rows and self._feed.rows[rows[-1]].role != "assistant":
            rows.pop()
        return sum(piece.tokens for piece in self._shown.pieces(rows))

    def _sent(self) -> list[int]:
        """The rows that are sent: of what stays behind a gap, no results in front."""
        first, rest = self._messages[:2], self._messages[self._rest :]
        if self._rest > 2 and rest:
            rest = [[number for number in rest[0] if self._feed.rows[number].role != "tool"], *rest[1:]]
        return [*self._system, *chain.from_iterable(first), *chain.from_iterable(rest)]

    def _without_duplicates(self) -> float:
        """Take out all reads of a file but the newest; the share that this saves."""
        before = sum(piece.tokens for piece in self._shown.pieces(self._sent()))
        reads: dict[str, list[int]] = defaultdict(list)
        for number in chain.from_iterable(self._messages[self._rest :]):
            result = self._feed.rows[number].parts[0]
            if isinstance(result, ToolResult) and number not in self._shown.rewritten:
                reads[self._paths.get(result.call_id, "")].append(number)
        reads.pop("", None)
        older = [number for numbers in reads.values() for number in numbers[:-1]]
        saved = sum(self._shown.rewrite(number, "[left out: this file was read again later]") for number in older)
        return saved / before if before else 0.0

    def _truncate(self, *, quarter: bool) -> None:
        there = len(self._messages) - self._rest
        stop = self._rest + (there * 3 // 4 // 2 * 2 if quarter else there // 4 * 2)
        if stop > self._rest and not self._is_answer(self._messages[stop - 1]):
            stop -= 1
        if stop > self._rest:
            self._rest = stop
            self._note()

    def _note(self) -> None:
        """Say so in the first answer, in place of its words."""
        for number in self._messages[1] if not self._noted else ():
            if any(isinstance(part, Text) for part in self._feed.rows[number].parts):
                self._shown.rewrite(number, "[some messages after this one were left out]")
        self._noted = True
