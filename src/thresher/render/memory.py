"""What memory finds, as lines for a person and as plain values for a program.

A line is pieces of text, each with a style. A terminal gets the styles; where nobody looks at colours the pieces are
put together as they are and nothing else needs to be imported, since an agent that searches waits for it.

What an agent reads of this it writes into its own transcript, and the next sync reads that. So what goes into a
pipe stands between `<thresher-recall>` marks that name the sessions; text that could close the mark is changed. All
words of a transcript go through `clean`, and a line of the screen is never broken by one of theirs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from msgspec import to_builtins

from thresher.memory.hits import Answer, Excerpt, Hit, Recalled, SessionHit
from thresher.memory.secrets import redact
from thresher.memory.values import Facts, Report, Sizes
from thresher.render.marks import CLOSING, harmless, opening
from thresher.render.words import amount, clean, plural, shorten, size

LONGEST_TITLE = 100

_LABELS = {
    "human": "user",
    "agent": "asst",
    "thinking": "think",
    "summary": "sum",
    "input": "call",
    "commands": "run",
    "edits": "edit",
    "output": "tool",
}
_COLOURS = {"human": "bold green", "model": "bold blue", "tool": "magenta"}
_FOUND = "bold red"
_BLANK = re.compile(r"\s+")

REASONS = {
    "recall": "in recalls",
    "sub-agent": "in sub-agents",
    "current session": "in the current session",
    "short": "too short",
    "interruption": "in interruptions",
    "error": "in errors of an API",
    "command": "in commands",
    "editor": "in the editor's state",
    "harness": "from the harness",
    "syntax": "in calls written as text",
    "system": "in system prompts",
}
"""Why something is left out, in words; a reason that is not here speaks for itself."""


class Line(NamedTuple):
    """One line; where a terminal must wrap it, its later rows start under the character `hang`."""

    pieces: tuple[tuple[str, str], ...]
    """Texts, each with its style."""
    hang: int = 0
    copied: bool = False
    """A command, to be copied: never wrapped."""

    @property
    def text(self) -> str:
        """All of it, without styles."""
        return "".join(text for text, _ in self.pieces)


def answer_lines(answer: Answer, *, program: str = "thresher", where: str = "", following: str = "") -> Iterator[Line]:
    """What was found: each session with its best messages, then how many there are and what was left out.

    `where` says to `show` where the sessions lie, if that is not known; `following` is the command for the next page.
    """
    names = short_ids([session.id for session in answer.sessions])
    for session, name in zip(answer.sessions, names, strict=True):
        yield from _session(session, name, f"{program} show {quote(name)}{where}")
        yield _line("")
    yield from _ending(answer, following)


def nothing_lines(answer: Answer, sizes: Sizes, *, program: str = "thresher") -> Iterator[Line]:
    """What to do where nothing was found."""
    if not sizes.sessions:
        yield _line("Nothing is remembered yet: no session was found on this machine.", "bold")
        yield _line(f"Sessions elsewhere: {program} search WORDS… --source PATH; samples: {program} demo")
        return
    kept = f"{plural(sizes.messages, 'message')} of {plural(sizes.sessions, 'session')}"
    yield _line(f"Nothing found in {kept}.", "bold")
    tries = [
        "other words for it, or only the beginning of one: migrat*",
        "fewer conditions (--require, --project, --since, --role, …)",
        "what tools printed: --field output; file names: --field paths",
        "what is left out otherwise: --all",
    ]
    yield from (Line((("  try ", "dim"), (one, ""))) for one in tries)
    yield from _left_out_here(answer.excluded)


def _session(session: SessionHit, name: str, show: str) -> Iterator[Line]:
    bar = (" | ", "dim")
    place = (tilde(shorten(session.project, 200)) or "(no folder)", "bold cyan")
    facts = [place, bar, (name, "bold"), bar, (plural(session.matches, "match", "matches"), "")]
    facts += [bar, (_minute(session.time), "")] if session.time else []
    facts += [bar, (f"sub-agent of {short_ids([session.parent])[0]}", "")] if session.parent else []
    facts += [bar, ("from the archive: its file is gone", "yellow")] if session.gone else []
    yield Line(tuple(facts))
    title = shorten(session.title, LONGEST_TITLE)
    told = " · ".join(filter(None, (session.agent, shorten(session.branch, 60), title)))
    yield _line(f"  {told}", "dim", hang=2)
    yield from map(_hit, session.hits)
    more = session.matches - len(session.hits)
    if more > 0:
        yield _line(f"  ... and {plural(more, 'more match', 'more matches')}", "dim")
    if session.family:
        ids = ", ".join(short_ids(session.family)[:5]) + (", …" if len(session.family) > 5 else "")
        yield _line(f"  also: {len(session.family)} of its family ({ids})", "dim", hang=2)
    yield _command("show:  ", f"{show} --around {session.hits[0].at}" if session.hits else show)
    if session.resume:
        yield _command("resume:", clean(session.resume).replace("\n", " "))


def _hit(hit: Hit) -> Line:
    label = f"  [{_label(hit)}] "
    pieces = ((label, _COLOURS.get(hit.author, "dim")), *_words(hit), (f"  #{hit.at}", "dim"))
    return Line(pieces, hang=len(label))


def _words(hit: Hit) -> Iterator[tuple[str, str]]:
    """The text as one row, with what was looked for apart, and a sign where there is more of it."""
    yield "… " if hit.cut[0] else "", "dim"
    position = 0
    for start, end in sorted(hit.marks):
        if start >= position:
            yield _row(hit.text[position:start]), ""
            yield _row(hit.text[start:end]), _FOUND
            position = end
    yield _row(hit.text[position:]), ""
    yield " …" if hit.cut[1] else "", "dim"


def _row(text: str) -> str:
    return _BLANK.sub(" ", clean(text))


def _ending(answer: Answer, following: str) -> Iterator[Line]:
    shown = len(answer.sessions)
    some = f" ({shown} of them here, page {answer.page})" if shown < answer.found else ""
    yield _line(f"Found matches in {plural(answer.found, 'session')}{some}", "bold")
    yield from _left_out_here(answer.excluded)
    if following:
        yield _command("next:  ", following, lead="")


def _left_out_here(excluded: Mapping[str, int]) -> Iterator[Line]:
    told = [f"{amount(number)} {REASONS.get(reason, reason)}" for reason, number in excluded.items() if number]
    if told:
        yield _line(f"left out: {', '.join(told)}; --all lets them in", "dim")


def answer_value(answer: Answer) -> dict[str, Any]:
    """The same for a program; the names are stable."""
    return {
        "query": answer.query,
        "sessions": [_session_value(session) for session in answer.sessions],
        "found": answer.found,
        "page": answer.page,
        "more": answer.more,
        "excluded": dict(answer.excluded),
    }


def _session_value(session: SessionHit) -> dict[str, Any]:
    return {
        "id": session.id,
        "agent": session.agent,
        "project": session.project,
        "branch": session.branch,
        "title": session.title,
        "file": session.file,
        "line": session.line,
        "score": session.score,
        "matches": session.matches,
        "time": _iso(session.time),
        "family": list(session.family),
        "parent": session.parent,
        "gone": session.gone,
        "resume": session.resume,
        "hits": [_hit_value(hit) for hit in session.hits],
    }


def _hit_value(hit: Hit) -> dict[str, Any]:
    return {
        "role": hit.role,
        "author": hit.author,
        "kind": hit.kind,
        "text": hit.text,
        "at": hit.at,
        "line": hit.line,
        "time": _iso(hit.time),
    }


def recalled_lines(recalled: Recalled, *, program: str = "thresher") -> Iterator[Line]:
    """What one session says about a question, with the places where it says so."""
    session = recalled.session
    name = short_ids([session.id])[0]
    bar = (" | ", "dim")
    place = tilde(shorten(session.project, 200)) or "(no folder)"
    told = shorten(session.title, LONGEST_TITLE)
    yield Line(((place, "bold cyan"), bar, (name, "bold"), bar, (told or session.agent, "dim")))
    gone = " (gone: this comes from the archive)" if session.gone else ""
    yield Line((("file: ", "dim"), (tilde(shorten(session.file, 300)), "cyan"), (gone, "yellow")), copied=True)
    if not recalled.found:
        yield _line("Not in this session.", "bold")
        yield _command("others:", f"{program} search {quote(shorten(recalled.question, 200))}", lead="")
        return
    if recalled.answer:
        yield from (_line(row) for row in ("", *clean(recalled.answer).strip().split("\n")))
    for excerpt in recalled.excerpts:
        yield _line("")
        yield _citation(excerpt)
        yield Line((("    ", ""), *_words(excerpt)), hang=4)
    yield _line("")
    yield _line(f"{plural(len(recalled.excerpts), 'excerpt')}, about {amount(recalled.tokens)} tokens", "dim")
    best = max(recalled.excerpts, key=lambda one: len(one.marks))
    yield _command("show:  ", f"{program} show {quote(name)} --around {best.at}", lead="")


def _label(hit: Hit) -> str:
    """Who speaks, or what is done; what a harness or a memory tool put in a human's place has their name."""
    return hit.author if hit.author in ("harness", "recall") else _LABELS.get(hit.kind, hit.kind)


