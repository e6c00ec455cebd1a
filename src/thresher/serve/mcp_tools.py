"""The tools of the MCP server, independent of the protocol: methods that return text within a token limit.

Each call first syncs the new messages on disk, so a running conversation is complete up to its last turn. If that takes
long, as the first sync does, it continues in the background, the call answers from the messages that are already in the
archive, and a search says which share of the sessions is indexed. Parsed sessions stay cached until they change, so a
parent that starts ten sub-agents is parsed once.

All answers are redacted.
"""

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from thresher.budget import plan, restore
from thresher.budget.settings import load_settings
from thresher.edits.placeholder import find_placeholder_ids
from thresher.errors import BudgetError, OptionError, ThresherError
from thresher.memory import Memory
from thresher.memory.background_sync import BackgroundSync
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
from thresher.render.text import format_count, format_share, plural, shorten
from thresher.serve.caller import Caller, CallerHints, SessionNotWrittenError, find_caller
from thresher.serve.fitted_text import fit_to_text
from thresher.serve.parent_context import find_context_at_spawn, find_parent_context
from thresher.store import ContentStore, default_content_store
from thresher.store.in_memory import InMemoryContentStore
from thresher.store.overlay import OverlayContentStore
from thresher.store.sqlite import content_store_in

CALLER_WAIT_SECONDS, CALLER_POLL_SECONDS = 2.0, 0.1
"""Seconds to wait for a named conversation, and seconds between two attempts to find it."""
SYNC_WAIT_SECONDS = 4.0
"""Seconds that a call waits for a sync."""
MAX_CACHED_SESSIONS = 8
"""Maximum number of parsed sessions in the cache."""
MIN_ANSWER_TOKENS, MAX_ANSWER_TOKENS = 200, 200_000
"""Limits of `max_tokens`."""
MAX_MESSAGE_CHARS = 6_000
"""Maximum number of characters of each message that `read_session` returns."""
DEFAULT_PRESET = "smart"
WARM_UP_BUDGET = 4_000
NO_HINTS = CallerHints()


