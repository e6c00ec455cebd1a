"""Trim agent conversations to a token budget without breaking API rules; restore anything removed.

import thresher as th

session = th.read("session.jsonl")           # any agent's transcript: .history .children .problems; also read_all
history = th.parse(messages)                 # messages of any API, or a whole request body
th.emit(history, "anthropic")                # convert back, or to another API
th.count(history)                            # number of tokens
th.discover()                                # every session on this machine

th.fit(messages, policy="smart", budget=60_000)    # any API's messages; returns the same shape
plan = th.plan(history, policy="smart", budget=60_000)
print(plan.explain()); th.apply(history, plan)
th.restore("t1:0123456789abcdef")            # the content of a placeholder, byte for byte
th.check(history, "anthropic"); th.repair(history)

window = th.Window(budget=120_000)           # in an agent's loop: reuses the prompt cache
messages = window.fit(messages)

memory = th.Memory()                         # every past session on this machine
memory.search("how did we fix the jwt refresh?")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.budget import FitResult as FitResult
    from thresher.budget import PlanOptions as PlanOptions
    from thresher.budget import Settings as Settings
    from thresher.budget import Thresholds as Thresholds
    from thresher.budget import fit as fit
    from thresher.budget import fit_with_plan as fit_with_plan
    from thresher.budget import plan as plan
    from thresher.budget import restore as restore
    from thresher.dialects import Dialect as Dialect
    from thresher.dialects import emit as emit
    from thresher.dialects import parse as parse
    from thresher.edits import Drop as Drop
    from thresher.edits import Edit as Edit
    from thresher.edits import Plan as Plan
    from thresher.edits import Refusal as Refusal
    from thresher.edits import Repair as Repair
    from thresher.edits import RepairError as RepairError
    from thresher.edits import RepairResult as RepairResult
    from thresher.edits import Replace as Replace
    from thresher.edits import Summarize as Summarize
    from thresher.edits import ThinkingRule as ThinkingRule
    from thresher.edits import Truncate as Truncate
    from thresher.edits import Violation as Violation
    from thresher.edits import apply as apply
    from thresher.edits import check as check
    from thresher.edits import repair as repair
    from thresher.errors import BudgetError as BudgetError
    from thresher.errors import ConvertError as ConvertError
    from thresher.errors import FormatError as FormatError
    from thresher.errors import OptionError as OptionError
    from thresher.errors import PlanError as PlanError
    from thresher.errors import ReadError as ReadError
    from thresher.errors import ThresherError as ThresherError
    from thresher.errors import UnknownFormatError as UnknownFormatError
    from thresher.memory import ArchivedSession as ArchivedSession
    from thresher.memory import Excerpt as Excerpt
    from thresher.memory import Memory as Memory
    from thresher.memory import Query as Query
    from thresher.memory import RecallResult as RecallResult
    from thresher.memory import SearchHit as SearchHit
    from thresher.memory import SearchResults as SearchResults
    from thresher.memory import SessionHit as SessionHit
    from thresher.memory import SyncReport as SyncReport
    from thresher.model import History as History
    from thresher.model import Image as Image
    from thresher.model import Message as Message
    from thresher.model import Part as Part
    from thresher.model import Problem as Problem
    from thresher.model import Role as Role
    from thresher.model import Session as Session
    from thresher.model import Summary as Summary
    from thresher.model import Text as Text
    from thresher.model import Thinking as Thinking
    from thresher.model import ToolCall as ToolCall
    from thresher.model import ToolResult as ToolResult
    from thresher.model import Unknown as Unknown
    from thresher.model import Usage as Usage
    from thresher.model import part_text as part_text
    from thresher.policies import Policy as Policy
    from thresher.policies import PolicyLike as PolicyLike
    from thresher.policies import with_intent as with_intent
    from thresher.policies import without_intent as without_intent
    from thresher.store import AmbiguousIdError as AmbiguousIdError
    from thresher.store import ContentStore as ContentStore
    from thresher.store import InMemoryContentStore as InMemoryContentStore
    from thresher.store import NotStoredError as NotStoredError
    from thresher.store import SqliteContentStore as SqliteContentStore
    from thresher.store import StoreError as StoreError
    from thresher.summarize import Judge as Judge
    from thresher.summarize import ModelJudge as ModelJudge
    from thresher.summarize import ModelSummarizer as ModelSummarizer
    from thresher.summarize import Summarizer as Summarizer
    from thresher.summarize import SummaryError as SummaryError
    from thresher.summarize import SummaryRequest as SummaryRequest
    from thresher.tokens import CounterError as CounterError
    from thresher.tokens import ModelCatalogError as ModelCatalogError
    from thresher.tokens import TokenWeights as TokenWeights
    from thresher.tokens import count as count
    from thresher.transcripts import DiscoveredFile as DiscoveredFile
    from thresher.transcripts import ReadLimits as ReadLimits
    from thresher.transcripts import TranscriptFormat as TranscriptFormat
    from thresher.transcripts import discover as discover
    from thresher.transcripts import read as read
    from thresher.transcripts import read_all as read_all
    from thresher.transcripts import sniff as sniff
    from thresher.window import Ledger as Ledger
    from thresher.window import LedgerError as LedgerError
    from thresher.window import Prices as Prices
    from thresher.window import Trigger as Trigger
    from thresher.window import Window as Window
    from thresher.window import WindowEvent as WindowEvent
    from thresher.window import WindowOptions as WindowOptions

__version__ = "0.1.0"

_NAMES = {
    "budget": "FitResult PlanOptions Settings Thresholds fit fit_with_plan plan restore",
    "dialects": "Dialect emit parse",
    "edits": (
        "Drop Edit Plan Refusal Repair RepairError RepairResult Replace Summarize ThinkingRule "
        "Truncate Violation apply check repair"
    ),
    "errors": ("BudgetError ConvertError FormatError OptionError PlanError ReadError ThresherError UnknownFormatError"),
    "memory": ("ArchivedSession Excerpt Memory Query RecallResult SearchHit SearchResults SessionHit SyncReport"),
    "model": (
        "History Image Message Part Problem Role Session Summary Text Thinking ToolCall ToolResult Unknown Usage "
        "part_text"
    ),
    "policies": "Policy PolicyLike with_intent without_intent",
    "store": ("AmbiguousIdError ContentStore InMemoryContentStore NotStoredError SqliteContentStore StoreError"),
    "summarize": "Judge ModelJudge ModelSummarizer Summarizer SummaryError SummaryRequest",
    "tokens": "CounterError ModelCatalogError TokenWeights count",
    "transcripts": "DiscoveredFile ReadLimits TranscriptFormat discover read read_all sniff",
    "window": "Ledger LedgerError Prices Trigger Window WindowEvent WindowOptions",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
"""Package of each public name. `__getattr__` imports the package when the name is first used."""

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers use the imports above and report unknown names

    def __getattr__(name: str) -> Any:
        """Import a public name on first use, so that reading a transcript does not load the rest."""
        if name not in _HOMES:
            raise AttributeError(f"module 'thresher' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"thresher.{_HOMES[name]}"), name)
        return value