def _citation(excerpt: Excerpt) -> Line:
    line = f"line {excerpt.line}" if excerpt.line else ""
    time = _minute(excerpt.time) if excerpt.time else ""
    facts = " · ".join(filter(None, (line, _label(excerpt), time)))
    return Line(((f"[{excerpt.at}] ", "bold"), (facts, "dim")))


def recalled_value(recalled: Recalled) -> dict[str, Any]:
    """The same for a program."""
    session = recalled.session
    return {
        "question": recalled.question,
        "found": recalled.found,
        "answer": recalled.answer,
        "session": {
            "id": session.id,
            "agent": session.agent,
            "project": session.project,
            "branch": session.branch,
            "title": session.title,
            "file": session.file,
            "gone": session.gone,
            "resume": session.resume,
        },
        "excerpts": [
            _hit_value(excerpt) | {"file": session.file, "tokens": excerpt.tokens} for excerpt in recalled.excerpts
        ],
        "tokens": recalled.tokens,
    }


def report_lines(report: Report, sizes: Sizes, left_out: Mapping[str, int]) -> Iterator[Line]:
    """What a sync did, and what is kept now."""
    if report.busy:
        yield _line("Another sync is at work; nothing was done here.", "bold yellow")
    else:
        told = [f"{amount(number)} {name}" for name, number in _files(report) if number]
        looked = sum(number for _, number in _files(report))
        yield _line(
            f"{plural(looked, 'file')} looked at in {report.seconds:.1f} s: {', '.join(told) or 'none'}", "bold"
        )
        more = [f"forgot {plural(report.forgotten, 'session')} older than the retention"] if report.forgotten else []
        again = report.forgotten_again
        more += [f"{plural(again, 'session')} in these files stay forgotten"] if again else []
        yield _line("; ".join([plural(report.messages, "new message"), *more]))
    yield _line(
        f"Kept: {plural(sizes.messages, 'message')} of {plural(sizes.sessions, 'session')}; "
        f"text {size(sizes.text)}, archive {size(sizes.archive)}, index {size(sizes.index)}"
    )
    yield from left_out_lines(left_out)


