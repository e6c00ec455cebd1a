"""Parse the steps of an ATIF trajectory: agent messages, tool calls and observations."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import Author, Message, Usage
from thresher.model.parts import Image, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import parse_time, usage_with_cached_input
from thresher.transcripts.coerce import as_dict, as_list, count_at, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, text_parts, unknown_part
from thresher.transcripts.source import SourceFile

MAX_IMAGE_BYTES = 20 << 20
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
"""Suffixes of files that the reader may open as images. It loads no image from other files."""
_COMPACTION_NOTICE = "Performed context summarization"
"""Prefix of the messages that report a compaction in older versions of Harbor, which have no field for it."""


class AtifDelegation(NamedTuple):
    """Reference from a step to a sub-agent's run, with the id of the call that started the run."""

    ref: dict[str, Any]
    call_id: str


class AtifStepReader:
    """Parser that converts the steps of one document in a single pass."""

    def __init__(self, source: SourceFile, document: dict[str, Any], prompter: Author) -> None:
        """Prepare to parse a document. `prompter` is the first prompt's author: `human`, or `model` for a sub-agent."""
        self.delegations: list[AtifDelegation] = []
        self.images: dict[str, Image] = {}
        """Images loaded from files next to the document, by path."""
        self._source = source
        self._steps = list_at(document, "steps")
        self._model = text_at(document, "agent", "model_name")
        self._prompter = prompter
        self._unique_call_ids: dict[str, str] = {}
        """For each call id in the document, the unique id of the latest call that has it."""
        self._has_spoken = False

    def build_segments(self) -> list[list[Message]]:
        """Return the messages by segment. Each summary that replaces the context starts a segment."""
        segments: list[list[Message]] = [[]]
        summary_number = 0
        for number, step in enumerate(self._steps, 1):
            if not isinstance(step, dict):
                self._source.report("a step is not a JSON object", "skipped", number)
                continue
            if number == summary_number:
                continue
            try:
                summary = self._find_summary(step, number)
                summarized = [Message("user", (Summary(summary),), author="harness")]
                messages = summarized if summary else self._read_step(step, number)
            except RecursionError:
                self._source.report("a step is nested too deeply", "skipped", number)
                continue
            if summary:
                segments.append([])
                summary_number = number + 1 if not _observation_text(step) and self._next_user_text(number) else 0
            segments[-1] += self._with_source(messages, step, number)
        return segments

    def _with_source(self, messages: Sequence[Message], step: dict[str, Any], number: int) -> Iterator[Message]:
        source, time = self._source.at(number), parse_time(step.get("timestamp"))
        is_copied = step.get("is_copied_context") is True
        for n, message in enumerate(message for message in messages if message.parts):
            id_ = f"{number}-{n}" if n else f"{number}"
            yield replace(message, id=id_, time=time, source=source, carried=is_copied)

    def _next_user_text(self, number: int) -> str:
        """Return the text of the user step directly after a step, or an empty string."""
        after = as_dict(self._steps[number]) if number < len(self._steps) else {}
        return text_at(after, "message") if after.get("source") == "user" else ""

    def _find_summary(self, step: dict[str, Any], number: int) -> str:
        """Return the summary of a system step that replaces the context, or an empty string."""
        marker = dict_at(step, "extra", "context_management")
        boundary = marker.get("boundary")
        compacts = boundary == "replace" or (marker.get("type") == "compaction" and not boundary)
        is_notice = not marker and text_at(step, "message").startswith(_COMPACTION_NOTICE)
        if step.get("source") != "system" or not (compacts or is_notice):
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
            message = Message("user", content, author=author)
        else:
            is_prompt = step.get("source") == "system" and not self._has_spoken
            message = Message("system" if is_prompt else "user", content, author="harness")
        unnamed = [result for result in _observation_results(step) if not text_at(result, "source_call_id")]
        return [message, self._build_unpaired_message(unnamed, "harness")]

    def _read_agent_step(self, step: dict[str, Any], content: tuple[ResultPart, ...], number: int) -> list[Message]:
        """Return the agent's message, then the results of its calls."""
        self._has_spoken = True
        thought = text_at(step, "reasoning_content")
        calls: dict[str, ToolCall] = {}
        for index, wire in enumerate(map(as_dict, list_at(step, "tool_calls")), 1):
            wire_id, fallback_id = text_at(wire, "tool_call_id"), f"call-{number}-{index}"
            call_id = wire_id if wire_id and wire_id not in self._unique_call_ids else fallback_id
            key = fallback_id if not wire_id or wire_id in calls else wire_id
            calls[key] = ToolCall(call_id, text_at(wire, "function_name"), json_text(wire.get("arguments", {})))
            self._unique_call_ids[wire_id or call_id] = call_id
        is_scripted = step.get("llm_call_count") == 0
        parts = (*((Thinking(thought),) if thought else ()), *content, *calls.values())
        author: Author = "harness" if is_scripted else "model"
        model = "" if is_scripted else text_at(step, "model_name") or self._model
        answer = Message("assistant", parts, author=author, model=model, usage=_parse_usage(step))
        return [answer, *self._build_results(step, calls)]

    def _build_results(self, step: dict[str, Any], calls: Mapping[str, ToolCall]) -> list[Message]:
        """Return the results in the order of the calls. Results without a call id answer the step's last open calls."""
        self._note_delegations(step, calls)
        results = [(text_at(result, "source_call_id"), result) for result in _observation_results(step)]
        own, known = {wire_id: call.id for wire_id, call in calls.items()}, self._unique_call_ids
        named = [(own.get(wire_id) or known.get(wire_id, wire_id), result) for wire_id, result in results if wire_id]
        unnamed = [result for wire_id, result in results if not wire_id]
        answered = {id_ for id_, _ in named}
        waiting = [call.id for call in calls.values() if call.id not in answered]
        if 0 < len(unnamed) <= len(waiting):
            named += zip(waiting, [{}] * (len(waiting) - len(unnamed)) + unnamed, strict=True)
            unnamed = []
        content: dict[str, list[ResultPart]] = {}
        for id_, result in named:
            content.setdefault(id_, []).extend(self._parse_content(result.get("content")))
        has_failed = len(calls) == 1 and value_at(step, "extra", "tool_result_is_error") is True
        failed = {id_ for id_, result in named if has_failed or value_at(result, "extra", "is_error") is True}
        names = {call.id: call.name for call in calls.values()}
        order = [*(id_ for id_ in names if id_ in content), *(id_ for id_ in content if id_ not in names)]
        paired = (ToolResult(id_, tuple(content[id_]), id_ in failed, names.get(id_, "")) for id_ in order)
        messages = [Message("tool", (result,), author="tool") for result in paired]
        return [*messages, self._build_unpaired_message(unnamed, "tool")]

    def _build_unpaired_message(self, results: Sequence[dict[str, Any]], author: Author) -> Message:
        parts = tuple(part for result in results for part in self._parse_content(result.get("content")))
        return Message("user", parts, author=author)

    def _note_delegations(self, step: dict[str, Any], calls: Mapping[str, ToolCall]) -> None:
        """Record the sub-agent runs that a step references."""
        for result in _observation_results(step):
            refs, wire_id = result.get("subagent_trajectory_ref"), text_at(result, "source_call_id")
            call_id = calls[wire_id].id if wire_id in calls else self._unique_call_ids.get(wire_id, wire_id)
            wires = (ref for ref in as_list(refs) or [refs] if isinstance(ref, dict))
            self.delegations += (AtifDelegation(ref, call_id) for ref in wires)

    # Content

    def _parse_content(self, content: Any) -> tuple[ResultPart, ...]:
        if isinstance(content, str):
            return text_parts(content)
        if content is None:
            return ()
        return tuple(self._parse_part(piece) for piece in (content if isinstance(content, list) else [content]))

    def _parse_part(self, piece: Any) -> ResultPart:
        match piece:
            case str(text) | {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image", "source": {"path": str(path), **rest}}:
                return self._load_image(text_at(rest, "media_type"), path)
            case _:
                return unknown_part(piece)

    def _load_image(self, media_type: str, path: str) -> Image:
        """Load an image from a data URL or a file below the document's folder. Keep only the URL of other images."""
        head, _, data = path.partition(",")
        if head.startswith("data:") and head.endswith(";base64"):
            return Image(media_type, data)
        file = resolve_file_below(self._source.path.parent, path)
        try:
            is_image = file and file.suffix.lower() in IMAGE_SUFFIXES and file.stat().st_size <= MAX_IMAGE_BYTES
            if file and is_image and str(file) not in self.images:
                data = base64.b64encode(file.read_bytes()).decode()
                self.images[str(file)] = Image(media_type, data)
        except OSError:
            pass
        return self.images.get(str(file), Image(media_type, url=path))


def _observation_results(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [result for result in list_at(step, "observation", "results") if isinstance(result, dict)]


def _observation_text(step: dict[str, Any]) -> str:
    """Return the text of a step's observation."""
    contents = (result.get("content") for result in _observation_results(step))
    pieces = (piece for content in contents for piece in (as_list(content) or [content]))
    texts = (piece if isinstance(piece, str) else text_at(piece, "text") for piece in pieces)
    return "\n".join(filter(None, texts))


def _parse_usage(step: dict[str, Any]) -> Usage | None:
    """Return the usage of a step, or None if the step made several model calls or none."""
    metrics, calls = step.get("metrics"), step.get("llm_call_count")
    if not isinstance(metrics, dict) or (type(calls) is int and calls != 1):
        return None
    extra = dict_at(metrics, "extra")
    prompt, output, read = (count_at(metrics, f"{key}_tokens") for key in ("prompt", "completion", "cached"))
    reasoning = count_at(extra, "reasoning_tokens") or count_at(extra, "reasoning_output_tokens")
    return usage_with_cached_input(prompt, output, read, count_at(extra, "cache_creation_input_tokens"), reasoning)


def resolve_file_below(folder: Path, path: str) -> Path | None:
    """Resolve a path to a file in a folder or below it; return None for anything else."""
    if not path or "\0" in path or "://" in path:
        return None
    try:
        file = (folder / path).resolve()
        return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # the name is too long, or a link points to itself
        return None
