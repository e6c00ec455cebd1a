"""Thresher keeps the grain of an AI agent's conversation and lets the chaff go.

import thresher as th

session = th.read("session.jsonl")           # any agent's file: .history .children .problems
history = th.parse(messages)                 # any wire API's messages, or a whole request body
th.emit(history, "anthropic")                # and back, or across to another API
th.count(history)                            # how many tokens
th.discover()                                # every session on this machine

th.fit(messages, policy="smart", budget=60_000)    # any API's messages in, the same shape out
plan = th.plan(history, policy="smart", budget=60_000)
print(plan.explain()); th.apply(history, plan)
th.restore("t1:0123456789abcdef")            # what a stand-in stands for, byte for byte
th.check(history, "anthropic"); th.repair(history)

window = th.Window(budget=120_000)           # in an agent's loop: keeps the prompt cache warm
messages = window.fit(messages)

memory = th.Memory()                         # every past session on this machine
memory.search("how did we fix the jwt refresh?")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.budget import fit, plan, restore
    from thresher.dialects import emit, parse
    from thresher.edits import apply, check, repair
    from thresher.errors import ThresherError
    from thresher.memory import Memory
    from thresher.model import History, Message, Session
    from thresher.policies import with_intent
    from thresher.tokens import count
    from thresher.transcripts import discover, read, read_all, sniff
    from thresher.window import Window

__version__ = "0.1.0"

__all__ = [
    "History",
    "Memory",
    "Message",
    "Session",
    "ThresherError",
    "Window",
    "apply",
    "check",
    "count",
    "discover",
    "emit",
    "fit",
    "parse",
    "plan",
    "read",
    "read_all",
    "repair",
    "restore",
    "sniff",
    "with_intent",
]

_HOMES = {
    "budget": ("fit", "plan", "restore"),
    "edits": ("apply", "check", "repair"),
    "errors": ("ThresherError",),
    "dialects": ("emit", "parse"),
    "memory": ("Memory",),
    "model": ("History", "Message", "Session"),
    "policies": ("with_intent",),
    "tokens": ("count",),
    "transcripts": ("discover", "read", "read_all", "sniff"),
    "window": ("Window",),
}


def __getattr__(name: str) -> Any:
    """A public name is imported when it is first used: who only reads pays for reading alone."""
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"thresher.{home}"), name)
            return value
    raise AttributeError(f"module 'thresher' has no attribute {name!r}")
