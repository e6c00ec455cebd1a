"""Render search results and archive reports as styled lines and as JSON values.

A line consists of styled texts. Only a terminal shows the styles. Output to a pipe is plain text and needs no rendering
library, whose import would delay the search of an agent.

An agent writes what it reads into its own transcript, which the next sync reads. So output to a pipe is enclosed in
`<thresher-recall>` tags with the session ids. Tags inside the text are changed, so that they cannot close the block.
All transcript text goes through `strip_control_codes` and cannot break a line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from shlex import quote
from typing import Any, NamedTuple

from msgspec import to_builtins

from thresher.memory.ingest.redaction import redact
from thresher.memory.records import ArchivedSession, MemorySizes, SyncReport
from thresher.memory.results import Excerpt, RecallResult, SearchHit, SearchResults, SessionHit
from thresher.render.recall_markers import CLOSING_TAG, format_opening_tag, neutralize_tags
from thresher.render.session_names import abbreviate_home, shorten_session_ids, to_single_line
from thresher.render.text import format_byte_size, format_count, format_local_time, plural, shorten, strip_control_codes

LONGEST_TITLE = 100

_LABELS = {
    "human": "user",
    "agent": "asst",
    "thinking": "think",
    "summary": "sum",
    "annotation": "note",
    "input": "call",
    "commands": "run",
    "edits": "edit",
    "output": "tool",
}
_AUTHOR_STYLES = {"human": "bold green", "model": "bold blue", "tool": "magenta"}
_MATCH_STYLE = "bold red"

EXCLUSION_LABELS = {
    "recall": "in recalls",
    "sub-agent": "in sub-agents",
    "current session": "in the current session",
    "short": "too short",
    "interruption": "in interruptions",
    "error": "in API errors",
    "command": "in commands",
    "editor": "in editor state",
    "harness": "from the harness",
    "syntax": "in calls written as text",
    "system": "in system prompts",
}
"""Labels of the reasons why a search excludes text. A reason without a label is printed as it is."""


_SYNC_KEYS = {
    "gone": "missing",
    "foreign": "unrecognized",
    "forgotten": "expired",
    "forgotten_again": "skipped_forgotten",
    "indexed": "indexed_share",
}
_ARCHIVE_KEYS = {"call": "call_id", "root": "family_root", "made_by": "memory_tool", "gone": "file_deleted"}
"""JSON keys of fields whose names come from archive columns."""


class StyledLine(NamedTuple):
    """A line of output, made of styled texts."""

    spans: tuple[tuple[str, str], ...]
    """Texts with their styles."""
    hanging_indent: int = 0
    """Indent of the continuation lines, if a terminal wraps the line."""
    no_wrap: bool = False
    """True if a terminal must not wrap the line, so that a command can be copied."""

    @property
    def text(self) -> str:
        """Text without styles."""
        return "".join(text for text, _ in self.spans)


def search_result_lines(
    results: SearchResults, *, program: str = "thresher", where: str = "", following: str = ""
) -> Iterator[StyledLine]:
    """Render sessions with their best messages, then the totals and exclusions.

    `where` holds options that `show` needs to find the sessions; `following` is the command for the next page.
    """
    names = shorten_session_ids([session.id for session in results.sessions])
    for session, name in zip(results.sessions, names, strict=True):
        cited = shorten_session_ids([session.subagent])[0] if session.subagent else name
        yield from _session_hit_lines(session, name, f"{program} show {quote(cited)}{where}")
        yield _styled_line("")
    yield from _summary_lines(results, following)


def no_result_lines(results: SearchResults, sizes: MemorySizes, *, program: str = "thresher") -> Iterator[StyledLine]:
    """Render suggestions for a search without results."""
    if not sizes.sessions and results.indexed == 1:
        yield _styled_line("The archive is empty: no sessions were found on this machine.", "bold")
        yield _styled_line(
            f"To search other folders: {program} search WORDS… --source PATH. To try samples: {program} demo"
        )
        return
    archived = f"{plural(sizes.messages, 'message')} of {plural(sizes.sessions, 'session')}"
    yield _styled_line(f"No matches in {archived}.", "bold")
    yield from _share_lines(results)
    suggestions = [
        "other words, or a prefix: migrat*",
        "fewer filters (--require, --project, --since, --role, …)",
        "tool output: --field output; file names: --field paths",
        "texts that are excluded by default: --all",
    ]
    yield from (StyledLine((("  try ", "dim"), (suggestion, ""))) for suggestion in suggestions)
    yield from _excluded_count_lines(results.excluded)


def _session_hit_lines(session: SessionHit, name: str, show: str) -> Iterator[StyledLine]:
    bar = (" | ", "dim")
    place = (abbreviate_home(shorten(session.project, 200)) or "(no folder)", "bold cyan")
    facts = [place, bar, (name, "bold"), bar, (plural(session.matches, "match", "matches"), "")]
    facts += [bar, (format_local_time(session.time), "")] if session.time else []
    facts += [bar, (f"sub-agent of {shorten_session_ids([session.parent])[0]}", "")] if session.parent else []
    facts += [bar, (f"in sub-agent {shorten_session_ids([session.subagent])[0]}", "")] if session.subagent else []
    facts += [bar, ("from the archive: the file is gone", "yellow")] if session.gone else []
    yield StyledLine(tuple(facts))
    title = shorten(session.title, LONGEST_TITLE)
    description = " · ".join(filter(None, (session.agent, shorten(session.branch, 60), title)))
    yield _styled_line(f"  {description}", "dim", hang=2)
    yield from map(_hit_line, session.hits)
    more = session.matches - len(session.hits)
    if more > 0:
        yield _styled_line(f"  ... and {plural(more, 'more match', 'more matches')}", "dim")
    if session.family:
        ids = ", ".join(shorten_session_ids(session.family)[:5]) + (", …" if len(session.family) > 5 else "")
        yield _styled_line(f"  related: {len(session.family)} of the same family ({ids})", "dim", hang=2)
    yield _command_line("show:  ", f"{show} --around {session.hits[0].at}" if session.hits else show)
    if session.resume:
        yield _command_line("resume:", strip_control_codes(session.resume).replace("\n", " "))


def _hit_line(hit: SearchHit) -> StyledLine:
    label = f"  [{_label(hit)}] "
    spans = ((label, _AUTHOR_STYLES.get(hit.author, "dim")), *_highlighted_spans(hit), (f"  #{hit.at}", "dim"))
    return StyledLine(spans, hanging_indent=len(label))


def _highlighted_spans(hit: SearchHit) -> Iterator[tuple[str, str]]:
    """Yield the text on one line, with highlighted matches and ellipses where it is truncated."""
    yield "… " if hit.cut[0] else "", "dim"
    position = 0
    for start, end in sorted(hit.marks):
        if start >= position:
            yield to_single_line(hit.text[position:start]), ""
            yield to_single_line(hit.text[start:end]), _MATCH_STYLE
            position = end
    yield to_single_line(hit.text[position:]), ""
    yield " …" if hit.cut[1] else "", "dim"


def format_share(indexed: float) -> str:
    """Describe an incomplete index."""
    percent = f"{int(100 * indexed)}%" if indexed >= 0.01 else "less than 1%"  # rounding down: never 100 %
    return f"{percent} of the sessions on disk are indexed so far, the newest first"


def _share_lines(results: SearchResults) -> Iterator[StyledLine]:
    if results.indexed < 1:
        yield _styled_line(f"{format_share(results.indexed)}; `thresher sync` indexes the rest", "yellow")


def _summary_lines(results: SearchResults, following: str) -> Iterator[StyledLine]:
    shown = len(results.sessions)
    page = f" ({shown} on page {results.page})" if shown < results.found else ""
    yield _styled_line(f"Found matches in {plural(results.found, 'session')}{page}", "bold")
    yield from _share_lines(results)
    yield from _excluded_count_lines(results.excluded)
    if following:
        yield _command_line("next:  ", following, lead="")


def _excluded_count_lines(excluded: Mapping[str, int]) -> Iterator[StyledLine]:
    counts = [f"{format_count(n)} {EXCLUSION_LABELS.get(reason, reason)}" for reason, n in excluded.items() if n]
    if counts:
        yield _styled_line(f"excluded: {', '.join(counts)}; use --all to include them", "dim")


def search_result_value(results: SearchResults) -> dict[str, Any]:
    """Return search results as a JSON value. The keys are stable."""
    return {
        "query": results.query,
        "sessions": [_session_value(session) for session in results.sessions],
        "total": results.found,
        "page": results.page,
        "has_more": results.more,
        "indexed_share": results.indexed,
        "excluded": dict(results.excluded),
        "confidence": None if results.confidence is None else round(results.confidence, 3),
    }


def _session_value(session: SessionHit) -> dict[str, Any]:
    fields = ("id", "agent", "project", "branch", "title", "file", "line", "score", "matches")
    value = {field: getattr(session, field) for field in fields}
    value |= {
        "time": _iso(session.time),
        "family": list(session.family),
        "parent": session.parent,
        "subagent": session.subagent,
    }
    value |= {"file_deleted": session.gone, "resume_command": session.resume}
    return value | {"hits": [_hit_value(hit) for hit in session.hits]}


def _hit_value(hit: SearchHit) -> dict[str, Any]:
    return {
        "role": hit.role,
        "author": hit.author,
        "kind": hit.kind,
        "text": hit.text,
        "message_index": hit.at,
        "line": hit.line,
        "time": _iso(hit.time),
    }


def recall_lines(recalled: RecallResult, *, program: str = "thresher") -> Iterator[StyledLine]:
    """Render the answer to a question from one session, with citations."""
    session = recalled.session
    name = shorten_session_ids([session.id])[0]
    bar = (" | ", "dim")
    project = abbreviate_home(shorten(session.project, 200)) or "(no folder)"
    title = shorten(session.title, LONGEST_TITLE)
    yield StyledLine(((project, "bold cyan"), bar, (name, "bold"), bar, (title or session.agent, "dim")))
    gone = " (gone; shown from the archive)" if session.gone else ""
    file = abbreviate_home(shorten(session.file, 300))
    yield StyledLine((("file: ", "dim"), (file, "cyan"), (gone, "yellow")), no_wrap=True)
    if not recalled.found:
        yield _styled_line("Not in this session.", "bold")
        yield _command_line("others:", f"{program} search {quote(shorten(recalled.question, 200))}", lead="")
        return
    if recalled.answer:
        yield from (_styled_line(row) for row in ("", *strip_control_codes(recalled.answer).strip().split("\n")))
    for excerpt in recalled.excerpts:
        yield _styled_line("")
        yield _citation(excerpt)
        yield StyledLine((("    ", ""), *_highlighted_spans(excerpt)), hanging_indent=4)
    yield _styled_line("")
    excerpts = plural(len(recalled.excerpts), "excerpt")
    yield _styled_line(f"{excerpts}, about {format_count(recalled.tokens)} tokens", "dim")
    best = max(recalled.excerpts, key=lambda excerpt: len(excerpt.marks))
    yield _command_line("show:  ", f"{program} show {quote(name)} --around {best.at}", lead="")


def _label(hit: SearchHit) -> str:
    """Return the label of a hit: `harness` or `recall` for text by that author, otherwise a short name of the kind."""
    return hit.author if hit.author in ("harness", "recall", "context") else _LABELS.get(hit.kind, hit.kind)


def _citation(excerpt: Excerpt) -> StyledLine:
    line = f"line {excerpt.line}" if excerpt.line else ""
    time = format_local_time(excerpt.time) if excerpt.time else ""
    facts = " · ".join(filter(None, (line, _label(excerpt), time)))
    return StyledLine(((f"[{excerpt.at}] ", "bold"), (facts, "dim")))


def recall_value(recalled: RecallResult) -> dict[str, Any]:
    """Return a recall result as a JSON value."""
    session = _session_value(recalled.session)
    shown = ("id", "agent", "project", "branch", "title", "file", "file_deleted", "resume_command")
    file = recalled.session.file
    return {
        "question": recalled.question,
        "is_answered": recalled.found,
        "answer": recalled.answer,
        "session": {field: session[field] for field in shown},
        "excerpts": [_hit_value(one) | {"file": file, "tokens": one.tokens} for one in recalled.excerpts],
        "tokens": recalled.tokens,
    }


def sync_report_lines(report: SyncReport, sizes: MemorySizes, excluded: Mapping[str, int]) -> Iterator[StyledLine]:
    """Render the result of a sync and the archive's size."""
    if report.busy:
        yield _styled_line("Another sync is running, so this one did nothing.", "bold yellow")
    else:
        counts = [f"{format_count(number)} {name}" for name, number in _file_counts(report) if number]
        checked = sum(number for _, number in _file_counts(report))
        files = f"{plural(checked, 'file')} checked in {report.seconds:.1f} s"
        yield _styled_line(f"{files}: {', '.join(counts) or 'none'}", "bold")
        expired = plural(report.forgotten, "session")
        summary = [f"forgot {expired} beyond the retention period"] if report.forgotten else []
        remaining = report.forgotten_again
        summary += [f"{plural(remaining, 'session')} in these files remain forgotten"] if remaining else []
        yield _styled_line("; ".join([plural(report.messages, "new message"), *summary]))
    if report.indexed < 1:
        yield _styled_line(format_share(report.indexed), "yellow")
    archived = f"{plural(sizes.messages, 'message')} of {plural(sizes.sessions, 'session')}"
    text, archive, index = map(format_byte_size, (sizes.text, sizes.archive, sizes.index))
    yield _styled_line(f"Archived: {archived}; text {text}, archive {archive}, index {index}")
    yield from exclusion_lines(excluded)


