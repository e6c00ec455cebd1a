"""Parse a tool chain: its action, target and outcome."""

import re
from collections.abc import Container
from typing import Any, NamedTuple

from thresher.model import History, Place, ToolCall, ToolChain, ToolResult
from thresher.model.jsontext import load_json_object
from thresher.model.text import to_printable_line
from thresher.model.tool_calls import ToolCallDetails, describe_tool_call
from thresher.model.tool_outcomes import COMMAND_CATEGORIES, ToolOutcome, parse_tool_outcome

QUERY_KEYS = (
    "query", "queries", "search_query", "search_term", "searchTerm", "q", "pattern", "regex", "glob_pattern", "glob",
    "url", "urls", "uri", "keyword", "search", "action",
)  # fmt: skip
"""Argument keys that hold the query of a search or the address of a fetch."""
QUESTION_KEYS = ("question", "questions", "prompt", "message")


class ChainAction(NamedTuple):
    """Action and outcome of one tool chain."""

    turn: int
    call: ToolCall
    use: ToolCallDetails
    fields: dict[str, Any]
    outcome: ToolOutcome

    @property
    def is_command(self) -> bool:
        """True if the chain runs a command that does more than read or patch a file."""
        return self.use.category in ("execution", "project") and not self.use.operation

    @property
    def is_silent(self) -> bool:
        """True if a command exited with 1 and printed nothing, which usually means that it found nothing."""
        return self.outcome.exit_code == 1 and not self.outcome.output.strip()

    @property
    def query(self) -> str:
        """Query of a search, or address of a fetch."""
        return to_printable_line(_first_argument(self.fields, QUERY_KEYS))

    @property
    def question(self) -> str:
        """The question to the user."""
        return to_printable_line(_first_argument(self.fields, QUESTION_KEYS)) or to_printable_line(self.use.intent)

    @property
    def command(self) -> str:
        """First line of the command that is neither empty nor a comment, without a leading `cd`."""
        lines = (_LEADING_CD.sub("", to_printable_line(text)) for text in self.use.command.splitlines())
        return next((text for text in lines if text and not text.startswith("#")), "")

    @property
    def retry_key(self) -> tuple[str, ...]:
        """Key that two calls share if the later one can be a retry of the earlier one."""
        use = self.use
        if use.category == "file_edit":
            return ("edit", use.path)
        if use.path:
            return (use.operation or use.category, use.path)
        if use.command:
            return ("run", *_command_words(use.command))
        return (self.call.name, self.query or to_printable_line(use.intent))


def parse_chain_action(
    history: History, chain: ToolChain, *, members: Container[Place] | None = None
) -> ChainAction | None:
    """Parse a tool chain; with `members`, ignore a result at any other place."""
    call = history.part(chain.call)
    if not isinstance(call, ToolCall):
        return None
    use = describe_tool_call(call)
    is_visible = chain.result is not None and (members is None or chain.result in members)
    result = history.part(chain.result) if chain.result is not None and is_visible else None
    tool_result = result if isinstance(result, ToolResult) else None
    outcome = parse_tool_outcome(
        tool_result,
        is_command=bool(use.command) or use.category in COMMAND_CATEGORIES,
        is_read=use.operation == "read",
    )
    return ChainAction(history.turn(chain.call.message), call, use, load_json_object(call.arguments), outcome)


def _first_argument(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            value = next((value[inner_key] for inner_key in keys if isinstance(value.get(inner_key), str)), None)
        if isinstance(value, str) and value.strip():
            return value
    return ""


_LEADING_CD = re.compile(r"^cd [^\s;&|]+ ?(?:&&|;) ?")
_COMMAND_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
MAX_COMPARED_CHARS = 400


def _command_words(command: str) -> list[str]:
    """Return the first two words of each step of a command, without options."""
    words_by_step: list[str] = []
    for step in _COMMAND_SEPARATOR.split(command[:MAX_COMPARED_CHARS]):
        words = [word for word in step.split() if not word.startswith(("-", "2>", ">"))]
        if words and words[0] != "cd":
            words_by_step += words[:2]
    return words_by_step
