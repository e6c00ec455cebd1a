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
from typing import Any

from thresher.budget import plan, restore
from thresher.edits.placeholder import find_placeholder_ids
from thresher.errors import BudgetError, OptionError, ThresherError
from thresher.memory import Memory
from thresher.memory.ingest.redaction import redact
from thresher.memory.ingest.session_redaction import RedactedSession, redact_session
from thresher.memory.records import ArchivedSession
from thresher.model import Session
from thresher.render.agent_view import (
    FENCE_TOKENS,
    estimate_text_tokens,
    fence_recalled_text,
    fit_entries_around,
    message_entries,
    number_messages,
    recall_entries,
    search_result_entries,
    take_fitting_entries,
    truncate_to_tokens,
)
from thresher.render.session_names import shorten_session_ids
from thresher.render.text import format_count, plural, shorten
from thresher.serve.caller import Caller, CallerHints, SessionNotWrittenError, find_caller
from thresher.serve.fitted_text import fit_to_text
from thresher.serve.parent_context import find_context_at_spawn, find_parent_context
from thresher.store import ContentStore, default_content_store
from thresher.store.sqlite import content_store_in

CALLER_WAIT_SECONDS, CALLER_POLL_SECONDS = 2.0, 0.1
"""Seconds that a conversation is waited for which somebody names, and between two looks."""
SYNC_WAIT_SECONDS = 2.0
"""Seconds that a call waits for another one's reading."""
MAX_CACHED_SESSIONS = 8
"""Sessions that are kept in memory."""
MIN_ANSWER_TOKENS, MAX_ANSWER_TOKENS = 200, 200_000
"""Tokens that an answer may be asked to have."""
MAX_MESSAGE_CHARS = 6_000
"""Characters of one message that are shown among others."""
WARM_UP_BUDGET = 4_000
NO_HINTS = CallerHints()


