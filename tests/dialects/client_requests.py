"""Requests in the shapes that today's clients send, small and written by hand."""

from typing import Any

Row = dict[str, Any]
EPHEMERAL = {"type": "ephemeral"}


def text(words: str, **rest: Any) -> Row:
    return {"type": "text", "text": words, **rest}


def claude_code_rows(turns: int, size: int = 2_000) -> list[Row]:
    """A Claude Code session: every tool result is followed by a system row, and a mark is on the last block."""
    rows: list[Row] = [
        {"role": "user", "content": [text("<system-reminder>\nToday is Monday.\n</system-reminder>"), text("Fix it.")]},
        {"role": "system", "content": [text("You have 150000 tokens left.")]},
    ]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{turn:02}", "name": "Read", "input": {"file_path": f"src/m{turn}.py"}}
        output = f"# module {turn}\n" + f"line of module {turn}\n" * (size // 20)
        result = {"tool_use_id": f"toolu_{turn:02}", "type": "tool_result", "content": output}
        rows += [
            {"role": "assistant", "content": [text(f"Reading module {turn}."), call]},
            {"role": "user", "content": [result]},
            {"role": "system", "content": [text(f"You have {150000 - turn * 700} tokens left.")]},
        ]
    rows[-1]["content"][-1]["cache_control"] = EPHEMERAL
    return rows


def claude_code_request(turns: int, size: int = 2_000, model: str = "claude-opus-4-8") -> Row:
    return {
        "model": model,
        "messages": claude_code_rows(turns, size),
        "system": [
            text("x-anthropic-billing-header: cc_version=2.1.326.a1f; cc_entrypoint=cli;"),
            text("You are Claude Code.", cache_control=EPHEMERAL),
            text("Follow the rules.", cache_control=EPHEMERAL),
        ],
        "tools": [
            {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}},
            {"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object", "properties": {}}},
        ],
        "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s-1"}'},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }


def title_request() -> Row:
    """Claude Code's request for a title: one message, no tools, no mark."""
    return {
        "model": "claude-opus-4-8",
        "messages": [{"role": "user", "content": [text("Fix the parser. " * 300)]}],
        "system": [text("Write a title. " * 200)],
        "tools": [],
        "max_tokens": 512,
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stream": True,
    }


def codex_request(turns: int, size: int = 2_000) -> Row:
    """A Codex request: the tools are an item of the input, and every item has an id."""
    items: list[Row] = [
        {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "message", "id": "m_0", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
        {"type": "message", "id": "m_1", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed" * 200},
        {"type": "sealed_plan_2027", "id": "x_1", "content": "sealed" * 200},
    ]
    for turn in range(turns):
        items += [
            {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "gAAA"},
            {
                "type": "custom_tool_call", "id": f"ctc_{turn}", "call_id": f"call_{turn}", "name": "exec",
                "input": f"cat src/m{turn}.py", "status": "completed",
            },
            {
                "type": "custom_tool_call_output", "id": f"o_{turn}", "call_id": f"call_{turn}",
                "output": f"line of module {turn}\n" * (size // 20),
            },
        ]  # fmt: skip
    return {
        "model": "gpt-5.6", "input": items, "tool_choice": "auto", "parallel_tool_calls": True, "store": False,
        "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread-1",
    }  # fmt: skip
