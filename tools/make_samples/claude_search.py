"""The sub-agent of the long Claude Code session: it searches for money stored as binary fractions.

It has its own file, `<session>/subagents/agent-<id>.jsonl`, whose lines carry the parent's session id, and a
`.meta.json` with the id of the call that started it. The parent sees only its last message.
"""

import re

from make_samples.claude_code import Transcript, call, grep_outcome, read_outcome, shell_outcome, thought, words
from make_samples.seeds import Clock
from make_samples.story import CART, PRICES, ROOT, TEST_CART, TEST_PRICES

AGENT = "a7c31f9"
PROMPT = """\
In /home/sam/shop, find every place where an amount of money is kept, computed or compared as a float. Look at
src/shop and tests. For each place say: file and line, what the value means, and what would have to change if
`Price.net` became a Decimal. Do not edit anything. Answer in a short list; mention anything that would break
silently (no exception, wrong number) first."""
ANSWER = """\
Money is a float in two modules; nothing outside `src/shop` computes with it.

Would break silently
1. `src/shop/prices.py:41` `Price.tax` rounds with the built-in `round`. On binary fractions it cannot see a \
tie:
   0.30 at 5 per cent is 0.01499999999999999944, so half a penny goes down although the test wants it up.
2. `src/shop/prices.py:51` `line_total` multiplies without rounding, so 3 x 0.10 is 0.30000000000000004.
3. `src/shop/cart.py:62` `Cart.total` uses `sum` without a start value. With Decimal the sum of an empty cart
   would be the int 0; the receipt still prints it, but its type is wrong.

Would fail loudly
4. `src/shop/prices.py:9` the rates in `TAX_RATES` are floats; Decimal times float is a TypeError.
5. `src/shop/prices.py:54` `parse_amount` returns float. It is the only door by which amounts come in: the \
tests
   and the catalogue all use it, so changing it there changes every caller.

No change needed
6. `format_amount` uses `:.2f`, which Decimal understands.
7. `tests/` compare against `parse_amount("…")`, never against float literals; they stay as they are."""


SOURCES = (("src/shop/cart.py", CART), ("src/shop/prices.py", PRICES))
TESTS = (("tests/test_cart.py", TEST_CART), ("tests/test_prices.py", TEST_PRICES))


def matches(pattern: str, *files: tuple[str, str]) -> list[str]:
    """Return the matches of a pattern in some files, as the search tool prints them."""
    return [
        f"{ROOT}/{name}:{number}:{line}"
        for name, text in files
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def search_agent(session: str, clock: Clock, branch: str) -> Transcript:
    """Write the sub-agent's session."""
    work = Transcript(session, clock, branch, agent=AGENT)
    work.prompt(PROMPT, seconds=1)
    first, second = work.say(
        words("I'll search for float annotations and for arithmetic on amounts."),
        call("Grep", pattern=r"float|round\(", path=f"{ROOT}/src", output_mode="content", **{"-n": True}),
        call("Bash", command="ls src/shop tests && wc -l src/shop/*.py", description="List the modules"),
    )
    work.answer(first, grep_outcome(matches(r"float|round\(", *SOURCES)))
    work.answer(second, shell_outcome(LISTING))
    work.do(
        thought("Grep gives annotations. I need the bodies to see what is rounded and what is not."),
        call("Read", file_path=f"{ROOT}/src/shop/prices.py"),
        gives=read_outcome("src/shop/prices.py", PRICES),
    )
    first, second = work.say(
        words("Now where totals are added up, and how the tests compare them."),
        call("Grep", pattern="total|sum", path=f"{ROOT}/src", output_mode="content", **{"-n": True}),
        call("Grep", pattern="total", path=f"{ROOT}/tests", output_mode="content", **{"-n": True}),
    )
    work.answer(first, grep_outcome(matches("total|sum", *SOURCES)))
    work.answer(second, grep_outcome(matches("total", *TESTS)))
    work.say(words(ANSWER))
    return work


LISTING = """\
src/shop:
__init__.py  cart.py  prices.py

tests:
catalogue.csv  test_cart.py  test_catalogue.py  test_prices.py
    1 src/shop/__init__.py
   70 src/shop/cart.py
   62 src/shop/prices.py
  133 total"""
