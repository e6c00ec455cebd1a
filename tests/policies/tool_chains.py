"""Small histories of tool chains, and helpers to apply policies to them."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from thresher.edits import Plan, apply, build_plan
from thresher.edits.edit import Edit
from thresher.model import History, Message, Text, ToolCall, ToolResult, part_text
from thresher.policies import Policy
from thresher.tokens import default_token_weights

SCALE = default_token_weights(counter="estimate")


class Did(NamedTuple):
    """A call and its result; `result=None` leaves it unanswered."""

    name: str
    arguments: dict[str, Any] | str
    result: str | None = "done"
    is_error: bool = False


def told(*chains: Did, prompt: str = "go on") -> History:
    """Return a prompt, one turn per chain, and a final message, so that no chain is open."""
    said = [Message("user", (Text(prompt),))]
    for number, did in enumerate(chains):
        arguments = did.arguments if isinstance(did.arguments, str) else json.dumps(did.arguments)
        said.append(Message("assistant", (ToolCall(f"c{number}", did.name, arguments),), author="model"))
        if did.result is not None:
            result = ToolResult(f"c{number}", (Text(did.result),), is_error=did.is_error)
            said.append(Message("tool", (result,), author="tool"))
    said.append(Message("assistant", (Text("All done."),), author="model"))
    return History(tuple(said))


def closed(history: History, policy: Policy) -> tuple[Plan, History]:
    """Return the plan of a policy and the fitted history; check its token counts and idempotence."""
    plan = build_plan(history, policy(history), SCALE)
    smaller = apply(history, plan)
    assert SCALE.history(smaller) == plan.tokens_after <= plan.tokens_before
    again = build_plan(smaller, policy(smaller), SCALE)
    assert again.edits == (), again.explain()
    return plan, smaller


def results(history: History) -> list[str]:
    """Return the texts of all results in order."""
    return [part_text(part) for message in history for part in message.parts if isinstance(part, ToolResult)]


def touched(history: History, edits: Iterable[Edit]) -> list[int]:
    """Return the indexes of the chains with an edited call or result."""
    places = {history.places[target] for edit in edits for target in getattr(edit, "targets", (edit.target,))}
    return [n for n, chain in enumerate(history.chains) if places & {chain.call, chain.result}]


def body(word: str, lines: int = 60) -> str:
    """Return a file's text that is long enough for a placeholder."""
    return "\n".join(f"{word} = {word}_{word}({'abcdefghij'[line % 10] * 12})" for line in range(lines))
