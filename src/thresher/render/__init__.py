"""Values to text and tables, for people and for programs.

In: sessions and histories. Out: rows, rich renderables, plain values for JSON. Text of a transcript is data: its
control characters never reach a terminal, its brackets never become markup.
"""

from thresher.render.plain import plain_text
from thresher.render.plan import plan_table
from thresher.render.rows import SessionRow, session_row, session_table
from thresher.render.transcript import session_value, transcript
from thresher.render.words import amount, clean, plural, shorten, size, tokens

__all__ = [
    "SessionRow",
    "amount",
    "clean",
    "plain_text",
    "plan_table",
    "plural",
    "session_row",
    "session_table",
    "session_value",
    "shorten",
    "size",
    "tokens",
    "transcript",
]