def _file_counts(report: SyncReport) -> list[tuple[str, int]]:
    return [
        ("new", report.new),
        ("grown", report.grown),
        ("rewritten", report.rewritten),
        ("unchanged", report.unchanged),
        ("gone (still archived)", report.gone),
        ("without a conversation", report.foreign),
        ("unreadable", len(report.failed)),
    ]


def exclusion_lines(excluded: Mapping[str, int]) -> Iterator[StyledLine]:
    """Render the share of text that searches exclude, by reason."""
    reasons = _nonzero_reasons(excluded)
    total = sum(excluded.values())
    if not total:
        return
    skipped = sum(reasons.values())
    share = f"{skipped / total:.0%} of {plural(total, 'text')}"
    yield _styled_line(f"Excluded from searches: {share}; `search --all` includes them")
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        label = EXCLUSION_LABELS.get(reason, reason)
        yield _styled_line(f"  {count / total:6.1%}  {format_count(count):>9}  {label}", "dim")


def _nonzero_reasons(excluded: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in excluded.items() if reason and count}


def sync_report_value(report: SyncReport, sizes: MemorySizes, excluded: Mapping[str, int]) -> dict[str, Any]:
    """Return the result of a sync as a JSON value."""
    formatted = {"failed": list(report.failed), "seconds": round(report.seconds, 3)}
    value = {_SYNC_KEYS.get(name, name): count for name, count in (report._asdict() | formatted).items()}
    return value | {"sizes": to_builtins(sizes), "excluded_texts": exclusion_value(excluded)}


