"""Tool calls by name, by kind of work, by how they ended: left out, pointed to, told in one line, or cut.

What a human answered is a human's words, wherever a format keeps it: the answers of question tools, and what was
said with a refusal ("the user said: …"). Only a choice that names the tool or its category touches these.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from thresher.edits import Cut, Drop, Edit, Fold, Gap, Stub, cut_arguments, to_limit
from thresher.edits.cutting import LITTLE
from thresher.edits.standin import one_line as flat
from thresher.errors import OptionError
from thresher.model import Chain, History, Message, Place, ToolCall, ToolResult
from thresher.model.tools import Link
from thresher.policies import base
from thresher.policies.base import CATEGORIES, check_choice, check_count, check_words
from thresher.summarise import one_line

NAME = "tools"
Deed = Literal["drop", "stub", "stub_calls", "cut_calls", "line", "cut"]
SHORTEST = 100
"""The least that a cut may leave: what says that something was cut needs most of it."""
LONGEST_LINE = 200
INTERRUPTED = "[Request interrupted"
SAID = "the user said:"


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Do one thing to the calls of some tools.

    `Tools(categories=("file_edit",))` drops all edits; `Tools(failed=True)` drops what failed, of any tool;
    `Tools(names=("mcp__*",), except_names=("mcp__db__*",), do="stub")` points to results and keeps the calls;
    `Tools(names=("*",), older_exchanges_only=True, do="line")` tells each call in a line; `Tools(names=("Bash",),
    do="cut", head=2000, tail=6000)` keeps both ends. With no name, no category and no `failed`, nothing is meant.
    """

    names: tuple[str, ...] = ()
    """Tools by name or glob, whatever the case."""
    categories: tuple[str, ...] = ()
    """Tools by kind of work."""
    except_names: tuple[str, ...] = ()
    """Tools that are never meant, by name or glob."""
    failed: bool | None = None
    """Only calls that failed or were interrupted, only the others, or both."""
    older_exchanges_only: bool = False
    """Whether all since the human's last prompt is left alone."""
    keep_last: int = 0
    """Calls at the end that are left alone."""
    do: Deed = "drop"
    """Drop both; point to results; point to arguments; cut long arguments; one line for both; cut results."""
    limit: int = 10_000
    """Characters that `cut` leaves where neither `head` nor `tail` is given, and `cut_calls` of each argument."""
    head: int = 0
    """Characters that `cut` leaves of the beginning, what says so included."""
    tail: int = 0
    """Characters that `cut` leaves of the end."""

    def __post_init__(self) -> None:
        check_words(NAME, names=self.names, except_names=self.except_names)
        check_words(NAME, CATEGORIES, categories=self.categories)
        check_choice(NAME, "do", self.do, get_args(Deed))
        check_count(NAME, limit=self.limit, head=self.head, tail=self.tail, keep_last=self.keep_last)
        if self.do == "cut" and self._most < SHORTEST:
            raise OptionError(f"policy `{NAME}`: a cut leaves {SHORTEST} characters or more, not {self._most}")

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose, oldest first."""
        end = history.exchanges[-1].start if self.older_exchanges_only and history.exchanges else len(history)
        for link in history.links[: max(0, len(history.links) - self.keep_last)]:
            if link.chain.call.message < end and self._means(link):
                yield from self._edit(history, link)

    def _means(self, link: Link) -> bool:
        if self.failed is not None and self.failed != failed(link):
            return False
        if base.named(link, self.except_names, ()):
            return False
        if _answered(link):
            return base.named(link, tuple([name for name in self.names if name != "*"]), self._asking())
        everything = self.failed is not None and not self.names and not self.categories
        return everything or base.named(link, self.names, self.categories)

    def _asking(self) -> tuple[str, ...]:
        return tuple([category for category in self.categories if category == "question"])

    def _edit(self, history: History, link: Link) -> Iterator[Edit]:
        call = history.occurrence(link.chain.call)
        result = history.occurrence(link.chain.result) if link.chain.result else None
        why = "failed" if self.failed else link.use.category.replace("_", " ")
        match self.do:
            case "drop":
                yield Drop(call, NAME, why)
            case "stub_calls":
                yield Stub(call, NAME, why)
            case "cut_calls":
                gaps = cut_arguments(link.call.arguments, self.limit)
                if gaps:
                    yield Cut(call, NAME, f"arguments longer than {self.limit:,}", gaps)
            case "line":
                targets = (call,) if result is None else (call, result)
                yield Fold(targets, NAME, why, "", label=_line(link.call, link.result))
            case "stub" if result is not None:
                yield Stub(result, NAME, why, note="interrupted" if _interrupted(link) else "")
            case "cut" if link.result is not None and result is not None:
                gaps = self._gaps(link.result.text)
                if gaps:
                    yield Cut(result, NAME, f"longer than {self._most:,}", gaps)

    @property
    def _most(self) -> int:
        return self.head + self.tail or self.limit

    def _gaps(self, text: str) -> tuple[Gap, ...]:
        """A limit is a limit; of two ends so long, a little more is let pass."""
        ends = self.head + self.tail
        if not ends:
            return to_limit(text, self.limit)
        return to_limit(text, ends, tail=self.tail / ends) if len(text) > ends + ends // LITTLE else ()


@lru_cache(maxsize=1024)
def _line(call: ToolCall, result: ToolResult | None) -> str:
    """What a chain did, in a line; that depends on nothing around it, so it is told once."""
    answers = () if result is None else (Message("tool", (result,), author="tool"),)
    alone = History((Message("assistant", (call,), author="model"), *answers))
    chain = Chain(Place(0, 0), Place(1, 0) if result else None, active=False)
    return flat(one_line(alone, chain), LONGEST_LINE)


def failed(link: Link) -> bool:
    """Whether a call came to nothing: an error, an interruption, or no result at all."""
    return base.failed(link) or _interrupted(link)


def _interrupted(link: Link) -> bool:
    """Whether the result says so itself; a pointer to such a result still does."""
    said = link.result.text[:200].lstrip() if link.result else ""
    return said.startswith(INTERRUPTED) or (said.startswith("[thresher ") and said.endswith("· interrupted]"))


def _answered(link: Link) -> bool:
    """Whether a human's own words are in the result."""
    if link.use.category == "question":
        return True
    return link.result is not None and link.result.is_error and SAID in link.result.text[:1000]