class McpTools:
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
        self._make_memory: Callable[[], Memory] = lambda: Memory(home=home, sources=sources, discover=discover)
        self._session, self._project = session, project or str(Path.cwd())
        self._environment = os.environ if environment is None else environment
        self._sync_memory = self._make_memory()
        self._sync_lock = threading.Lock()
        self._own = threading.local()
        self._store = content_store_in(Path(home)) if home is not None else default_content_store()
        self._cache_lock = threading.Lock()
        self._session_cache: OrderedDict[int, tuple[object, RedactedSession]] = OrderedDict()

    def _synced_memory(self) -> Memory:
        """What is remembered, up to now as far as that can be had soon."""
        if self._sync_lock.acquire(timeout=SYNC_WAIT_SECONDS):
            try:
                self._sync_memory.refresh()
            finally:
                self._sync_lock.release()
        return self._thread_memory()

    def _thread_memory(self) -> Memory:
        """What was remembered when this call began; each thread has its own connection to it."""
        if not hasattr(self._own, "memory"):
            self._own.memory = self._make_memory()
        memory: Memory = self._own.memory
        return memory

    def _load_session(self, memory: Memory, facts: ArchivedSession) -> Session:
        """A session without its secrets, kept at hand until it changes."""
        state = (facts.messages, facts.ended, tuple(memory.store.stored_digests(facts.file).items()))
        with self._cache_lock:  # what several threads want is read by the first
            held = self._session_cache.pop(facts.key, None)
            if held is None or held[0] != state:
                kept = memory.store.session(facts.key)
                clean = redact_session(kept, held[1] if held else None)
                if held is None:
                    _warm_up(clean, self._store)
                held = (state, RedactedSession(kept, clean))
            self._session_cache[facts.key] = held
            while len(self._session_cache) > MAX_CACHED_SESSIONS:
                self._session_cache.popitem(last=False)
        return held[1].redacted

    def _find_caller(self, session: str = "", project: str = "", hints: CallerHints = NO_HINTS) -> Caller:
        """The conversation that asks, as far as it is known."""
        return find_caller(
            self._thread_memory(),
            session=session or self._session,
            project=project or self._project,
            hints=hints,
            environment=self._environment,
            now=datetime.now(UTC),
        )

    def _wait_for_caller(self, session: str = "", project: str = "", hints: CallerHints = NO_HINTS) -> Caller:
        """The same; one that is named is waited for a little, since agents write late."""
        until = time.monotonic() + CALLER_WAIT_SECONDS
        while True:
            self._synced_memory()
            try:
                return self._find_caller(session, project, hints)
            except SessionNotWrittenError:
                if time.monotonic() > until:
                    raise
            time.sleep(CALLER_POLL_SECONDS)

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
        hints: CallerHints = NO_HINTS,
    ) -> str:
        """What the conversation knew that the caller comes from."""
        tokens = _check_max_tokens(max_tokens)
        caller = self._wait_for_caller(session, project, hints)
        memory = self._thread_memory()
        facts = _find_root_session(memory, caller.facts)
        whole = self._load_session(memory, facts)
        if facts is not caller.facts and not agent and upto is None:
            known = find_context_at_spawn(whole, memory.store.session(caller.facts.key))
        else:
            known = find_parent_context(whole, agent=agent, call=hints.call_id, upto=upto)
        name = shorten_session_ids([facts.id])[0]
        head = f"session {name} ({facts.agent}), {known.moment}; chosen because {caller.reason}"
        room = tokens - FENCE_TOKENS - estimate_text_tokens(head) - 40
        told = fit_to_text(known, preset, room, form, self._store)
        title = f"title: {shorten(facts.title, 120)}\n" if facts.title else ""
        back = "; restore(part_id) gives one back" if find_placeholder_ids(told.text) else ""
        left_out = f"{plural(told.edit_count, 'part')} left out or shortened{back}" if told.edit_count else "whole"
        body = f"{head}\n{title}{format_count(told.tokens_before)} tokens, {left_out}\n\n{told.text}"
        return fence_recalled_text(body, [facts.id])

    # --- past sessions -------------------------------------------------------------------------------------------

    def search_sessions(
        self, query: str, *, page: int = 1, max_tokens: int = 2_000, hints: CallerHints = NO_HINTS, **conditions: Any
    ) -> str:
        """Past sessions that answer a query; `conditions` are those of `Memory.search`, and empty ones are none."""
        tokens = _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        asked = {name: value for name, value in conditions.items() if value}
        current = self._calling_session_id(hints)
        answer = memory.search(query, sync=False, messages=3, page=page, current=current, **asked)
        if not answer.sessions:
            more = "other words, fewer conditions, or recall() in a session you know"
            return f"No session matches {shorten(query, 200)!r}. Try {more}."
        kept, missing = take_fitting_entries(search_result_entries(answer), tokens - FENCE_TOKENS - 60)
        first = answer.sessions[0]
        name = shorten_session_ids([first.id])[0]
        rest = f"; {missing} more did not fit into {tokens} tokens" if missing else ""
        following = f"; page={page + 1} has more" if answer.more else ""
        at = f", around={first.hits[0].at}" if first.hits else ""
        body = truncate_to_tokens("\n".join(kept), tokens - FENCE_TOKENS - 60, "ask with a higher max_tokens")
        return "\n".join(
            [
                f"{plural(answer.found, 'session')} found{rest}{following}",
                fence_recalled_text(body, [one.id for one in answer.sessions[: len(kept)]]),
                *answer.notes,
                f'next: read_session("{_to_safe_id(name)}"{at}) or recall("{_to_safe_id(name)}", question)',
            ]
        )

    def _calling_session_id(self, hints: CallerHints) -> str:
        """The conversation that asks, as far as it is known at once: it is no answer, and a guess does no harm here."""
        for said in dict.fromkeys((hints, NO_HINTS)):
            try:
                return self._find_caller(hints=said).facts.id
            except ThresherError:
                continue
        return ""

    def read_session(
        self, session: str, *, around: int | None = None, context: int = 3, turns: str = "", max_tokens: int = 4_000
    ) -> str:
        """Messages of one session: around one, of some turns, or from the start."""
        tokens = _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        facts = memory.facts(session)
        whole = self._load_session(memory, facts)
        messages = number_messages([*whole.segments, *(branch.history for branch in whole.branches)])
        start, stop = _choose_messages(whole, len(messages), around, context, turns)
        room = tokens - FENCE_TOKENS - 60
        entries = [*message_entries(messages[start:stop], min(MAX_MESSAGE_CHARS, 3 * tokens))]
        first, last = fit_entries_around(entries, room, 0 if around is None else around - start)
        body = truncate_to_tokens("\n\n".join(entries[first:last]), room, "ask with a higher max_tokens")
        missing = len(entries) - (last - first)
        rest = f"; {missing} more that were asked for did not fit into {tokens} tokens" if missing else ""
        shown = f"messages {start + first} to {start + last - 1} of {len(messages)}, counted from 0{rest}"
        told = [shown, fence_recalled_text(body, [facts.id])]
        if start + last < len(messages):
            told.append(f'next: read_session("{_to_safe_id(session)}", around={start + last}, context=0)')
        return "\n".join(told)

    def recall(self, session: str, question: str, *, max_tokens: int = 2_000) -> str:
        """The excerpts of one session that bear on a question."""
        tokens = _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        found = memory.recall(session, question, budget=max(tokens - FENCE_TOKENS - 60, 50))
        if not found.found:
            return "Not in this session. search_sessions() looks into all of them."
        body = truncate_to_tokens(
            "\n".join(recall_entries(found)), tokens - FENCE_TOKENS, "ask with a higher max_tokens"
        )
        best = max(found.excerpts, key=lambda one: len(one.marks)).at
        return (
            f'{fence_recalled_text(body, [found.session.id])}\nnext: read_session("{_to_safe_id(session)}", '
            f"around={best})"
        )

    def restore(self, part_id: str, *, offset: int = 0, max_tokens: int = 4_000) -> str:
        """What a stand-in stands for."""
        tokens = _check_max_tokens(max_tokens)
        text = redact(restore(part_id, store=self._store))[max(offset, 0) :]
        shown = truncate_to_tokens(text, tokens - FENCE_TOKENS, "ask again with a higher offset or max_tokens")
        return fence_recalled_text(shown, [])

    # --- files ---------------------------------------------------------------------------------------------------

    def file_history(
        self,
        path: str,
        *,
        session: str = "",
        at: int | None = None,
        max_tokens: int = 3_000,
        hints: CallerHints = NO_HINTS,
    ) -> str:
        """What a session did to a file, or the file's text at one of its turns."""
        from thresher.render.timeline import file_event_entries  # noqa: PLC0415 - only where files are asked for
        from thresher.timeline import Timeline  # noqa: PLC0415

        tokens = _check_max_tokens(max_tokens) - FENCE_TOKENS - 40
        facts = self._synced_memory().facts(session) if session else self._wait_for_caller(hints=hints).facts
        memory = self._thread_memory()
        timeline = Timeline(self._load_session(memory, facts))
        if at is not None:
            state = timeline.file_state_at(path, turn=at)
            gaps = "".join(f"gap: {gap}\n" for gap in state.gaps)
            text = "nothing is known of its text" if state.text is None else state.text
            head = f"{state.path} at turn {state.turn}, {'exact' if state.exact else 'not exact'}\n{gaps}\n"
            return fence_recalled_text(
                truncate_to_tokens(head + text, tokens, "ask with a higher max_tokens"), [facts.id]
            )
        kept, missing = take_fitting_entries(file_event_entries(timeline.events(path)), tokens)
        rest = f"\n{missing} more did not fit" if missing else ""
        return fence_recalled_text(
            truncate_to_tokens("\n".join(kept) or "nothing touched it", tokens, "ask for more") + rest, [facts.id]
        )

    def changelog(self, *, session: str = "", project: str = "", since: str = "7d", max_tokens: int = 3_000) -> str:
        """Per file what changed and why: in one session, or in a project's sessions since a date."""
        from thresher.memory.search.query import parse_date_or_age  # noqa: PLC0415
        from thresher.render.timeline import changelog_markdown  # noqa: PLC0415
        from thresher.timeline import build_changelog  # noqa: PLC0415

        tokens = _check_max_tokens(max_tokens) - FENCE_TOKENS - 20
        memory = self._synced_memory()
        if session:
            some = [memory.facts(session)]
        else:
            limit = parse_date_or_age(since, datetime.now(UTC).astimezone())
            here = memory.store.find_sessions(project=project or self._project)
            some = [one for one in here if not one.subagent and one.ended and one.ended >= limit]
        text = changelog_markdown(build_changelog(self._load_session(memory, one) for one in some))
        return fence_recalled_text(
            truncate_to_tokens(text, tokens, "ask with a higher max_tokens, or for one session"),
            [one.id for one in some],
        )


