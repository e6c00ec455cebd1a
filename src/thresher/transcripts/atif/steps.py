"""The steps of an ATIF trajectory as messages: what the agent said and called, and what answered it."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import Author, Message, Usage
from thresher.model.parts import Image, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import parse_time, usage_with_cached_input
from thresher.transcripts.coerce import as_dict, as_list, as_text, count_at, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, text_parts, unknown_part
from thresher.transcripts.source import SourceFile

LARGEST_IMAGE = 20 << 20
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
"""What is opened for a picture: whoever wrote the document could name any file."""
_COMPACTION_NOTICE = "Performed context summarization"
"""How Harbor's own agent told of a compaction before the format had a mark for it."""


class AtifDelegation(NamedTuple):
    """A run that a step refers to, and the call that started it."""

    ref: dict[str, Any]
    call_id: str


class AtifStepReader:
    """Goes through the steps once."""

    def __init__(self, source: SourceFile, document: dict[str, Any], prompter: Author) -> None:
        """`prompter` is who wrote the first prompt: a model, for a sub-agent."""
        self.delegations: list[AtifDelegation] = []
        self.images: dict[str, Image] = {}
        """Pictures from files beside the document, by path."""
        self._source = source
        self._steps = list_at(document, "steps")
        self._model = text_at(document, "agent", "model_name")
        self._prompter = prompter
        self._unique_call_ids: dict[str, str] = {}
        """The calls so far by the ids they came with, each with one that no other has."""
        self._has_spoken = False

    def build_segments(self) -> list[list[Message]]:
        """The conversation, cut where a summary replaces it."""
        segments: list[list[Message]] = [[]]
        taken = 0
        for number, step in enumerate(self._steps, 1):
            if not isinstance(step, dict):
                self._source.report("a step is no object", "skipped", number)
                continue
            if number == taken:
                continue
            try:
                summary = self._find_summary(step, number)
                found = [_summary_message(summary)] if summary else self._read_step(step, number)
            except RecursionError:
                self._source.report("a step is nested too deep to follow", "skipped", number)
                continue
            if summary:
                segments.append([])
                taken = number + 1 if not _observation_text(step) and self._next_user_text(number) else 0
            segments[-1] += self._with_source(found, step, number)
        return segments

    def _with_source(self, messages: Sequence[Message], step: dict[str, Any], number: int) -> Iterator[Message]:
        place, time = self._source.at(number), parse_time(step.get("timestamp"))
        is_copied = step.get("is_copied_context") is True
        told = [message for message in messages if message.parts]
        for n, message in enumerate(told):
            id_ = f"{number}-{n}" if n else f"{number}"
            yield replace(message, id=id_, time=time, source=place, carried=is_copied)

    def _next_user_text(self, number: int) -> str:
        """What the user's role says right after a step."""
        after = as_dict(self._steps[number]) if number < len(self._steps) else {}
        said = after.get("message")
        return as_text(said) if after.get("source") == "user" else ""

    def _find_summary(self, step: dict[str, Any], number: int) -> str:
        """What stands for all that was said before, where a system step replaces it."""
        told = dict_at(step, "extra", "context_management")
        compacts = told.get("boundary") == "replace" or (told.get("type") == "compaction" and not told.get("boundary"))
        old = not told and text_at(step, "message").startswith(_COMPACTION_NOTICE)
        if step.get("source") != "system" or not (compacts or old):
            return ""
        self._note_delegations(step, {})
        return _observation_text(step) or self._next_user_text(number) or text_at(step, "message") or "…"

    def _read_step(self, step: dict[str, Any], number: int) -> list[Message]:
        content = self._parse_content(step.get("message"))
        if step.get("source") == "agent":
            return self._read_agent_step(step, content, number)
        self._note_delegations(step, {})
        if step.get("source") == "user":
            author = infer_message_author("user", content)
            if author == "human":
                author, self._prompter = self._prompter, "human"
            told = Message("user", content, author=author)
        else:
            is_prompt = step.get("source") == "system" and not self._has_spoken
            told = Message("system" if is_prompt else "user", content, author="harness")
        return [told, *self._unpaired_results(step, {})]

    def _read_agent_step(self, step: dict[str, Any], content: tuple[ResultPart, ...], number: int) -> list[Message]:
        """What the agent said and called, and after it the results."""
        self._has_spoken = True
        thought = text_at(step, "reasoning_content")
        calls: dict[str, ToolCall] = {}
        for place, wire in enumerate(map(as_dict, list_at(step, "tool_calls")), 1):
            given, said = text_at(wire, "tool_call_id"), wire.get("arguments", {})
            name = f"call-{number}-{place}"
            own = given if given and given not in self._unique_call_ids else name
            key = name if not given or given in calls else given
            calls[key] = ToolCall(own, text_at(wire, "function_name"), json_text(said))
            self._unique_call_ids[given or own] = own
        by_rule = step.get("llm_call_count") == 0
        said_parts = (*((Thinking(thought),) if thought else ()), *content, *calls.values())
        author: Author = "harness" if by_rule else "model"
        model = "" if by_rule else text_at(step, "model_name") or self._model
        answer = Message("assistant", said_parts, author=author, model=model, usage=_parse_usage(step))
        done = [Message("tool", (result,), author="tool") for result in self._build_results(step, calls)]
        return [answer, *done, *self._unpaired_results(step, calls)]

    def _build_results(self, step: dict[str, Any], calls: Mapping[str, ToolCall]) -> list[ToolResult]:
        """The results by call, in the order of the calls; what names none answers the last that are open."""
        self._note_delegations(step, calls)
        given = [(text_at(one, "source_call_id"), one) for one in _observation_results(step)]
        own, known = {id_: call.id for id_, call in calls.items()}, self._unique_call_ids
        named = [(own.get(id_) or known.get(id_, id_), one) for id_, one in given if id_]
        nameless = [one for id_, one in given if not id_]
        answered = {id_ for id_, _ in named}
        waiting = [call.id for call in calls.values() if call.id not in answered]
        if 0 < len(nameless) <= len(waiting):
            named += zip(waiting, [{}] * (len(waiting) - len(nameless)) + nameless, strict=True)
        content: dict[str, list[ResultPart]] = {}
        for id_, one in named:
            content.setdefault(id_, []).extend(self._parse_content(one.get("content")))
        has_failed = len(calls) == 1 and value_at(step, "extra", "tool_result_is_error") is True
        failed = {id_ for id_, one in named if has_failed or value_at(one, "extra", "is_error") is True}
        names = {call.id: call.name for call in calls.values()}
        order = [*(id_ for id_ in names if id_ in content), *(id_ for id_ in content if id_ not in names)]
        return [ToolResult(id_, tuple(content[id_]), id_ in failed, names.get(id_, "")) for id_ in order]

    def _unpaired_results(self, step: dict[str, Any], calls: Mapping[str, ToolCall]) -> list[Message]:
        """Results that answer no call."""
        nameless = [one for one in _observation_results(step) if not text_at(one, "source_call_id")]
        named = {text_at(one, "source_call_id") for one in _observation_results(step)}
        if nameless and len(nameless) <= sum(given not in named for given in calls):
            return []
        parts = tuple(part for one in nameless for part in self._parse_content(one.get("content")))
        return [Message("user", parts, author="tool" if step.get("source") == "agent" else "harness")]

    def _note_delegations(self, step: dict[str, Any], calls: Mapping[str, ToolCall]) -> None:
        """Remember the runs that a step refers to."""
        for one in _observation_results(step):
            refs, given = one.get("subagent_trajectory_ref"), text_at(one, "source_call_id")
            call_id = calls[given].id if given in calls else self._unique_call_ids.get(given, given)
            found = (ref for ref in as_list(refs) or [refs] if isinstance(ref, dict))
            self.delegations += (AtifDelegation(ref, call_id) for ref in found)

    # Content

    def _parse_content(self, content: Any) -> tuple[ResultPart, ...]:
        if isinstance(content, str):
            return text_parts(content)
        if content is None:
            return ()
        return tuple(self._parse_part(piece) for piece in (content if isinstance(content, list) else [content]))

    def _parse_part(self, piece: Any) -> ResultPart:
        match piece:
            case str(words) | {"type": "text", "text": str(words)}:
                return Text(words)
            case {"type": "image", "source": {"path": str(path), **rest}}:
                return self._load_image(text_at(rest, "media_type"), path)
            case _:
                return unknown_part(piece)

    def _load_image(self, media_type: str, path: str) -> Image:
        """A picture: from a file beside the document, or known by its address only."""
        head, _, data = path.partition(",")
        if head.startswith("data:") and head.endswith(";base64"):
            return Image(media_type, data)
        found = resolve_file_below(self._source.path.parent, path)
        try:
            is_picture = found and found.suffix.lower() in PICTURES and found.stat().st_size <= LARGEST_IMAGE
            if found and is_picture and str(found) not in self.images:
                data = base64.b64encode(found.read_bytes()).decode()
                self.images[str(found)] = Image(media_type, data)
        except OSError:
            pass
        return self.images.get(str(found), Image(media_type, url=path))


