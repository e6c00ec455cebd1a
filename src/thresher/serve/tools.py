"""What the server offers, without a protocol: plain functions from a few words to a text within a limit.

Each call first reads what is new on disk, so that a conversation that goes on is known up to its last turn. One
thread reads at a time; where that takes long (the first time, all sessions are read), others answer from what is known.
Sessions that were read stay at hand until they change: a parent that starts ten sub-agents is read once.

Secrets never come out here, whoever asks.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from thresher.budget import fitted, plan, restore
from thresher.budget.presets import PRESETS
from thresher.edits.standin import ids_in
from thresher.errors import BudgetError, OptionError, ThresherError
from thresher.formats import emit, format_names
from thresher.memory import Memory
from thresher.memory.redacting import Cleaned, without_secrets
from thresher.memory.secrets import redact
from thresher.memory.values import Facts
from thresher.model import History, Session
from thresher.model.jsontext import dump
from thresher.render.brief import (
    FENCE_TOKENS,
    answer_entries,
    fenced,
    limited,
    message_entries,
    numbered,
    recalled_entries,
    shortened,
    weight,
    whole_around,
    whole_entries,
)
from thresher.render.memory import short_ids
from thresher.render.plain import plain_text
from thresher.render.words import amount, plural, shorten
from thresher.serve.caller import Caller, Hints, UnwrittenError, find_caller
from thresher.serve.context import Known, known_at, when_started
from thresher.store import Store, default_store
from thresher.store.sqlite import store_in

WAIT, PAUSE = 2.0, 0.1
"""Seconds that a conversation is waited for which somebody names, and between two looks."""
PATIENCE = 2.0
"""Seconds that a call waits for another one's reading."""
AT_HAND = 8
"""Sessions that are kept in memory."""
LEAST, MOST = 200, 200_000
"""Tokens that an answer may be asked to have."""
LONGEST_MESSAGE = 6_000
"""Characters of one message that are shown among others."""
SEED_PRESETS = {"none": "development", "light": "thinking", "heavy": "minimal"}
"""Names that the server before this one had."""
TRIES = 4
LOOKED_OVER = 4_000
NO_HINTS = Hints()


