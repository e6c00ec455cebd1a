"""What each API wants of a conversation: one row a rule and vendor, with the page that says so and the error it gives.

Only what can be seen in the history alone is here; what hangs on the model or on a request's other fields is not.
A rule that nobody documents and no error message proves is no rule.
"""

from thresher.edits import rules_content as content
from thresher.edits import rules_encoding as encoding
from thresher.edits import rules_tools as tools
from thresher.edits.layout import ANTHROPIC, CHAT, DIALECTS, GEMINI, RESPONSES, LegalityRule

_CLAUDE = "https://platform.claude.com/docs/en"
CLAUDE_MESSAGES = f"{_CLAUDE}/api/messages"
CLAUDE_TOOLS = f"{_CLAUDE}/agents-and-tools/tool-use/handle-tool-calls"
CLAUDE_PARALLEL = f"{_CLAUDE}/agents-and-tools/tool-use/parallel-tool-use"
CLAUDE_THINKING = f"{_CLAUDE}/build-with-claude/extended-thinking"
_OPENAI = "https://platform.openai.com/docs"
OPENAI_TOOLS = f"{_OPENAI}/guides/function-calling"
OPENAI_CHAT = f"{_OPENAI}/api-reference/chat/create"
OPENAI_RESPONSES = f"{_OPENAI}/api-reference/responses/create"
OPENAI_REASONING = f"{_OPENAI}/guides/reasoning"
_GOOGLE = "https://ai.google.dev"
GEMINI_TOOLS = f"{_GOOGLE}/gemini-api/docs/function-calling"
GEMINI_CONTENT = f"{_GOOGLE}/api/generate-content"
GEMINI_SIGNATURES = f"{_GOOGLE}/gemini-api/docs/thought-signatures"
JSON_UTF8 = "https://www.rfc-editor.org/rfc/rfc8259#section-8"
JSON_NUMBERS = "https://www.rfc-editor.org/rfc/rfc8259#section-6"

_NO_RESULT = "`tool_use` ids were found without `tool_result` blocks immediately after"
_NO_CALL = "unexpected `tool_use_id` found in `tool_result` blocks"
_NO_TOOL_MESSAGE = "An assistant message with 'tool_calls' must be followed by tool messages responding to each id"
_NO_TOOL_CALLS = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
_NO_OUTPUT = "No tool output found for function call"
_NO_FUNCTION_CALL = "No tool call found for function call output"
_UNEQUAL = "the number of function response parts is not equal to the number of function call parts"
_RESPONSE_TURN = "function response turn must come immediately after a function call turn"

