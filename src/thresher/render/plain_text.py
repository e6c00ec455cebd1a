"""Render a history as compact text, for a person or for a sub-agent."""

from collections.abc import Iterator

from thresher.model import History, Image, Message, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.model.tool_calls import describe_tool_call
from thresher.model.turns import is_injected
from thresher.render.text import strip_control_codes

HEADINGS = {"system": "System", "user": "User", "assistant": "Assistant"}


def format_plain_text(history: History) -> str:
    """Format messages and tool calls in order, with a heading for each change of role and one line per call."""
    lines: list[str] = []
    role = ""
    for message in history:
        text = message_text(message)
        if text and message.role not in ("tool", role):
            role = message.role
            is_harness = is_injected(message)
            lines += ["", f"## {HEADINGS[role]}" + (" (harness)" if is_harness else "")]
        lines += [text] if text else []
    return "\n".join(lines).strip() + "\n"


def message_text(message: Message) -> str:
    """Format one message, without a heading."""
    return "\n".join(_message_lines(message))


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
                target = use.command or use.path or use.intent or part.arguments
                yield strip_control_codes(f"▸ {part.name} {target}").rstrip()
            case ToolResult():
                mark = "✗" if part.is_error else "←"
                yield f"{mark} {strip_control_codes(part.text.strip()) or '(nothing)'}"
            case Image():
                yield strip_control_codes(f"[image {part.media_type or part.url}]")
            case Unknown():
                yield strip_control_codes(f"[{part.kind or 'unknown part'}]")
