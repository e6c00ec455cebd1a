"""Fit the histories of several conversations at the same time, without blocking the event loop. See README.md."""

import asyncio
from typing import Any

import thresher as th

Json = dict[str, Any]


async def fit(messages: list[Json], budget: int) -> tuple[list[Json], th.Plan]:
    """Fit in a thread, because counting tokens takes CPU time and storing removed text takes disk time."""
    plans: list[th.Plan] = []
    fitted = await asyncio.to_thread(th.fit, messages, budget=budget, report=plans.append)
    return fitted, plans[-1]


def conversation(number: int) -> list[Json]:
    """Return a conversation with a long result, and with a call whose result was lost."""
    log = "\n".join(f"{number}.{line}: {'checked ' * (line % 7)}ok" for line in range(2_000))
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("check", "deploy")
    ]
    return [
        {"role": "user", "content": f"Check service {number}."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "check", "content": log},
        {"role": "assistant", "content": "All lines are ok."},
        {"role": "user", "content": "And the last one?"},
    ]


async def main() -> None:
    conversations = [conversation(number) for number in range(3)]
    for fitted, plan in await asyncio.gather(*(fit(messages, budget=4_000) for messages in conversations)):
        removed = ", ".join(sorted({edit.why for edit in plan.edits}))
        repaired = ", ".join(repair.detail for repair in plan.repairs)
        print(f"{len(fitted)} messages, {plan.tokens_before:,} → {plan.tokens_after:,} tokens")
        print(f"  removed: {removed}; repaired: {repaired}")


if __name__ == "__main__":
    asyncio.run(main())
