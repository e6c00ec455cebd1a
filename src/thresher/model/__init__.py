"""Data model of a conversation: frozen values without any vendor's vocabulary, and the structure derived from them.

Every other package builds on these values. This package imports only `errors` and `deprecation` from the project.
"""

from typing import TYPE_CHECKING

from thresher.deprecation import ForwardedNames
from thresher.model.history import History
from thresher.model.identity import Occurrence, content_id, iterate_occurrences
from thresher.model.message import Author, Message, Role, SourceLocation, Usage
from thresher.model.parts import (
    Image,
    Part,
    ResultPart,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    VendorExtras,
    part_text,
)
from thresher.model.session import AbandonedBranch, Problem, Session
from thresher.model.structure import Exchange, Place, SubagentCall, ToolChain, Turn

__all__ = [
    "AbandonedBranch",
    "Author",
    "Exchange",
    "History",
    "Image",
    "Message",
    "Occurrence",
    "Part",
    "Place",
    "Problem",
    "ResultPart",
    "Role",
    "Session",
    "SourceLocation",
    "SubagentCall",
    "Summary",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolChain",
    "ToolResult",
    "Turn",
    "Unknown",
    "Usage",
    "VendorExtras",
    "content_id",
    "iterate_occurrences",
    "part_text",
]

if not TYPE_CHECKING:  # hides the old names from type checkers
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Branch": "thresher.model:AbandonedBranch",
            "Chain": "thresher.model:ToolChain",
            "Pocket": "thresher.model:VendorExtras",
            "Source": "thresher.model:SourceLocation",
            "Spawn": "thresher.model:SubagentCall",
            "occurrences": "thresher.model:iterate_occurrences",
        },
    )
