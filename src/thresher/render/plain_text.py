"""A history as compact text: for a person, or for a sub-agent that only needs to read it."""

from collections.abc import Iterator

from thresher.model import History, Image, Message, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.model.tool_calls import describe_tool_call
from thresher.render.text import strip_control_codes

HEADINGS = {"system": "System", "user": "User", "assistant": "Assistant"}


def format_plain_text(history: History) -> str:
    """What was said and done, in order; one heading a speaker, one line a call."""
    lines: list[str] = []
    speaker = ""
    for message in history:
        said = list(_message_lines(message))
        if said and message.role not in ("tool", speaker):
            speaker = message.role
            lines += ["", f"## {HEADINGS[speaker]}" + (" (harness)" if _is_harness(message) else "")]
        lines += said
    return "\n".join(lines).strip() + "\n"


def message_text(message: Message) -> str:
    """One message, without a heading."""
    return "\n".join(_message_lines(message))


def _is_harness(message: Message) -> bool:
    return message.role == "user" and message.author in ("harness", "recall")


def _message_lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text() | Summary():
                if part.text.strip():
                    yield strip_control_codes(part.text.strip("\n"))
            case Thinking():
                if part.text.strip():
                    yield f"(thinking) {strip_control_codes(part.text.strip())}"
            case ToolCall():
                use = describe_tool_call(part)
                yield (
                    f"▸ {part.name} {strip_control_codes(use.command or use.path or use.intent or part.arguments)}"
                ).rstrip()
            case ToolResult():
                mark = "✗" if part.is_error else "←"
                yield f"{mark} {strip_control_codes(part.text.strip())}" if part.text.strip() else f"{mark} (nothing)"
            case Image():
                yield f"[image {part.media_type or part.url}]"
            case Unknown():
                yield f"[{part.kind or 'unknown part'}]"