def _find_root_session(memory: Memory, facts: ArchivedSession) -> ArchivedSession:
    """The conversation that a sub-agent belongs to in the end; a record may name itself its parent."""
    seen = {facts.id}
    while facts.subagent and facts.parent and facts.parent not in seen:
        seen.add(facts.parent)
        facts = memory.facts(facts.parent)
    return facts


def _warm_up(session: Session, store: ContentStore) -> None:
    """Work out once what each message weighs and means: it stays with the message, whatever is cut out later."""
    for segment in session.segments:
        with suppress(BudgetError):
            plan(segment, policy="smart", budget=WARM_UP_BUDGET, store=store)


def _choose_messages(session: Session, count: int, around: int | None, context: int, turns: str) -> tuple[int, int]:
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


def _check_max_tokens(tokens: int) -> int:
    if not MIN_ANSWER_TOKENS <= tokens <= MAX_ANSWER_TOKENS:
        raise OptionError(f"max_tokens is from {MIN_ANSWER_TOKENS} to {MAX_ANSWER_TOKENS:,}; not {tokens}")
    return tokens


def _to_safe_id(name: str) -> str:
    """An id as it may stand outside the fence: letters, digits and few signs."""
    return "".join(sign for sign in name if sign.isalnum() or sign in "-_.")[:64]
