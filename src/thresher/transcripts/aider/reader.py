"""Aider: one Markdown file a project, in which each start begins another run; a run is a session.

Only the start has a time, in the user's own zone, which is not told. A run is named by it, so that it keeps its name
while the file grows. What Aider prints before the first prompt (version, models, files) are facts of the run; what it
prints later answers the edits in the words before it, or is an output of its own: a command that was run, a commit.
`/ask` and its like write the question down once more; it is read once.
"""

import glob
import re
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import Author, History, Message, Session, SourceLocation, Text, Usage
from thresher.transcripts.aider.blocks import (
    AIDER_PREFIX,
    HEADER,
    USER_PREFIX,
    AiderBlock,
    AiderRun,
    split_aider_blocks,
    split_aider_runs,
)
from thresher.transcripts.aider.edits import find_applied_files, match_edit_results, parse_aider_answer
from thresher.transcripts.base import SessionFolder, TranscriptFormat, make_session, parse_time, title_from_prompt
from thresher.transcripts.source import SourceFile

NAME = "aider"
HISTORY_FILE = ".aider.chat.history.md"
SNIFFED_LINES = 2000
"""Lines in which the first header is looked for: a file may have lost its beginning."""

_VERSION = re.compile(r"Aider v(\S+)")
_MODEL = re.compile(r"(?:Main )?[Mm]odels?: (\S+?)⚡? with .*?edit format\b.*")
_FOLDER = re.compile(r"(?:Git|Cur) working dir: (.+)")
_NUMBER = r"(\d[\d,.]*[kM]?)"
_TOKENS = re.compile(
    rf"Tokens: {_NUMBER} sent(?:, {_NUMBER} cache write)?(?:, {_NUMBER} (?:cache hit|cached))?, {_NUMBER} received\b.*"
)
_NOTICE = re.compile(r"Cost: \$.* session\..*|(?:Weak model|Editor model|Git repo|Repo-map): .*|Use /help .*")
_GENERATED_PROMPT = re.compile(r"# Fix any errors below|I ran this command:\n|# Question:[^\n]*\n\s*# Relevant docs:")
"""Prompts that Aider makes of what a linter, a command or its own manual says."""
_CHAT_COMMANDS = ("/ask", "/code", "/architect", "/context", "/help")


def _read(source: SourceFile) -> list[Session]:
    """Every run."""
    sessions: list[Session] = []
    names: Counter[str] = Counter()
    for run in split_aider_runs(source):
        session = _build_session(source, run)
        if not run.started and not session.history:
            continue
        names[session.id] += 1
        again = names[session.id]
        sessions.append(replace(session, id=f"{session.id}-{again}") if again > 1 else session)
    if not sessions:
        source.report("no run of Aider is in it", "read as a session without messages")
        sessions = [Session(NAME, source.stem or "beginning", source.file, (History(),))]
    sessions[0] = replace(sessions[0], problems=tuple(source.problems))
    return sessions


def _build_session(source: SourceFile, run: AiderRun) -> Session:
    teller = _RunReader(source)
    found = split_aider_blocks(run)
    for block, following in zip_longest(found, found[1:]):
        teller.read_block(block, following)
    history = History(tuple(teller.messages))
    started = parse_time(run.started)
    if run.started and started is None:
        source.report(f"a run started at {run.started!r}, which is no time", "it has none", run.first_line - 1)
    prompts = [m for m in history if not m.text.startswith("/") or m.text.startswith(_CHAT_COMMANDS)]
    return make_session(
        NAME,
        source,
        run.started.replace("-", "").replace(":", "").replace(" ", "-") or "beginning",
        [history],
        records=teller.records,
        project=teller.project_folder
        or (str(source.path.absolute().parent) if source.path.name == HISTORY_FILE else ""),
        title=title_from_prompt([History(tuple(prompts)), history]),
        version=teller.version,
        started=started,
        problems=(),
    )


