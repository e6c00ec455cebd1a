"""What a conversation is: frozen values in nobody's dialect, and what can be derived from them.

In: nothing. Out: the values every other package speaks in. Imports nothing of the project but `errors`.
"""

from thresher.model.history import History
from thresher.model.identity import Occurrence, content_id, occurrences
from thresher.model.message import Author, Message, Role, Source, Usage
from thresher.model.parts import (
    Image,
    Part,
    Pocket,
    ResultPart,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    part_text,
)
from thresher.model.session import Branch, Problem, Session
from thresher.model.turns import Chain, Exchange, Place, Spawn, Turn

__all__ = [
    "Author",
    "Branch",
    "Chain",
    "Exchange",
    "History",
    "Image",
    "Message",
    "Occurrence",
    "Part",
    "Place",
    "Pocket",
    "Problem",
    "ResultPart",
    "Role",
    "Session",
    "Source",
    "Spawn",
    "Summary",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Turn",
    "Unknown",
    "Usage",
    "content_id",
    "occurrences",
    "part_text",
]
