"""Thresher keeps the grain of an AI agent's conversation and lets the chaff go.

import thresher as th

session = th.read("session.jsonl")           # any agent's file: .history .children .problems
history = th.parse(messages)                 # any wire API's messages, or a whole request body
th.emit(history, "anthropic")                # and back, or across to another API
th.count(history)                            # about how many tokens
th.discover()                                # every session on this machine
"""

from thresher.errors import ThresherError
from thresher.formats import discover, emission, emit, parse, read, read_all, sniff
from thresher.model import History, Message, Session
from thresher.tokens import count

__version__ = "0.1.0"

__all__ = [
    "History",
    "Message",
    "Session",
    "ThresherError",
    "count",
    "discover",
    "emission",
    "emit",
    "parse",
    "read",
    "read_all",
    "sniff",
]