def exclusion_value(excluded: Mapping[str, int]) -> dict[str, Any]:
    """Return the number of excluded texts by reason and their share of all texts."""
    total = sum(excluded.values())
    reasons = _nonzero_reasons(excluded)
    return {"by_reason": reasons, "total": total, "share": sum(reasons.values()) / total if total else 0.0}


def archived_session_lines(sessions: Sequence[ArchivedSession]) -> Iterator[StyledLine]:
    """Render sessions, one per line."""
    names = shorten_session_ids([redact(session.id) for session in sessions])
    for session, name in zip(sessions, names, strict=True):
        time = session.ended or session.started
        project = abbreviate_home(shorten(redact(session.project), 60))
        details = [format_local_time(time) if time else "", plural(session.messages, "message"), project]
        facts = f"  {session.agent}  {'  '.join(filter(None, details))}"
        title = shorten(redact(session.title), 60)
        yield StyledLine(((f"  {name}", "bold"), (facts, ""), (f"  {title}", "dim")), hanging_indent=2)


def archived_session_value(session: ArchivedSession) -> dict[str, Any]:
    """Return an archived session as a JSON value, without its internal key."""
    value: dict[str, Any] = to_builtins(session)
    fields = {_ARCHIVE_KEYS.get(name, name): value[name] for name in value if name != "key"}
    return {name: redact(field) if isinstance(field, str) else field for name, field in fields.items()}


def wrap_lines_in_tags(lines: Iterable[StyledLine], ids: Iterable[str]) -> Iterator[StyledLine]:
    """Enclose lines in recall tags, for output to a pipe."""
    yield _styled_line(format_opening_tag(ids))
    for line in lines:
        yield StyledLine(((neutralize_tags(line.text), ""),))
    yield _styled_line(CLOSING_TAG)


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


def _styled_line(text: str, style: str = "", *, hang: int = 0) -> StyledLine:
    return StyledLine(((text, style),), hanging_indent=hang)


def _command_line(label: str, text: str, *, lead: str = "  ") -> StyledLine:
    return StyledLine(((f"{lead}{label} ", "dim"), (text, "cyan")), no_wrap=True)
