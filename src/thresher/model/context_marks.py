"""Mark declared context by the user's own marks: a user message or text that starts with a mark.

Agents that insert their facts as a user message name the first words of such messages (option `context_marks`). The
messages then are neither prompts nor removable.
"""

from collections.abc import Iterable

from msgspec import structs

from thresher.model.harness_text import detect_author
from thresher.model.history import History
from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import Text


def mark_context(history: History, marks: tuple[str, ...]) -> History:
    """Return the history with the author `context` for each marked message, and with the marks."""
    if not marks:
        return history
    return structs.replace(history, messages=mark_messages(history.messages, marks), context_marks=marks)


def mark_messages(messages: Iterable[Message], marks: tuple[str, ...]) -> tuple[Message, ...]:
    """Return the messages; a message whose texts are all marked, or by a harness, gets the author `context`."""
    return tuple([_mark_message(message, marks) for message in messages])


def starts_with_mark(text: str, marks: tuple[str, ...]) -> bool:
    """Return whether a text starts with a mark, after blanks."""
    return bool(marks) and text.lstrip().startswith(marks)


def _mark_message(message: Message, marks: tuple[str, ...]) -> Message:
    if message.role != "user" or message.author == "context":
        return message
    marked_messages = _cached_by_marks(message)
    if marks not in marked_messages:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        marked = [starts_with_mark(text, marks) for text in texts]
        pairs = zip(marked, texts, strict=True)
        is_context = any(marked) and all(is_marked or detect_author(text) != "human" for is_marked, text in pairs)
        marked_messages[marks] = structs.replace(message, author="context") if is_context else None
    return marked_messages[marks] or message


@cached_per_message
def _cached_by_marks(_: Message) -> dict[tuple[str, ...], Message | None]:
    """Return an empty cache of the marked message, by marks, so that equal requests share one message object."""
    return {}
