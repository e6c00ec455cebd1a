"""Sub-agents: the calls that start them, what they answer, and all that is said about them in between.

A sub-agent is known by its call, never by how its result looks: one that failed, was interrupted, spent no tokens or
never answered is one too. One that works in the background answers later: in a notification that names it, or to
a call that asks for it by its id. These belong to it and share its fate. While such a one has not reported, it is
still at work, and the model needs its id: it is left alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from thresher.edits import Drop, Edit, Elision, Replace, Truncate
from thresher.model import History, Place, Text
from thresher.model.harness_text import find_harness_offsets
from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import ToolUse
from thresher.policies.tools import is_failed_or_interrupted

POLICY_NAME = "subagents"
AGENT_OUTPUT_TOOLS = frozenset(
    {
        *("agentoutputtool", "taskoutput", "get_task_output", "job_output", "read_agent", "wait", "wait_agent"),
        *("taskstop", "job_kill", "close_agent"),
    }
)
"""Tools that ask for an agent's output or end it, by its id."""
AGENT_INPUT_TOOLS = frozenset({"send_input", "resume_agent", "sendmessage", "send_message"})
"""Tools that give an agent more to do, by its id."""
MAX_END_CHARS = 600
"""Characters at both ends of an answer in which a harness names the agent."""

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
    """Leave out sub-agents, as far as they are done.

    `DropSubagents()` drops them, with all that belongs to them; `DropSubagents(calls=False)` points to their answers
    and keeps what was asked; `DropSubagents(responses=False)` points to what was asked and keeps the answers;
    `DropSubagents(keep_failed=True)` leaves those alone that came to nothing.
    """

    calls: bool = True
    """Whether the calls go."""
    responses: bool = True
    """Whether the answers go."""
    keep_failed: bool = False
    """Whether sub-agents that failed, were interrupted or did nothing stay."""

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose, oldest first: the calls and what goes with them, then the notices."""
        if not self.calls and not self.responses:
            return
        agents = [(link, _agent_ids(link)) for link in history.links if link.use.category == "subagent"]
        reported = {id_ for ids in _reported_ids(history) for id_ in ids} if agents else set()
        going: set[Place] = set()
        gone: set[str] = set()
        kept: set[str] = set()
        for link, ids in agents:
            stays = self._is_kept(link, ids, reported)
            (kept if stays else gone).update(ids)
            going.update(() if stays else (link.chain.call,))
        yield from self._edit_chains(history, going, gone - kept, kept)
        if self.responses and gone:
            yield from _remove_notices(history, gone - kept)

    def _is_kept(self, link: ToolUse, ids: frozenset[str], reported: set[str]) -> bool:
        if link.chain.active or (self.keep_failed and _is_fruitless(link)):
            return True
        said = link.result.text if link.result else ""
        return (
            said.startswith(_BACKGROUND_OPENINGS)
            and bool(_AGENT_ID.search(said[:MAX_END_CHARS]))
            and not ids & reported
        )

    def _edit_chains(self, history: History, going: set[Place], gone: set[str], kept: set[str]) -> Iterator[Edit]:
        for link in history.links if going else ():
            if link.chain.call in going:
                yield from self._edit_chain(history, link, "sub-agent")
            elif self.responses and link.use.category != "subagent":
                asked = _mentioned_ids(link)
                if asked & gone and not asked & kept:
                    yield from self._edit_chain(history, link, "call about a sub-agent")

    def _edit_chain(self, history: History, link: ToolUse, why: str) -> Iterator[Edit]:
        chain = link.chain
        if self.calls and self.responses:
            yield Drop(history.occurrence(chain.call), POLICY_NAME, why)
        elif self.calls:
            yield Replace(history.occurrence(chain.call), POLICY_NAME, why)
        elif chain.result is not None:
            yield Replace(history.occurrence(chain.result), POLICY_NAME, why)


def _agent_ids(link: ToolUse) -> frozenset[str]:
    """What a sub-agent is known by: its call, and the id that its harness gave it."""
    said = link.result.text if link.result else ""
    ends = (said,) if len(said) <= 2 * MAX_END_CHARS else (said[:MAX_END_CHARS], said[-MAX_END_CHARS:])
    return frozenset([link.call.id, *(found["id"] for end in ends for found in _AGENT_ID.finditer(end))])


def _is_fruitless(link: ToolUse) -> bool:
    return is_failed_or_interrupted(link) or (
        link.result is not None and bool(_NOTHING_SPENT.search(link.result.text[-MAX_END_CHARS:]))
    )


def _mentioned_ids(link: ToolUse) -> frozenset[str]:
    """The ids that a call may be about."""
    name = link.call.name.lower()
    text = (
        link.call.arguments
        if name in AGENT_OUTPUT_TOOLS or name in AGENT_INPUT_TOOLS
        else link.use.path or link.use.command
    )
    return frozenset(_ID_WORD.findall(text[:MAX_END_CHARS]))


def _reported_ids(history: History) -> Iterator[frozenset[str]]:
    """The ids of agents that were heard of: in notices, or in answers that do not say that they still work."""
    for message in history.messages:
        for notices in _message_notices(message).values():
            for _, ids in notices:
                yield ids
    for link in history.links:
        if (
            link.result
            and link.call.name.lower() in AGENT_OUTPUT_TOOLS
            and not _STILL_RUNNING.search(link.result.text[:MAX_END_CHARS])
        ):
            yield _mentioned_ids(link)


def _remove_notices(history: History, gone: set[str]) -> Iterator[Edit]:
    for i, message in enumerate(history.messages):
        for j, notices in _message_notices(message).items():
            gaps = tuple([gap for gap, ids in notices if ids & gone])
            if gaps:
                yield Truncate(
                    history.occurrence(Place(i, j)), POLICY_NAME, "notice of a sub-agent", gaps, over="injection"
                )


@cached_per_message
def _message_notices(message: Message) -> dict[int, list[tuple[Elision, frozenset[str]]]]:
    """The notices in each text of a message, with the agents that they name."""
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