class Tools:
    """All that a client can ask for."""

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        sources: Sequence[str | os.PathLike[str]] = (),
        discover: bool = True,
        session: str = "",
        project: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`session` is the conversation that all calls come from, where that is known; `project` its folder."""
        self._make: Callable[[], Memory] = lambda: Memory(home=home, sources=sources, discover=discover)
        self._session, self._project = session, project or str(Path.cwd())
        self._environment = os.environ if environment is None else environment
        self._writer = self._make()
        self._reading = threading.Lock()
        self._own = threading.local()
        self._store = store_in(Path(home)) if home is not None else default_store()
        self._looking = threading.Lock()
        self._at_hand: OrderedDict[int, tuple[object, Cleaned]] = OrderedDict()

    def _memory(self) -> Memory:
        """What is remembered, up to now as far as that can be had soon."""
        if self._reading.acquire(timeout=PATIENCE):
            try:
                self._writer.sync(wait=False)
            finally:
                self._reading.release()
        return self._known()

    def _known(self) -> Memory:
        """What was remembered when this call began; each thread has its own connection to it."""
        if not hasattr(self._own, "memory"):
            self._own.memory = self._make()
        memory: Memory = self._own.memory
        return memory

    def _read(self, memory: Memory, facts: Facts) -> Session:
        """A session without its secrets, kept at hand until it changes."""
        state = (facts.messages, facts.ended, tuple(memory.store.kept(facts.file).items()))
        with self._looking:  # what several threads want is read by the first
            held = self._at_hand.pop(facts.key, None)
            if held is None or held[0] != state:
                kept = memory.store.session(facts.key)
                clean = without_secrets(kept, held[1] if held else None)
                if held is None:
                    _look_over(clean, self._store)
                held = (state, Cleaned(kept, clean))
            self._at_hand[facts.key] = held
            while len(self._at_hand) > AT_HAND:
                self._at_hand.popitem(last=False)
        return held[1].clean

    def _caller(self, session: str = "", project: str = "", hints: Hints = NO_HINTS) -> Caller:
        """The conversation that asks, as far as it is known."""
        return find_caller(
            self._known(),
            session=session or self._session,
            project=project or self._project,
            hints=hints,
            environment=self._environment,
            now=datetime.now(UTC),
        )

    def _awaited_caller(self, session: str = "", project: str = "", hints: Hints = NO_HINTS) -> Caller:
        """The same; one that is named is waited for a little, since agents write late."""
        until = time.monotonic() + WAIT
        while True:
            self._memory()
            try:
                return self._caller(session, project, hints)
            except UnwrittenError:
                if time.monotonic() > until:
                    raise
            time.sleep(PAUSE)

    # --- where a sub-agent comes from ----------------------------------------------------------------------------

    def get_context(  # noqa: PLR0913 - as many as a client may say
        self,
        *,
        session: str = "",
        agent: str = "",
        upto: int | None = None,
        preset: str = "smart",
        max_tokens: int = 8_000,
        form: str = "text",
        project: str = "",
        hints: Hints = NO_HINTS,
    ) -> str:
        """What the conversation knew that the caller comes from."""
        tokens = _checked(max_tokens)
        caller = self._awaited_caller(session, project, hints)
        memory = self._known()
        facts = _above(memory, caller.facts)
        whole = self._read(memory, facts)
        if facts is not caller.facts and not agent and upto is None:
            known = when_started(whole, memory.store.session(caller.facts.key))
        else:
            known = known_at(whole, agent=agent, call=hints.call, upto=upto)
        name = short_ids([facts.id])[0]
        head = f"session {name} ({facts.agent}), {known.when}; chosen because {caller.why}"
        room = tokens - FENCE_TOKENS - weight(head) - 40
        told = _told(known, preset, room, form, self._store)
        title = f"title: {shorten(facts.title, 120)}\n" if facts.title else ""
        back = "; restore(part_id) gives one back" if ids_in(told.text) else ""
        left_out = f"{plural(told.edits, 'part')} left out or shortened{back}" if told.edits else "whole"
        body = f"{head}\n{title}{amount(told.before)} tokens, {left_out}\n\n{told.text}"
        return fenced(body, [facts.id])

    # --- past sessions -------------------------------------------------------------------------------------------

    def search_sessions(
        self, query: str, *, page: int = 1, max_tokens: int = 2_000, hints: Hints = NO_HINTS, **conditions: Any
    ) -> str:
        """Past sessions that answer a query; `conditions` are those of `Memory.search`, and empty ones are none."""
        tokens = _checked(max_tokens)
        memory = self._memory()
        asked = {name: value for name, value in conditions.items() if value}
        current = self._asking(hints)
        answer = memory.search(query, sync=False, messages=3, page=page, current=current, **asked)
        if not answer.sessions:
            more = "other words, fewer conditions, or recall() in a session you know"
            return f"No session matches {shorten(query, 200)!r}. Try {more}."
        kept, missing = whole_entries(answer_entries(answer), tokens - FENCE_TOKENS - 60)
        first = answer.sessions[0]
        name = short_ids([first.id])[0]
        rest = f"; {missing} more did not fit into {tokens} tokens" if missing else ""
        following = f"; page={page + 1} has more" if answer.more else ""
        at = f", around={first.hits[0].at}" if first.hits else ""
        body = limited("\n".join(kept), tokens - FENCE_TOKENS - 60, "ask with a higher max_tokens")
        return "\n".join(
            [
                f"{plural(answer.found, 'session')} found{rest}{following}",
                fenced(body, [one.id for one in answer.sessions[: len(kept)]]),
                *answer.notes,
                f'next: read_session("{_plain(name)}"{at}) or recall("{_plain(name)}", question)',
            ]
        )

    def _asking(self, hints: Hints) -> str:
        """The conversation that asks, as far as it is known at once: it is no answer, and a guess does no harm here."""
        for said in dict.fromkeys((hints, NO_HINTS)):
            try:
                return self._caller(hints=said).facts.id
            except ThresherError:
                continue
        return ""

    def read_session(
        self, session: str, *, around: int | None = None, context: int = 3, turns: str = "", max_tokens: int = 4_000
    ) -> str:
        """Messages of one session: around one, of some turns, or from the start."""
        tokens = _checked(max_tokens)
        memory = self._memory()
        facts = memory.facts(session)
        whole = self._read(memory, facts)
        messages = numbered([*whole.segments, *(branch.history for branch in whole.branches)])
        start, stop = _span(whole, len(messages), around, context, turns)
        room = tokens - FENCE_TOKENS - 60
        entries = [*message_entries(messages[start:stop], min(LONGEST_MESSAGE, 3 * tokens))]
        first, last = whole_around(entries, room, 0 if around is None else around - start)
        body = limited("\n\n".join(entries[first:last]), room, "ask with a higher max_tokens")
        missing = len(entries) - (last - first)
        rest = f"; {missing} more that were asked for did not fit into {tokens} tokens" if missing else ""
        shown = f"messages {start + first} to {start + last - 1} of {len(messages)}, counted from 0{rest}"
        told = [shown, fenced(body, [facts.id])]
        if start + last < len(messages):
            told.append(f'next: read_session("{_plain(session)}", around={start + last}, context=0)')
        return "\n".join(told)

    def recall(self, session: str, question: str, *, max_tokens: int = 2_000) -> str:
        """The excerpts of one session that bear on a question."""
        tokens = _checked(max_tokens)
        memory = self._memory()
        found = memory.recall(session, question, budget=max(tokens - FENCE_TOKENS - 60, 50))
        if not found.found:
            return "Not in this session. search_sessions() looks into all of them."
        body = limited("\n".join(recalled_entries(found)), tokens - FENCE_TOKENS, "ask with a higher max_tokens")
        best = max(found.excerpts, key=lambda one: len(one.marks)).at
        return f'{fenced(body, [found.session.id])}\nnext: read_session("{_plain(session)}", around={best})'

    def restore(self, part_id: str, *, offset: int = 0, max_tokens: int = 4_000) -> str:
        """What a stand-in stands for."""
        tokens = _checked(max_tokens)
        text = redact(restore(part_id, store=self._store))[max(offset, 0) :]
        shown = limited(text, tokens - FENCE_TOKENS, "ask again with a higher offset or max_tokens")
        return fenced(shown, [])

    # --- files ---------------------------------------------------------------------------------------------------

    def file_history(
        self,
        path: str,
        *,
        session: str = "",
        at: int | None = None,
        max_tokens: int = 3_000,
        hints: Hints = NO_HINTS,
    ) -> str:
        """What a session did to a file, or the file's text at one of its turns."""
        from thresher.render.timeline import event_entries  # noqa: PLC0415 - only where files are asked for
        from thresher.timeline import Timeline  # noqa: PLC0415

        tokens = _checked(max_tokens) - FENCE_TOKENS - 40
        facts = self._memory().facts(session) if session else self._awaited_caller(hints=hints).facts
        memory = self._known()
        timeline = Timeline(self._read(memory, facts))
        if at is not None:
            state = timeline.file_state_at(path, turn=at)
            gaps = "".join(f"gap: {gap}\n" for gap in state.gaps)
            text = "nothing is known of its text" if state.text is None else state.text
            head = f"{state.path} at turn {state.turn}, {'exact' if state.exact else 'not exact'}\n{gaps}\n"
            return fenced(limited(head + text, tokens, "ask with a higher max_tokens"), [facts.id])
        kept, missing = whole_entries(event_entries(timeline.events(path)), tokens)
        rest = f"\n{missing} more did not fit" if missing else ""
        return fenced(limited("\n".join(kept) or "nothing touched it", tokens, "ask for more") + rest, [facts.id])

    def changelog(self, *, session: str = "", project: str = "", since: str = "7d", max_tokens: int = 3_000) -> str:
        """Per file what changed and why: in one session, or in a project's sessions since a date."""
        from thresher.memory.query import moment  # noqa: PLC0415
        from thresher.render.timeline import changelog_markdown  # noqa: PLC0415
        from thresher.timeline import changelog  # noqa: PLC0415

        tokens = _checked(max_tokens) - FENCE_TOKENS - 20
        memory = self._memory()
        if session:
            some = [memory.facts(session)]
        else:
            limit = moment(since, datetime.now(UTC).astimezone())
            here = memory.store.facts(project=project or self._project)
            some = [one for one in here if not one.subagent and one.ended and one.ended >= limit]
        text = changelog_markdown(changelog(self._read(memory, one) for one in some))
        return fenced(
            limited(text, tokens, "ask with a higher max_tokens, or for one session"), [one.id for one in some]
        )