class McpTools:
    """All tools of the server."""

    def __init__(  # noqa: PLR0913 - the options of the server
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        sources: Sequence[str | os.PathLike[str]] = (),
        discover: bool = True,
        session: str = "",
        project: str = "",
        only_project: bool = False,
        environment: Mapping[str, str] | None = None,
        caller_wait: float = CALLER_WAIT_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open no file yet.

        `session` is the conversation that makes all calls, if it is known; `project` is the folder of the server. With
        `only_project`, the answers contain only sessions of this folder and the folders below it.
        """
        self._caller_wait, self._sleep = caller_wait, sleep
        self._memory_options: dict[str, Any] = {"home": home, "sources": sources, "discover": discover}
        self._session, self._project = session, project or str(Path.cwd())
        self._environment = os.environ if environment is None else environment
        self._sync = BackgroundSync(Memory(**self._memory_options))
        self._project_root = self._project if only_project else ""
        self._local = threading.local()
        # The tools are read-only: what `get_context` removes stays in memory, where `restore` finds it.
        self._store = OverlayContentStore(_open_content_store(home, only_project=only_project))
        self._cache_lock = threading.Lock()
        self._session_cache: OrderedDict[int, tuple[object, RedactedSession]] = OrderedDict()

    def close(self) -> None:
        """Stop a sync in the background."""
        self._sync.close()

    def _synced_memory(self) -> Memory:
        """Return this thread's memory after a sync; if the sync takes too long, let it continue in the background."""
        self._sync.refresh(SYNC_WAIT_SECONDS)
        return self._thread_memory()

    def _thread_memory(self) -> Memory:
        """Return the memory of this thread, which has its own database connection."""
        if not hasattr(self._local, "memory"):
            self._local.memory = Memory(**self._memory_options, project_root=self._project_root)
        memory: Memory = self._local.memory
        return memory

    def _load_session(self, memory: Memory, facts: ArchivedSession) -> Session:
        """Return a redacted session from the cache, or parse it if it has changed."""
        state = (facts.messages, facts.ended, tuple(memory.store.stored_digests(facts.file).items()))
        with self._cache_lock:  # so that only one of several threads parses a session
            cached = self._session_cache.pop(facts.key, None)
            if cached is None or cached[0] != state:
                original = memory.store.session(facts.key)
                redacted = redact_session(original, cached[1] if cached else None)
                if cached is None:
                    _warm_up(redacted, self._store)
                cached = (state, RedactedSession(original, redacted))
            self._session_cache[facts.key] = cached
            while len(self._session_cache) > MAX_CACHED_SESSIONS:
                self._session_cache.popitem(last=False)
        return cached[1].redacted

    def _find_caller(self, session: str = "", project: str = "", hints: CallerHints = NO_HINTS) -> Caller:
        """Return the calling conversation, as of the last sync."""
        return find_caller(
            self._thread_memory(),
            session=session or self._session,
            project=project or self._project,
            hints=hints,
            environment=self._environment,
            now=datetime.now(UTC),
        )

    def _wait_for_caller(self, session: str = "", project: str = "", hints: CallerHints = NO_HINTS) -> Caller:
        """Return the calling conversation; wait for a named one that its agent has not written to disk yet."""
        deadline = time.monotonic() + self._caller_wait
        while True:
            self._synced_memory()
            try:
                return self._find_caller(session, project, hints)
            except SessionNotWrittenError:
                if time.monotonic() > deadline:
                    raise
            self._sleep(CALLER_POLL_SECONDS)

    def configured_policy(self) -> str:
        """Return the policy of the environment or `thresher.toml`; empty if none is set."""
        return load_settings(environment=self._environment).policy or ""

    # --- the context of a sub-agent's parent ---------------------------------------------------------------------

    def get_context(  # noqa: PLR0913 - the arguments of the tool
        self,
        *,
        session: str = "",
        agent: str = "",
        upto: int | None = None,
        preset: str = "",
        max_tokens: int = 8_000,
        form: str = "text",
        project: str = "",
        hints: CallerHints = NO_HINTS,
    ) -> str:
        """Return the context of the calling conversation; for a sub-agent, the context of its parent.

        Without `preset`, the policy of the user's settings applies, or `smart`.
        """
        _check_max_tokens(max_tokens)
        caller = self._wait_for_caller(session, project, hints)
        memory = self._thread_memory()
        facts = _find_root_session(memory, caller.facts)
        root = self._load_session(memory, facts)
        if facts is not caller.facts and not agent and upto is None:
            context = find_context_at_spawn(root, memory.store.session(caller.facts.key))
        else:
            context = find_parent_context(root, agent=agent, call=hints.call_id, upto=upto)
        name = shorten_session_ids([facts.id])[0]
        head = f"session {name} ({facts.agent}), {context.moment}; chosen because {caller.reason}"
        room = max_tokens - FENCE_TOKENS - estimate_text_tokens(head) - 40
        policy = preset or self.configured_policy() or DEFAULT_PRESET
        fitted = fit_to_text(context, policy, room, form, self._store)
        title = f"title: {shorten(facts.title, 120)}\n" if facts.title else ""
        changes = "complete"
        if fitted.edit_count:
            restorable = "; restore(part_id) returns one" if find_placeholder_ids(fitted.text) else ""
            changes = f"{plural(fitted.edit_count, 'part')} removed or shortened{restorable}"
        body = f"{head}\n{title}{format_count(fitted.tokens_before)} tokens, {changes}\n\n{fitted.text}"
        return fence_recalled_text(body, [facts.id])

    # --- past sessions -------------------------------------------------------------------------------------------

    def search_sessions(
        self, query: str, *, page: int = 1, max_tokens: int = 2_000, hints: CallerHints = NO_HINTS, **filters: Any
    ) -> str:
        """Return the past sessions that match a query; `filters` are filters of `Memory.search`."""
        _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        filters = {name: value for name, value in filters.items() if value}
        current = self._calling_session_id(hints)
        answer = memory.search(query, sync=False, messages=3, page=page, current=current, **filters)
        share = "" if answer.indexed == 1 else f"; {format_share(answer.indexed)}"
        if not answer.sessions:
            advice = "other words, fewer filters, or recall() in a session you know"
            return f"No session matches{share}. Try {advice}."
        room = max_tokens - FENCE_TOKENS - 60
        entries, missing = take_fitting_entries(search_result_entries(answer), room)
        first = answer.sessions[0]
        name = _quote_id(shorten_session_ids([first.cited_id])[0])
        rest = f"; {missing} more did not fit into {max_tokens} tokens" if missing else ""
        next_page = f"; page={page + 1} has more" if answer.more else ""
        around = f", around={first.hits[0].at}" if first.hits else ""
        body = truncate_to_tokens("\n".join(entries), room, "use a higher max_tokens")
        return "\n".join(
            [
                f"{plural(answer.found, 'session')} found{rest}{next_page}{share}",
                fence_recalled_text(
                    "\n".join([body, *(redact(note) for note in answer.notes)]),
                    [session.id for session in answer.sessions[: len(entries)]],
                ),
                f"next: read_session({name}{around}) or recall({name}, question)",
            ]
        )

    def _calling_session_id(self, hints: CallerHints) -> str:
        """Return the id of the calling session, which the search skips; empty if it is unknown."""
        for candidate in dict.fromkeys((hints, NO_HINTS)):
            with suppress(ThresherError):
                return self._find_caller(hints=candidate).facts.id
        return ""

    def read_session(
        self, session: str, *, around: int | None = None, context: int = 3, turns: str = "", max_tokens: int = 4_000
    ) -> str:
        """Return messages of one session: the neighbors of a message, a range of turns, or the first messages."""
        _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        facts = memory.facts(session)
        loaded = self._load_session(memory, facts)
        messages = number_messages([*loaded.segments, *(branch.history for branch in loaded.branches)])
        start, stop = _choose_messages(loaded, len(messages), around, context, turns)
        room = max_tokens - FENCE_TOKENS - 60
        entries = [*message_entries(messages[start:stop], min(MAX_MESSAGE_CHARS, 3 * max_tokens))]
        first, last = fit_entries_around(entries, room, 0 if around is None else around - start)
        body = truncate_to_tokens("\n\n".join(entries[first:last]), room, "use a higher max_tokens")
        missing = len(entries) - (last - first)
        rest = f"; {missing} more did not fit into {max_tokens} tokens" if missing else ""
        shown = f"messages {start + first} to {start + last - 1} of {len(messages)}, counted from 0{rest}"
        lines = [shown, fence_recalled_text(body, [facts.id])]
        if start + last < len(messages):
            lines.append(f"next: read_session({_quote_id(session)}, around={start + last}, context=0)")
        return "\n".join(lines)

    def recall(self, session: str, question: str, *, max_tokens: int = 2_000) -> str:
        """Return the excerpts of one session that match a question."""
        _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        recalled = memory.recall(session, question, budget=max(max_tokens - FENCE_TOKENS - 60, 50))
        if not recalled.found:
            return "Not in this session. search_sessions() searches all sessions."
        text = "\n".join(recall_entries(recalled))
        best = max(recalled.excerpts, key=lambda excerpt: len(excerpt.marks)).at
        answer = _fence(text, max_tokens - FENCE_TOKENS, [recalled.session.id])
        return f"{answer}\nnext: read_session({_quote_id(session)}, around={best})"

    def restore(self, part_id: str, *, offset: int = 0, max_tokens: int = 4_000) -> str:
        """Return the text that a placeholder replaces."""
        _check_max_tokens(max_tokens)
        text = redact(restore(part_id, store=self._store))[max(offset, 0) :]
        return _fence(text, max_tokens - FENCE_TOKENS, [], advice="use a higher offset or max_tokens")

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
        """Return the changes of a session to a file, or the text of the file at one turn."""
        from thresher.render.timeline import file_event_entries  # noqa: PLC0415 - only these tools need it
        from thresher.timeline import Timeline  # noqa: PLC0415

        _check_max_tokens(max_tokens)
        room = max_tokens - FENCE_TOKENS - 40
        facts = self._synced_memory().facts(session) if session else self._wait_for_caller(hints=hints).facts
        timeline = Timeline(self._load_session(self._thread_memory(), facts))
        if at is not None:
            state = timeline.file_state_at(path, turn=at)
            gaps = "".join(f"gap: {gap}\n" for gap in state.gaps)
            text = "its text is unknown" if state.text is None else state.text
            head = f"{state.path} at turn {state.turn}, {'exact' if state.exact else 'not exact'}\n{gaps}\n"
            return _fence(head + text, room, [facts.id])
        entries, missing = take_fitting_entries(file_event_entries(timeline.events(path)), room)
        rest = f"\n{missing} more did not fit" if missing else ""
        body = truncate_to_tokens("\n".join(entries) or "no changes", room, "use a higher max_tokens")
        return fence_recalled_text(body + rest, [facts.id])

    def changelog(self, *, session: str = "", project: str = "", since: str = "7d", max_tokens: int = 3_000) -> str:
        """Return the changes to each file with their reasons, in one session or in a project's recent sessions."""
        from thresher.memory.search.query import parse_date_or_age  # noqa: PLC0415
        from thresher.render.timeline import changelog_markdown  # noqa: PLC0415
        from thresher.timeline import build_changelog  # noqa: PLC0415

        _check_max_tokens(max_tokens)
        memory = self._synced_memory()
        if session:
            selected = [memory.facts(session)]
        else:
            earliest = parse_date_or_age(since, datetime.now(UTC).astimezone())
            candidates = memory.store.find_sessions(project=project or self._project)
            selected = [facts for facts in candidates if not facts.subagent and facts.ended and facts.ended >= earliest]
        text = changelog_markdown(build_changelog(self._load_session(memory, facts) for facts in selected))
        ids = [facts.id for facts in selected]
        return _fence(text, max_tokens - FENCE_TOKENS - 20, ids, advice="use a higher max_tokens, or pass one session")


def _open_content_store(home: str | os.PathLike[str] | None, *, only_project: bool) -> ContentStore:
    """Return the content store. The shared one does not know projects, so a server for one project has its own."""
    if only_project:
        return InMemoryContentStore()
    return content_store_in(Path(home)) if home is not None else default_content_store()


def _fence(text: str, room: int, session_ids: list[str], advice: str = "use a higher max_tokens") -> str:
    """Truncate a text, and enclose it in recall tags."""
    return fence_recalled_text(truncate_to_tokens(text, room, advice), session_ids)


def _find_root_session(memory: Memory, facts: ArchivedSession) -> ArchivedSession:
    """Return the session at the top of a sub-agent's chain of parents; stop if wrong records form a cycle."""
    seen = {facts.id}
    while facts.subagent and facts.parent and facts.parent not in seen:
        seen.add(facts.parent)
        facts = memory.facts(facts.parent)
    return facts


def _warm_up(session: Session, store: ContentStore) -> None:
    """Plan a session once, so that later calls find token counts and other facts in the message caches."""
    for segment in session.segments:
        with suppress(BudgetError):
            plan(segment, policy="smart", budget=WARM_UP_BUDGET, store=store)


def _choose_messages(session: Session, count: int, around: int | None, context: int, turns: str) -> tuple[int, int]:
    """Return the range of message numbers to read."""
    if around is not None:
        if not 0 <= around < count:
            raise OptionError(f"`around` must be a message number from 0 to {count - 1:,}, got {around:,}")
        context = max(context, 0)
        return max(0, around - context), min(count, around + context + 1)
    if not turns:
        return 0, count
    wanted = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", turns)
    if wanted is None:
        raise OptionError(f"`turns` must be a number or a range like 3-7, got {shorten(turns, 60)!r}")
    starts, offset = [], 0
    for history in (*session.segments, *(branch.history for branch in session.branches)):
        starts += [offset + turn.start for turn in history.turns]
        offset += len(history)
    low, high = int(wanted[1]), int(wanted[2] or wanted[1])
    if not 1 <= low <= high or low > len(starts):
        raise OptionError(f"`turns` must be in the session's {len(starts):,} turns, counted from 1; got {turns}")
    return starts[low - 1], starts[high] if high < len(starts) else count


def _check_max_tokens(tokens: int) -> None:
    if not MIN_ANSWER_TOKENS <= tokens <= MAX_ANSWER_TOKENS:
        raise OptionError(f"`max_tokens` must be from {MIN_ANSWER_TOKENS} to {MAX_ANSWER_TOKENS:,}, got {tokens}")


def _quote_id(name: str) -> str:
    """Return an id for a line outside the recall tags. A transcript can choose its id, so only a number is repeated."""
    return f'"{name}"' if re.fullmatch(r"[0-9a-f-]{1,36}", name) else "its id"
