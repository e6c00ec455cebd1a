"""The policy `subagents`: remove finished sub-agents: their calls, results, and messages about them.

A sub-agent is recognized by its call, not by its result, so failed and unanswered sub-agents are removed as well. A
background sub-agent reports later, in a notification or in the result of a call with its id. The notification and the
call are removed, too. A sub-agent that has not reported is still running and stays, because the model needs its id.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from thresher.edits import Drop, Edit, Elision, Replace, Truncate
from thresher.model import History, Place, Text, ToolResult
from thresher.model.harness_text import find_harness_offsets, parse_orphan_label
from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_catalog import find_tool_kind
from thresher.model.turns import is_prompt
from thresher.policies.tools import is_failed_or_interrupted

POLICY_NAME = "subagents"
_AGENT_OUTPUT_TOOL_NAMES = (
    "agentoutputtool taskoutput get_task_output job_output read_agent wait wait_agent taskstop job_kill close_agent"
)
AGENT_OUTPUT_TOOLS = frozenset(_AGENT_OUTPUT_TOOL_NAMES.split())
"""Tools that query or stop an agent by its id."""
AGENT_INPUT_TOOLS = frozenset({"send_input", "resume_agent", "sendmessage", "send_message"})
"""Tools that send input to an agent by its id."""
MAX_END_CHARS = 600
"""Characters at both ends of a result in which a harness states the agent's id."""

_AGENT_ID = re.compile(
    r"""(?: ^agent_?Id:\ * | ^\s*\{\s*"(?:agent_id|agentId)"\s*:\s*" ) (?=[\w-]*\d) (?P<id>[\w-]{6,})""",
    re.MULTILINE | re.VERBOSE,
)
_ID_WORD = re.compile(r"[\w-]{6,}")
_NOTICE = re.compile(r"\s*<(?:task-notification|subagent_notification)\b", re.IGNORECASE)
_NOTICE_AGENT_ID = re.compile(
    r"""(?:<(?:task-id|tool-use-id)>|"(?:agent_id|agentId|agent_path)"\s*:\s*")(?P<id>[\w./-]+)"""
)
_BACKGROUND_OPENINGS = ("Async agent launched", "{")
_STILL_RUNNING = re.compile(
    r"""<status>running|"timed_out"\s*:\s*true|"status"\s*:\s*"running"|_status>(?:timeout|not_ready)"""
)
_NOTHING_SPENT = re.compile(r"<usage>total_tokens: 0\b")