def _above(memory: Memory, facts: Facts) -> Facts:
    """The conversation that a sub-agent belongs to in the end; a record may name itself its parent."""
    seen = {facts.id}
    while facts.subagent and facts.parent and facts.parent not in seen:
        seen.add(facts.parent)
        facts = memory.facts(facts.parent)
    return facts


def _look_over(session: Session, store: Store) -> None:
    """Work out once what each message weighs and means: it stays with the message, whatever is cut out later."""
    for segment in session.segments:
        with suppress(BudgetError):
            plan(segment, policy="smart", budget=LOOKED_OVER, store=store)


class _Told(NamedTuple):
    """A history as a text within its limit."""

    text: str
    before: int
    edits: int


def _told(known: Known, preset: str, tokens: int, form: str, store: Store) -> _Told:
    """A history through a preset into a text of so many tokens; what is written weighs other than what was counted."""
    policy, write = SEED_PRESETS.get(preset, preset), _writer(form)
    spoken = tuple(message for message in known.history if message.role != "system")  # who asks has its own
    history = known.history if len(spoken) == len(known.history) else History(spoken)
    if policy not in PRESETS and policy not in SEED_PRESETS.values():
        raise OptionError(f"there is no preset `{shorten(preset, 60)}`; there are {', '.join(PRESETS)}")
    budget = tokens
    for _ in range(TRIES):
        try:
            made = fitted(history, policy=policy, budget=budget, store=store)
        except BudgetError as error:
            if form != "text":
                smallest = error.smallest * tokens // budget + FENCE_TOKENS + 100
                raise OptionError(f"{error}; ask with max_tokens={smallest} or more, or for text") from error
            made = fitted(history, policy=policy, budget=error.smallest, store=store)
            return _Told(shortened(write(made.history), tokens), made.plan.tokens_before, len(made.plan.edits))
        text = write(made.history)
        weighs = weight(text)
        if weighs <= tokens:
            break
        budget = max(budget * tokens * 19 // (weighs * 20), 1)
    else:
        text = shortened(text, tokens) if form == "text" else limited(text, tokens, "ask with a higher max_tokens")
    return _Told(text, made.plan.tokens_before, len(made.plan.edits))


def _writer(form: str) -> Callable[[History], str]:
    if form == "text":
        return plain_text
    if form in format_names("wire"):
        return lambda history: dump(emit(history, form))
    raise OptionError(f"there is no form `{shorten(form, 60)}`; there are text, {', '.join(format_names('wire'))}")


def _span(session: Session, count: int, around: int | None, context: int, turns: str) -> tuple[int, int]:
    """Which messages are asked for, by number."""
    if around is not None:
        if not 0 <= around < count:
            raise OptionError(f"the session has {count:,} messages, counted from 0; there is no {around:,}")
        return max(0, around - max(context, 0)), min(count, around + max(context, 0) + 1)
    if not turns:
        return 0, count
    first, _, last = turns.partition("-")
    if not (first.strip().isdigit() and (not last or last.strip().isdigit())):
        raise OptionError(f"`turns` is a number or a range like 3-7; not {shorten(turns, 60)!r}")
    starts, offset = [], 0
    for history in (*session.segments, *(branch.history for branch in session.branches)):
        starts += [offset + turn.start for turn in history.turns]
        offset += len(history)
    low, high = int(first), int(last or first)
    if not 1 <= low <= high or low > len(starts):
        raise OptionError(f"the session has {len(starts):,} turns, counted from 1; {turns} is none of them")
    return starts[low - 1], starts[high] if high < len(starts) else count


def _checked(tokens: int) -> int:
    if not LEAST <= tokens <= MOST:
        raise OptionError(f"max_tokens is from {LEAST} to {MOST:,}; not {tokens}")
    return tokens


def _plain(name: str) -> str:
    """An id as it may stand outside the fence: letters, digits and few signs."""
    return "".join(sign for sign in name if sign.isalnum() or sign in "-_.")[:64]
