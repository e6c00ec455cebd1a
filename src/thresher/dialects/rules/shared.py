"""Rules that several APIs share; each dialect adds its vendor's page and error."""

from functools import partial
from typing import Literal

from thresher.dialects.repairs import steps
from thresher.dialects.rules import content_rules as content
from thresher.dialects.rules import encoding_rules as encoding
from thresher.dialects.rules import tool_rules as tool
from thresher.dialects.rules.rule import LegalityRule

JSON_UTF8 = "https://www.rfc-editor.org/rfc/rfc8259#section-8"
JSON_NUMBERS = "https://www.rfc-editor.org/rfc/rfc8259#section-6"
INVALID_JSON = "the request body is not valid JSON"

LONE_SURROGATE = LegalityRule(
    "lone-surrogate", encoding.check_lone_surrogate, steps.SURROGATES, JSON_UTF8, INVALID_JSON
)
LONE_SURROGATE_IN_OBJECTS = LegalityRule(
    "lone-surrogate",
    partial(encoding.check_lone_surrogate, decodes_arguments=True),
    steps.SURROGATES,
    JSON_UTF8,
    INVALID_JSON,
)
"""`LONE_SURROGATE` for an API that takes a call's arguments as an object."""
ARGUMENTS_JSON = LegalityRule(
    "arguments-json", encoding.check_arguments_json, steps.ARGUMENTS, JSON_NUMBERS, INVALID_JSON
)
MISPLACED_PART = LegalityRule("misplaced-part", tool.check_misplaced_part, steps.MISPLACED_PARTS)
ORPHAN_RESULT = LegalityRule("orphan-result", tool.check_orphan_result, steps.UNMATCHED_RESULTS)
REPEATED_RESULT = LegalityRule("repeated-result", tool.check_repeated_result, steps.UNMATCHED_RESULTS)
UNANSWERED_CALL = LegalityRule("unanswered-call", tool.check_unanswered_call, steps.OPEN_CALLS)
RESULT_PLACE = LegalityRule("result-place", tool.check_result_place, steps.OPEN_CALLS)
RESULTS_FIRST = LegalityRule("results-first", tool.check_results_first, steps.PART_ORDER)
MISSING_ID = LegalityRule("missing-id", tool.check_missing_id, steps.CALL_IDS)
ID_CHARACTERS = LegalityRule("id-form", tool.check_id_characters, steps.CALL_IDS)
BLANK_MESSAGE = LegalityRule("blank-message", content.check_blank_message, steps.REMOVED_PARTS)
EMPTY_MESSAGE = LegalityRule("empty-message", content.check_empty_message, steps.EMPTY_MESSAGES)
FIRST_ROLE = LegalityRule("first-role", content.check_first_role, steps.OPENING)
TRAILING_SPACE = LegalityRule("trailing-space", content.check_trailing_space, steps.TRAILING_SPACE)


def repeated_id_rule(within: Literal["history", "row", "open calls"]) -> LegalityRule:
    """Return the rule that ids are unique in a scope."""
    return LegalityRule("repeated-id", partial(tool.check_repeated_id, within=within), steps.CALL_IDS)


def id_length_rule(longest: int) -> LegalityRule:
    """Return the rule that limits the length of ids."""
    return LegalityRule("id-form", partial(tool.check_id_form, longest=longest), steps.CALL_IDS)


def known_role_rule(*roles: str) -> LegalityRule:
    """Return the rule that restricts roles."""
    return LegalityRule("unknown-role", partial(content.check_unknown_role, roles=roles), steps.ROLES)