def _files(report: Report) -> list[tuple[str, int]]:
    return [
        ("new", report.new),
        ("grown", report.grown),
        ("rewritten", report.rewritten),
        ("unchanged", report.unchanged),
        ("gone (what they held is kept)", report.gone),
        ("no conversation", report.foreign),
        ("not readable", len(report.failed)),
    ]


def left_out_lines(left_out: Mapping[str, int]) -> Iterator[Line]:
    """What a search does not look into, and how much of everything that is."""
    reasons = _reasons(left_out)
    every = sum(left_out.values())
    if not every:
        return
    gone = sum(reasons.values())
    yield _line(f"Left out of searches: {gone / every:.0%} of {plural(every, 'text')}; `search --all` lets it in")
    for reason, number in sorted(reasons.items(), key=lambda one: -one[1]):
        yield _line(f"  {number / every:6.1%}  {amount(number):>9}  {REASONS.get(reason, reason)}", "dim")


def _reasons(left_out: Mapping[str, int]) -> dict[str, int]:
    return {reason: number for reason, number in left_out.items() if reason and number}


def report_value(report: Report, sizes: Sizes, left_out: Mapping[str, int]) -> dict[str, Any]:
    """The same for a program."""
    told = {"failed": list(report.failed), "seconds": round(report.seconds, 3)}
    return report._asdict() | told | {"sizes": to_builtins(sizes), "left_out": left_out_value(left_out)}


def left_out_value(left_out: Mapping[str, int]) -> dict[str, Any]:
    """How much is left out, by reason, and as a share of all: texts, of which a message can have several."""
    every = sum(left_out.values())
    reasons = _reasons(left_out)
    return {"texts": reasons, "of": every, "share": sum(reasons.values()) / every if every else 0.0}


def facts_lines(sessions: Sequence[Facts]) -> Iterator[Line]:
    """Sessions, one a line."""
    names = short_ids([one.id for one in sessions])
    for one, name in zip(sessions, names, strict=True):
        time = one.ended or one.started
        told = [_minute(time) if time else "", plural(one.messages, "message"), tilde(shorten(one.project, 60))]
        facts = f"  {one.agent}  {'  '.join(filter(None, told))}"
        title = shorten(redact(one.title), 60)
        yield Line(((f"  {name}", "bold"), (facts, ""), (f"  {title}", "dim")), hang=2)


def facts_value(one: Facts) -> dict[str, Any]:
    """A session that is kept, for a program; its number in the store says nothing outside."""
    value: dict[str, Any] = to_builtins(one)
    return {name: value[name] for name in value if name != "key"} | {"title": redact(one.title)}


def marked(lines: Iterable[Line], ids: Iterable[str]) -> Iterator[Line]:
    """Lines for a pipe: between marks that say whose words these are."""
    yield _line(opening(ids))
    for line in lines:
        yield Line(((harmless(line.text), ""),))
    yield _line(CLOSING)


def short_ids(ids: Sequence[str]) -> list[str]:
    """Enough of each id to name it: none of them is the beginning of another one here."""
    short = [_short(one) for one in ids]
    return [name if short.count(name) == 1 else _row(one) for name, one in zip(short, ids, strict=True)]


def _short(one: str) -> str:
    if len(one) != 36 or one.count("-") != 4:
        return _row(one)
    # The first digits of a UUID of version 7 are the minute.
    return _row(one[:13] if one[14] == "7" else one[:8])


def tilde(path: str) -> str:
    """A path with the home folder as `~`."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith((f"{home}/", f"{home}\\")) else path


def _minute(time: datetime) -> str:
    """The minute where whoever reads this is."""
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


def _line(text: str, style: str = "", *, hang: int = 0) -> Line:
    return Line(((text, style),), hang=hang)


def _command(label: str, text: str, *, lead: str = "  ") -> Line:
    return Line(((f"{lead}{label} ", "dim"), (text, "cyan")), copied=True)