class _RunReader:
    """One run, as far as it is told."""

    def __init__(self, source: SourceFile) -> None:
        self._file = source.file
        self._model = ""
        self.messages: list[Message] = []
        self.records: Counter[str] = Counter()
        """Blocks by whose they are; of what is no part of the conversation, lines."""
        self.version = ""
        self.project_folder = ""

    def read_block(self, block: AiderBlock, following: AiderBlock | None) -> None:
        """The next block, and the one after it: that says whether an edit was one."""
        self.records[block.kind] += 1
        match block.kind:
            case "user":
                self._read_user_block(block)
            case "assistant":
                said = following.lines if following and following.kind == "tool" else []
                parts = parse_aider_answer(block.lines, block.line, find_applied_files(said))
                message = Message("assistant", parts, "model", str(block.line), model=self._model)
                self._add_message(message, block)
            case _:
                self._read_tool_block(block)

    def _add_message(self, message: Message, block: AiderBlock) -> None:
        if message.parts:
            self.messages.append(replace(message, source=SourceLocation(self._file, block.line)))

    def _read_user_block(self, block: AiderBlock) -> None:
        text = "\n".join(block.lines).strip()
        if text in ("", "<blank>"):
            self.records["blank"] += 1
        elif self.messages and self.messages[-1].role == "user" and _command_argument(self.messages[-1].text) == text:
            self.records["repeated"] += 1
        else:
            author: Author = "harness" if _GENERATED_PROMPT.match(text) else infer_message_author("user", (Text(text),))
            self._add_message(Message("user", (Text(text),), author, str(block.line)), block)

    def _read_tool_block(self, block: AiderBlock) -> None:
        lines = [line for line in block.lines if not self._consume_run_fact(line)]
        if not self.messages:
            self.records["start"] += len(lines)
            return
        results, rest = match_edit_results([*self.messages[-1].calls], lines)
        self._add_message(Message("tool", results, "tool", f"{block.line}-results"), block)
        text = "\n".join(rest).strip()
        self._add_message(Message("user", (Text(text),) if text else (), "tool", str(block.line)), block)

    def _consume_run_fact(self, line: str) -> bool:
        """Whether a line tells something of the run, which is noted."""
        if found := _VERSION.fullmatch(line):
            self.version = found[1]
        elif found := _MODEL.fullmatch(line):
            self._model = found[1]
        elif found := _FOLDER.fullmatch(line):
            self.project_folder = self.project_folder or found[1]
        elif found := _TOKENS.fullmatch(line):
            self._assign_usage(_parse_usage(found))
        elif not _NOTICE.fullmatch(line):
            return False
        self.records["fact"] += 1
        return True

    def _assign_usage(self, usage: Usage) -> None:
        """A bill is for the answer right before it, if there was one."""
        last = self.messages[-1] if self.messages else None
        if last and last.role == "assistant" and last.usage is None:
            self.messages[-1] = replace(last, usage=usage)


def _command_argument(text: str) -> str:
    """What a command is told, if a text is one."""
    words = text.split(maxsplit=1) if text.startswith("/") else []
    return words[1] if len(words) > 1 else ""


def _parse_usage(found: re.Match[str]) -> Usage:
    sent, written, cached, received = (_parse_token_count(one) for one in found.groups(default="0"))
    # Some versions count what a cache served as sent, others do not: then it may be more than that.
    fresh = sent - written if written <= sent else sent
    return Usage(fresh - cached if cached <= fresh else fresh, received, cached, written)


def _parse_token_count(text: str) -> int:
    """Aider rounds what is over a thousand: `5,244`, `3.2k`."""
    scale = {"k": 1000, "M": 1_000_000}.get(text[-1], 1)
    try:
        return round(float(text.rstrip("kM").replace(",", "")) * scale)
    except (ValueError, OverflowError):
        return 0


def _sniff(source: SourceFile) -> int:
    """The header of a run: in the first line, or below what is left of an earlier run."""
    if source.is_database:
        return 0
    is_first, is_quoted = True, False
    for number, line in source.copy_for_session().lines():
        text = line.decode("utf-8", "replace").lstrip("\ufeff")
        if HEADER.fullmatch(text):
            return 3 if number <= 2 else 2 if is_quoted else 0
        if (is_first and text.startswith(("{", "["))) or number > SNIFFED_LINES:
            return 0
        is_first, is_quoted = False, is_quoted or text.startswith((AIDER_PREFIX, USER_PREFIX))
    return 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:  # noqa: ARG001 - a format's homes depend on both
    """`AIDER_CHAT_HISTORY_FILE`, and the folder that one is in; a home is never searched through for projects."""
    here = environment.get("PWD") or ""
    named = environment.get("AIDER_CHAT_HISTORY_FILE")
    files = [Path(here, named)] if named else []
    files += [Path(here, HISTORY_FILE)] if here else []
    return [SessionFolder(file.parent, glob.escape(file.name)) for file in files]


FORMAT = TranscriptFormat(
    NAME,
    "Aider",
    _sniff,
    _read,
    _homes,
    resume="aider --restore-chat-history",
    layouts="chat history Markdown, every run; edits as search/replace blocks, whole files, diffs and patches",
    holds=("thinking", "usage", "edits"),
    seen="0.47 to 0.51",
)