LEGALITY_RULES: tuple[LegalityRule, ...] = (
    LegalityRule(
        "lone-surrogate", DIALECTS, JSON_UTF8, "the request body is not valid JSON", encoding.check_lone_surrogate
    ),
    LegalityRule(
        "arguments-json",
        (ANTHROPIC, GEMINI),
        JSON_NUMBERS,
        "the request body is not valid JSON",
        encoding.check_arguments_json,
    ),
    LegalityRule(
        "misplaced-part",
        (ANTHROPIC,),
        CLAUDE_TOOLS,
        "`tool_use` and `tool_result` in the wrong role",
        tools.check_misplaced_part,
    ),
    LegalityRule("misplaced-part", (CHAT,), OPENAI_CHAT, _NO_TOOL_CALLS, tools.check_misplaced_part),
    LegalityRule(
        "misplaced-part",
        (RESPONSES,),
        OPENAI_RESPONSES,
        "`instructions` is text: calls in it are lost",
        tools.check_misplaced_part,
    ),
    LegalityRule("misplaced-part", (GEMINI,), GEMINI_TOOLS, _RESPONSE_TURN, tools.check_misplaced_part),
    LegalityRule("orphan-result", (ANTHROPIC,), CLAUDE_TOOLS, _NO_CALL, tools.check_orphan_result),
    LegalityRule("orphan-result", (CHAT,), OPENAI_TOOLS, _NO_TOOL_CALLS, tools.check_orphan_result),
    LegalityRule("orphan-result", (RESPONSES,), OPENAI_TOOLS, _NO_FUNCTION_CALL, tools.check_orphan_result),
    LegalityRule("orphan-result", (GEMINI,), GEMINI_TOOLS, _RESPONSE_TURN, tools.check_orphan_result),
    LegalityRule(
        "repeated-result",
        (ANTHROPIC,),
        CLAUDE_TOOLS,
        "each `tool_use` must have a single result",
        tools.check_repeated_result,
    ),
    LegalityRule("repeated-result", (CHAT,), OPENAI_TOOLS, _NO_TOOL_CALLS, tools.check_repeated_result),
    LegalityRule(
        "repeated-result", (RESPONSES,), OPENAI_TOOLS, "one output for each call", tools.check_repeated_result
    ),
    LegalityRule("repeated-result", (GEMINI,), GEMINI_TOOLS, _UNEQUAL, tools.check_repeated_result),
    LegalityRule("unanswered-call", (ANTHROPIC,), CLAUDE_TOOLS, _NO_RESULT, tools.check_unanswered_call),
    LegalityRule("unanswered-call", (CHAT,), OPENAI_TOOLS, _NO_TOOL_MESSAGE, tools.check_unanswered_call),
    LegalityRule("unanswered-call", (RESPONSES,), OPENAI_TOOLS, _NO_OUTPUT, tools.check_unanswered_call),
    LegalityRule("unanswered-call", (GEMINI,), GEMINI_TOOLS, _UNEQUAL, tools.check_unanswered_call),
    LegalityRule("result-place", (ANTHROPIC,), CLAUDE_PARALLEL, _NO_RESULT, tools.check_result_place),
    LegalityRule("result-place", (CHAT,), OPENAI_TOOLS, _NO_TOOL_MESSAGE, tools.check_result_place),
    LegalityRule("result-place", (GEMINI,), GEMINI_TOOLS, _UNEQUAL, tools.check_result_place),
    LegalityRule("result-kind", (CHAT,), OPENAI_CHAT, _NO_TOOL_CALLS, tools.check_result_kind),
    LegalityRule(
        "result-kind",
        (RESPONSES,),
        OPENAI_RESPONSES,
        "No tool output found for custom tool call",
        tools.check_result_kind,
    ),
    LegalityRule("missing-id", (ANTHROPIC,), CLAUDE_TOOLS, "tool_use.id: Field required", tools.check_missing_id),
    LegalityRule(
        "missing-id", (CHAT,), OPENAI_CHAT, "Missing required parameter: 'tool_call_id'", tools.check_missing_id
    ),
    LegalityRule(
        "missing-id", (RESPONSES,), OPENAI_RESPONSES, "Missing required parameter: 'call_id'", tools.check_missing_id
    ),
    LegalityRule("repeated-id", (ANTHROPIC,), CLAUDE_TOOLS, "`tool_use` ids must be unique", tools.check_repeated_id),
    LegalityRule(
        "repeated-id",
        (CHAT, RESPONSES),
        OPENAI_TOOLS,
        "no telling which call a result answers",
        tools.check_repeated_id,
    ),
    LegalityRule(
        "id-form",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        tools.check_id_form,
    ),
    LegalityRule(
        "id-form",
        (CHAT,),
        OPENAI_CHAT,
        "string too long. Expected a string with maximum length 40",
        tools.check_id_form,
    ),
    LegalityRule(
        "id-form",
        (RESPONSES,),
        OPENAI_RESPONSES,
        "string too long. Expected a string with maximum length 64",
        tools.check_id_form,
    ),
    LegalityRule(
        "unsigned-thinking",
        (ANTHROPIC,),
        CLAUDE_THINKING,
        "thinking.signature: Field required",
        content.check_unsigned_thinking,
    ),
    LegalityRule(
        "thinking-last",
        (ANTHROPIC,),
        CLAUDE_THINKING,
        "The final block in an assistant message cannot be `thinking`",
        content.check_thinking_last,
    ),
    LegalityRule(
        "empty-text", (ANTHROPIC,), CLAUDE_MESSAGES, "text content blocks must be non-empty", content.check_empty_text
    ),
    LegalityRule(
        "empty-text",
        (GEMINI,),
        GEMINI_CONTENT,
        "required oneof field 'data' must have one initialized field",
        content.check_empty_text,
    ),
    LegalityRule(
        "blank-message",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "text content blocks must contain non-whitespace text",
        content.check_blank_message,
    ),
    LegalityRule(
        "empty-message",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "all messages must have non-empty content",
        content.check_empty_message,
    ),
    LegalityRule(
        "empty-message",
        (CHAT,),
        OPENAI_CHAT,
        "Invalid value for 'content': expected a string, got null",
        content.check_empty_message,
    ),
    LegalityRule(
        "empty-message", (GEMINI,), GEMINI_CONTENT, "contents.parts must not be empty", content.check_empty_message
    ),
    LegalityRule("results-first", (ANTHROPIC,), CLAUDE_TOOLS, _NO_RESULT, tools.check_results_first),
    LegalityRule(
        "thinking-first",
        (ANTHROPIC,),
        CLAUDE_THINKING,
        "Expected `thinking` or `redacted_thinking`",
        content.check_thinking_first,
    ),
    LegalityRule(
        "call-after-model",
        (GEMINI,),
        GEMINI_TOOLS,
        "function call turn must come immediately after a user turn",
        tools.check_call_after_model,
    ),
    LegalityRule(
        "unknown-role", (ANTHROPIC,), CLAUDE_MESSAGES, "messages: Unexpected role", content.check_unknown_role
    ),
    LegalityRule(
        "unknown-role",
        (CHAT,),
        OPENAI_CHAT,
        "Invalid value for 'role': supported values are",
        content.check_unknown_role,
    ),
    LegalityRule(
        "unknown-role", (GEMINI,), GEMINI_CONTENT, "Please use a valid role: user, model", content.check_unknown_role
    ),
    LegalityRule(
        "first-role", (ANTHROPIC,), CLAUDE_MESSAGES, 'first message must use the "user" role', content.check_first_role
    ),
    LegalityRule(
        "first-role", (GEMINI,), GEMINI_CONTENT, "a conversation starts with a user turn", content.check_first_role
    ),
    LegalityRule(
        "lone-reasoning",
        (RESPONSES,),
        OPENAI_REASONING,
        "reasoning was provided without its required following item",
        content.check_lone_reasoning,
    ),
    LegalityRule(
        "repeated-item", (RESPONSES,), OPENAI_RESPONSES, "Duplicate item found with id", tools.check_repeated_item
    ),
    LegalityRule(
        "thought-signature",
        (GEMINI,),
        GEMINI_SIGNATURES,
        "Function call is missing a thought_signature",
        content.check_thought_signature,
    ),
    LegalityRule(
        "trailing-space",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "final assistant content cannot end with trailing whitespace",
        content.check_trailing_space,
    ),
)

RULES_BY_DIALECT: dict[str, tuple[LegalityRule, ...]] = {
    name: tuple(rule for rule in LEGALITY_RULES if name in rule.dialects) for name in DIALECTS
}