def _summary_message(summary: str) -> Message:
    return Message("user", (Summary(summary),), author="harness")


def _observation_results(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in list_at(step, "observation", "results") if isinstance(one, dict)]


def _observation_text(step: dict[str, Any]) -> str:
    """The words of a step's observation."""
    contents = (one.get("content") for one in _observation_results(step))
    pieces = (piece for content in contents for piece in (as_list(content) or [content]))
    words = (piece if isinstance(piece, str) else text_at(piece, "text") for piece in pieces)
    return "\n".join(word for word in words if word)


def _parse_usage(step: dict[str, Any]) -> Usage | None:
    """The bill of one model call; one for several calls together tells nothing of each."""
    metrics, calls = step.get("metrics"), step.get("llm_call_count")
    if not isinstance(metrics, dict) or (type(calls) is int and calls != 1):
        return None
    extra = dict_at(metrics, "extra")
    given, output, read = (count_at(metrics, f"{key}_tokens") for key in ("prompt", "completion", "cached"))
    reasoning = count_at(extra, "reasoning_tokens") or count_at(extra, "reasoning_output_tokens")
    return usage_with_cached_input(given, output, read, count_at(extra, "cache_creation_input_tokens"), reasoning)


def resolve_file_below(folder: Path, path: str) -> Path | None:
    """A file in a folder or below it; nothing else that a document names is opened."""
    if not path or "\0" in path or "://" in path:
        return None
    try:
        found = (folder / path).resolve()
        return found if found.is_relative_to(folder.resolve()) and found.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name that is too long, or a link to itself
        return None
