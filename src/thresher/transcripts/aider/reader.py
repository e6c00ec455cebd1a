"""Aider: one Markdown file per project. Each start of Aider begins a run, and each run is a session.

Only the start of a run has a time, in an unknown time zone. The session id derives from this time and stays the same
while the file grows. Aider's output before the first prompt (version, models, files) becomes metadata of the session.
Later output contains the results of the edits in the previous answer. The rest of this output, such as the output of a
command, becomes a message. Aider writes the question of a command such as `/ask` twice; the reader keeps it once.
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
"""Maximum number of lines to search for the first header, since the start of the file may be missing."""
MAX_SNIFFED_LINE_BYTES = 10_000
"""Maximum length of a line that may be a header; longer ones need not be decoded."""

_VERSION = re.compile(r"Aider v(\S+)")
_MODEL = re.compile(r"(?:Main )?[Mm]odels?: (\S+?)⚡? with .*?edit format\b.*")
_FOLDER = re.compile(r"(?:Git|Cur) working dir: (.+)")
_NUMBER = r"(\d[\d,.]*[kM]?)"
_TOKENS = re.compile(
    rf"Tokens: {_NUMBER} sent(?:, {_NUMBER} cache write)?(?:, {_NUMBER} (?:cache hit|cached))?, {_NUMBER} received\b.*"
)
_NOTICE = re.compile(r"Cost: \$.* session\..*|(?:Weak model|Editor model|Git repo|Repo-map): .*|Use /help .*")
_GENERATED_PROMPT = re.compile(r"# Fix any errors below|I ran this command:\n|# Question:[^\n]*\n\s*# Relevant docs:")
"""Prompts that Aider generates from the output of a linter or a command, or from its manual."""
_CHAT_COMMANDS = ("/ask", "/code", "/architect", "/context", "/help")


def _read(source: SourceFile) -> list[Session]:
    """Read every run."""
    sessions: list[Session] = []
    id_counts: Counter[str] = Counter()
    for run in split_aider_runs(source):
        session = _build_session(source, run)
        if not run.started and not session.history:
            continue
        id_counts[session.id] += 1
        count = id_counts[session.id]
        sessions.append(replace(session, id=f"{session.id}-{count}") if count > 1 else session)
    if not sessions:
        source.report("the file has no run of Aider", "read as a session without messages")
        sessions = [Session(NAME, source.stem or "beginning", source.file, (History(),))]
    sessions[0] = replace(sessions[0], problems=tuple(source.problems))
    return sessions


def _build_session(source: SourceFile, run: AiderRun) -> Session:
    reader = _RunReader(source)
    blocks = split_aider_blocks(run)
    for block, following in zip_longest(blocks, blocks[1:]):
        reader.read_block(block, following)
    history = History(tuple(reader.messages))
    started = parse_time(run.started)
    if run.started and started is None:
        source.report(f"the start {run.started!r} of a run is not a valid time", "ignored", run.first_line - 1)
    default_project = str(source.path.absolute().parent) if source.path.name == HISTORY_FILE else ""
    prompts = [m for m in history if not m.text.startswith("/") or m.text.startswith(_CHAT_COMMANDS)]
    return make_session(
        NAME,
        source,
        run.started.replace("-", "").replace(":", "").replace(" ", "-") or "beginning",
        [history],
        records=reader.records,
        project=reader.project_folder or default_project,
        title=title_from_prompt([History(tuple(prompts)), history]),
        version=reader.version,
        started=started,
        problems=(),
    )


class _RunReader:
    """Reader that collects the messages and metadata of one run."""

    def __init__(self, source: SourceFile) -> None:
        self._file = source.file
        self._model = ""
        self.messages: list[Message] = []
        self.records: Counter[str] = Counter()
        """Counts of blocks by kind, and of lines outside of the conversation."""
        self.version = ""
        self.project_folder = ""

    def read_block(self, block: AiderBlock, following: AiderBlock | None) -> None:
        """Read a block. The block `following` shows which edits Aider applied."""
        self.records[block.kind] += 1
        match block.kind:
            case "user":
                self._read_user_block(block)
            case "assistant":
                output = following.lines if following and following.kind == "tool" else []
                parts = parse_aider_answer(block.lines, block.line, find_applied_files(output))
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
        lines = [line for line in block.lines if not self._consume_metadata(line)]
        if not self.messages:
            self.records["start"] += len(lines)
            return
        results, rest = match_edit_results([*self.messages[-1].calls], lines)
        self._add_message(Message("tool", results, "tool", f"{block.line}-results"), block)
        text = "\n".join(rest).strip()
        self._add_message(Message("user", (Text(text),) if text else (), "tool", str(block.line)), block)

    def _consume_metadata(self, line: str) -> bool:
        """Store the metadata in a line. Return True if the line has metadata."""
        if match := _VERSION.fullmatch(line):
            self.version = match[1]
        elif match := _MODEL.fullmatch(line):
            self._model = match[1]
        elif match := _FOLDER.fullmatch(line):
            self.project_folder = self.project_folder or match[1]
        elif match := _TOKENS.fullmatch(line):
            self._assign_usage(_parse_usage(match))
        elif not _NOTICE.fullmatch(line):
            return False
        self.records["fact"] += 1
        return True

    def _assign_usage(self, usage: Usage) -> None:
        """Set the usage of the last message, if this message is an answer without a usage."""
        last = self.messages[-1] if self.messages else None
        if last and last.role == "assistant" and last.usage is None:
            self.messages[-1] = replace(last, usage=usage)


def _command_argument(text: str) -> str:
    """Return the argument of a slash command; empty for any other text."""
    words = text.split(maxsplit=1) if text.startswith("/") else []
    return words[1] if len(words) > 1 else ""


def _parse_usage(match: re.Match[str]) -> Usage:
    sent, written, cached, received = (_parse_token_count(group) for group in match.groups(default="0"))
    # Some versions count cached tokens as sent. In other versions, the cached tokens can exceed the sent tokens.
    uncached = sent - written if written <= sent else sent
    return Usage(uncached - cached if cached <= uncached else uncached, received, cached, written)


def _parse_token_count(text: str) -> int:
    """Parse a count such as `5,244` or `3.2k`."""
    scale = {"k": 1000, "M": 1_000_000}.get(text[-1], 1)
    try:
        return round(float(text.rstrip("kM").replace(",", "")) * scale)
    except (ValueError, OverflowError):
        return 0


def _sniff(source: SourceFile) -> int:
    """Match the header of a run, in the first two lines or after lines of an earlier run."""
    if source.is_database:
        return 0
    is_first, is_quoted = True, False
    short_lines = SourceFile(source.path, replace(source.limits, line=MAX_SNIFFED_LINE_BYTES))
    for number, line in short_lines.lines():
        text = line.decode("utf-8", "replace").lstrip("\ufeff")
        if HEADER.fullmatch(text):
            return 3 if number <= 2 else 2 if is_quoted else 0
        if (is_first and text.startswith(("{", "["))) or number > SNIFFED_LINES:
            return 0
        is_first, is_quoted = False, is_quoted or text.startswith((AIDER_PREFIX, USER_PREFIX))
    return 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:  # noqa: ARG001 - the signature of all formats
    """Return the file that `AIDER_CHAT_HISTORY_FILE` names, and the history in the current folder.

    The histories of other projects cannot be discovered.
    """
    folder = environment.get("PWD") or ""
    configured = environment.get("AIDER_CHAT_HISTORY_FILE")
    files = [Path(folder, configured)] if configured else []
    files += [Path(folder, HISTORY_FILE)] if folder else []
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
