"""What each API wants of a conversation: one row a rule and vendor, with the page that says so and the error it gives.

Only what can be seen in the history alone is here; what hangs on the model or on a request's other fields is not.
A rule that nobody documents and no error message proves is no rule.
"""

from thresher.edits import rules_content as content
from thresher.edits import rules_encoding as encoding
from thresher.edits import rules_tools as tools
from thresher.edits.rules_view import ANTHROPIC, CHAT, DIALECTS, GEMINI, RESPONSES, Rule

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

RULES: tuple[Rule, ...] = (
    Rule("lone-surrogate", DIALECTS, JSON_UTF8, "the request body is not valid JSON", encoding.lone_surrogate),
    Rule("arguments-json", (ANTHROPIC, GEMINI), JSON_NUMBERS, "the request body is not valid JSON", encoding.not_json),
    Rule(
        "misplaced-part",
        (ANTHROPIC,),
        CLAUDE_TOOLS,
        "`tool_use` and `tool_result` in the wrong role",
        tools.misplaced_part,
    ),
    Rule("misplaced-part", (CHAT,), OPENAI_CHAT, _NO_TOOL_CALLS, tools.misplaced_part),
    Rule(
        "misplaced-part",
        (RESPONSES,),
        OPENAI_RESPONSES,
        "`instructions` is text: calls in it are lost",
        tools.misplaced_part,
    ),
    Rule("misplaced-part", (GEMINI,), GEMINI_TOOLS, _RESPONSE_TURN, tools.misplaced_part),
    Rule("orphan-result", (ANTHROPIC,), CLAUDE_TOOLS, _NO_CALL, tools.orphan_result),
    Rule("orphan-result", (CHAT,), OPENAI_TOOLS, _NO_TOOL_CALLS, tools.orphan_result),
    Rule("orphan-result", (RESPONSES,), OPENAI_TOOLS, _NO_FUNCTION_CALL, tools.orphan_result),
    Rule("orphan-result", (GEMINI,), GEMINI_TOOLS, _RESPONSE_TURN, tools.orphan_result),
    Rule(
        "repeated-result",
        (ANTHROPIC,),
        CLAUDE_TOOLS,
        "each `tool_use` must have a single result",
        tools.repeated_result,
    ),
    Rule("repeated-result", (CHAT,), OPENAI_TOOLS, _NO_TOOL_CALLS, tools.repeated_result),
    Rule("repeated-result", (RESPONSES,), OPENAI_TOOLS, "one output for each call", tools.repeated_result),
    Rule("repeated-result", (GEMINI,), GEMINI_TOOLS, _UNEQUAL, tools.repeated_result),
    Rule("unanswered-call", (ANTHROPIC,), CLAUDE_TOOLS, _NO_RESULT, tools.unanswered_call),
    Rule("unanswered-call", (CHAT,), OPENAI_TOOLS, _NO_TOOL_MESSAGE, tools.unanswered_call),
    Rule("unanswered-call", (RESPONSES,), OPENAI_TOOLS, _NO_OUTPUT, tools.unanswered_call),
    Rule("unanswered-call", (GEMINI,), GEMINI_TOOLS, _UNEQUAL, tools.unanswered_call),
    Rule("result-place", (ANTHROPIC,), CLAUDE_PARALLEL, _NO_RESULT, tools.result_place),
    Rule("result-place", (CHAT,), OPENAI_TOOLS, _NO_TOOL_MESSAGE, tools.result_place),
    Rule("result-place", (GEMINI,), GEMINI_TOOLS, _UNEQUAL, tools.result_place),
    Rule("result-kind", (CHAT,), OPENAI_CHAT, _NO_TOOL_CALLS, tools.result_kind),
    Rule("result-kind", (RESPONSES,), OPENAI_RESPONSES, "No tool output found for custom tool call", tools.result_kind),
    Rule("missing-id", (ANTHROPIC,), CLAUDE_TOOLS, "tool_use.id: Field required", tools.missing_id),
    Rule("missing-id", (CHAT,), OPENAI_CHAT, "Missing required parameter: 'tool_call_id'", tools.missing_id),
    Rule("missing-id", (RESPONSES,), OPENAI_RESPONSES, "Missing required parameter: 'call_id'", tools.missing_id),
    Rule("repeated-id", (ANTHROPIC,), CLAUDE_TOOLS, "`tool_use` ids must be unique", tools.repeated_id),
    Rule("repeated-id", (CHAT, RESPONSES), OPENAI_TOOLS, "no telling which call a result answers", tools.repeated_id),
    Rule(
        "id-form",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        tools.id_form,
    ),
    Rule("id-form", (CHAT,), OPENAI_CHAT, "string too long. Expected a string with maximum length 40", tools.id_form),
    Rule(
        "id-form",
        (RESPONSES,),
        OPENAI_RESPONSES,
        "string too long. Expected a string with maximum length 64",
        tools.id_form,
    ),
    Rule(
        "unsigned-thinking",
        (ANTHROPIC,),
        CLAUDE_THINKING,
        "thinking.signature: Field required",
        content.unsigned_thinking,
    ),
    Rule(
        "thinking-last",
        (ANTHROPIC,),
        CLAUDE_THINKING,
        "The final block in an assistant message cannot be `thinking`",
        content.thinking_last,
    ),
    Rule("empty-text", (ANTHROPIC,), CLAUDE_MESSAGES, "text content blocks must be non-empty", content.empty_text),
    Rule(
        "empty-text",
        (GEMINI,),
        GEMINI_CONTENT,
        "required oneof field 'data' must have one initialized field",
        content.empty_text,
    ),
    Rule(
        "blank-message",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "text content blocks must contain non-whitespace text",
        content.blank_message,
    ),
    Rule(
        "empty-message",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "all messages must have non-empty content",
        content.empty_message,
    ),
    Rule(
        "empty-message",
        (CHAT,),
        OPENAI_CHAT,
        "Invalid value for 'content': expected a string, got null",
        content.empty_message,
    ),
    Rule("empty-message", (GEMINI,), GEMINI_CONTENT, "contents.parts must not be empty", content.empty_message),
    Rule("results-first", (ANTHROPIC,), CLAUDE_TOOLS, _NO_RESULT, tools.results_first),
    Rule(
        "thinking-first",
        (ANTHROPIC,),
        CLAUDE_THINKING,
        "Expected `thinking` or `redacted_thinking`",
        content.thinking_first,
    ),
    Rule(
        "call-after-model",
        (GEMINI,),
        GEMINI_TOOLS,
        "function call turn must come immediately after a user turn",
        tools.call_after_model,
    ),
    Rule("unknown-role", (ANTHROPIC,), CLAUDE_MESSAGES, "messages: Unexpected role", content.unknown_role),
    Rule("unknown-role", (CHAT,), OPENAI_CHAT, "Invalid value for 'role': supported values are", content.unknown_role),
    Rule("unknown-role", (GEMINI,), GEMINI_CONTENT, "Please use a valid role: user, model", content.unknown_role),
    Rule("first-role", (ANTHROPIC,), CLAUDE_MESSAGES, 'first message must use the "user" role', content.first_role),
    Rule("first-role", (GEMINI,), GEMINI_CONTENT, "a conversation starts with a user turn", content.first_role),
    Rule(
        "lone-reasoning",
        (RESPONSES,),
        OPENAI_REASONING,
        "reasoning was provided without its required following item",
        content.lone_reasoning,
    ),
    Rule("repeated-item", (RESPONSES,), OPENAI_RESPONSES, "Duplicate item found with id", tools.repeated_item),
    Rule(
        "thought-signature",
        (GEMINI,),
        GEMINI_SIGNATURES,
        "Function call is missing a thought_signature",
        content.thought_signature,
    ),
    Rule(
        "trailing-space",
        (ANTHROPIC,),
        CLAUDE_MESSAGES,
        "final assistant content cannot end with trailing whitespace",
        content.trailing_space,
    ),
)

BY_DIALECT: dict[str, tuple[Rule, ...]] = {
    name: tuple(rule for rule in RULES if name in rule.dialects) for name in DIALECTS
}
