"""Values to text and tables, for people and for programs.

In: sessions and histories. Out: rows, rich renderables, plain values for JSON. Text of a transcript is data: its
control characters never reach a terminal, its brackets never become markup.
"""