@dataclass(frozen=True, kw_only=True)
class DropSubagents:
    """Remove finished sub-agents.

    `DropSubagents()` drops them with all messages about them. `DropSubagents(calls=False)` keeps their calls and
    replaces their results by placeholders. `DropSubagents(responses=False)` keeps their results and replaces the
    arguments. `DropSubagents(keep_failed=True)` keeps those that failed.
    """

    calls: bool = True
    """True if the calls are dropped; with `responses=False`, only their arguments are replaced."""
    responses: bool = True
    """True if the results are dropped with their calls; with `calls=False`, they are replaced by placeholders."""
    keep_failed: bool = False
    """True if a sub-agent stays when it failed, was interrupted or did nothing."""

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits, oldest first: tool chains, then notifications."""
        if not self.calls and not self.responses:
            return
        agents = [(link, _agent_ids(link)) for link in history.links if link.use.category == "subagent"]
        reported = {id_ for ids in _reported_ids(history) for id_ in ids} if agents else set()
        calls: set[Place] = set()
        removed: set[str] = set()
        kept: set[str] = set()
        for link, ids in agents:
            if self._is_kept(link, ids, reported):
                kept |= ids
            else:
                removed |= ids
                calls.add(link.chain.call)
        yield from self._edit_chains(history, calls, removed - kept, kept)
        if self.responses:
            yield from _remove_unpaired_reports(history)
            yield from _remove_notices(history, removed - kept) if removed else ()

    def _is_kept(self, link: ToolUse, ids: frozenset[str], reported: set[str]) -> bool:
        if link.chain.active or (self.keep_failed and _is_fruitless(link)):
            return True
        if ids & reported or link.result is None or not link.result.text.startswith(_BACKGROUND_OPENINGS):
            return False
        return bool(_AGENT_ID.search(link.result.text[:MAX_END_CHARS]))

    def _edit_chains(self, history: History, calls: set[Place], removed: set[str], kept: set[str]) -> Iterator[Edit]:
        for link in history.links if calls else ():
            if link.chain.call in calls:
                yield from self._edit_chain(history, link, "sub-agent")
            elif self.responses and link.use.category != "subagent":
                ids = _mentioned_ids(link)
                if ids & removed and not ids & kept:
                    yield from self._edit_chain(history, link, "call about a sub-agent")

    def _edit_chain(self, history: History, link: ToolUse, why: str) -> Iterator[Edit]:
        chain = link.chain
        if self.calls and self.responses:
            yield Drop(history.occurrence(chain.call), POLICY_NAME, why)
        elif self.calls:
            yield Replace(history.occurrence(chain.call), POLICY_NAME, why)
        elif chain.result is not None:
            yield Replace(history.occurrence(chain.result), POLICY_NAME, why)


def _remove_unpaired_reports(history: History) -> Iterator[Edit]:
    """Drop the reports whose call is not in the history; a repair may have written them as text.

    A report before the first prompt stays, because some APIs require that the user speaks first.
    """
    spoken = (i for i, message in enumerate(history.messages) if is_prompt(message) and message.text.strip())
    first = next(spoken, len(history)) + 1
    for i, message in enumerate(history.messages[first:], first):
        for j, part in enumerate(message.parts):
            if isinstance(part, Text) and message.role == "user" and message.author != "human":
                name = parse_orphan_label(part.text)
            else:
                name = part.name if isinstance(part, ToolResult) and Place(i, j) in history.orphans else ""
            if name and find_tool_kind(name).category == "subagent":
                yield Drop(history.occurrence(Place(i, j)), POLICY_NAME, "report of a sub-agent", over="injection")


def _agent_ids(link: ToolUse) -> frozenset[str]:
    """Return the ids of a sub-agent: the id of its call, and ids that the harness states in the call's result."""
    text = link.result.text if link.result else ""
    ends = (text,) if len(text) <= 2 * MAX_END_CHARS else (text[:MAX_END_CHARS], text[-MAX_END_CHARS:])
    return frozenset([link.call.id, *(found["id"] for end in ends for found in _AGENT_ID.finditer(end))])


def _is_fruitless(link: ToolUse) -> bool:
    if link.result is None or is_failed_or_interrupted(link):
        return True
    return bool(_NOTHING_SPENT.search(link.result.text[-MAX_END_CHARS:]))


def _mentioned_ids(link: ToolUse) -> frozenset[str]:
    """Return the words of a call that may be agent ids."""
    is_about_agent = link.call.name.lower() in AGENT_OUTPUT_TOOLS | AGENT_INPUT_TOOLS
    text = link.call.arguments if is_about_agent else link.use.path or link.use.command
    return frozenset(_ID_WORD.findall(text[:MAX_END_CHARS]))


def _reported_ids(history: History) -> Iterator[frozenset[str]]:
    """Yield the ids of agents that reported: in a notification, or in a result that does not report them as running."""
    for message in history.messages:
        for notices in _message_notices(message).values():
            yield from (ids for _, ids in notices)
    for link in history.links:
        if link.result is None or link.call.name.lower() not in AGENT_OUTPUT_TOOLS:
            continue
        if not _STILL_RUNNING.search(link.result.text[:MAX_END_CHARS]):
            yield _mentioned_ids(link)


def _remove_notices(history: History, removed: set[str]) -> Iterator[Edit]:
    for i, message in enumerate(history.messages):
        for j, notices in _message_notices(message).items():
            target = history.occurrence(Place(i, j))
            gaps = tuple([gap for gap, ids in notices if ids & removed])
            if gaps:
                yield Truncate(target, POLICY_NAME, "notification of a sub-agent", gaps, over="injection")


@cached_per_message
def _message_notices(message: Message) -> dict[int, list[tuple[Elision, frozenset[str]]]]:
    """Return the notifications in each text of a message, with the ids of their agents."""
    if message.role != "user":
        return {}
    found = {j: list(_find_notices(part.text)) for j, part in enumerate(message.parts) if isinstance(part, Text)}
    return {j: notices for j, notices in found.items() if notices}


def _find_notices(text: str) -> Iterator[tuple[Elision, frozenset[str]]]:
    if "notification" not in text:
        return
    for start, stop in find_harness_offsets(text):
        if _NOTICE.match(text, start):
            ids = _NOTICE_AGENT_ID.finditer(text, start, min(stop, start + MAX_END_CHARS))
            yield Elision(start, stop), frozenset(found["id"] for found in ids)
