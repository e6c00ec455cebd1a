"""Texts of the pi session: readable amounts over a thousand."""

from make_samples import changes, logs, story
from make_samples.story import Change

PRICES = "src/shop/prices.py"
PRICES_TEXT = changes.PRICES_EXACT
CART_TEXT = changes.CART_DISCOUNTED
TESTS_TEXT = story.TEST_PRICES
OLD = """\
    \"\"\"Write an amount as the shop shows it: `£1250.00`.\"\"\"
    return f"{CURRENCY}{amount:.2f}"
"""
BY_LOCALE = Change(
    OLD,
    """\
    \"\"\"Write an amount as the shop shows it: `£1,250.00`.\"\"\"
    locale.setlocale(locale.LC_ALL, "en_GB.UTF-8")
    return CURRENCY + locale.format_string("%.2f", amount, grouping=True)
""",
)
BY_FORMAT = Change(
    OLD,
    """\
    \"\"\"Write an amount as the shop shows it: `£1,250.00`.\"\"\"
    return f"{CURRENCY}{amount:,.2f}"
""",
)
TEST_CHANGE = Change('(" £1,250.5 ")) == "£1250.50"', '(" £1,250.5 ")) == "£1,250.50"')
FIRST_PROMPT = "Receipts over 999 pounds are hard to read. Show £1,250.00 instead of £1250.00, everywhere."
SECOND_PROMPT = "No locale, it is not installed on the server either. The shop sells in pounds only."
THIRD_PROMPT = "Does the receipt still line up when a cart goes over ten thousand? Check, don't guess."
LOCALE_FAILED = """\
...F
=================================== FAILURES ===================================
_______________________ test_receipt_ends_with_the_total _______________________
tests/test_cart.py:34: in test_receipt_ends_with_the_total
    assert cart_of(BOOK).receipt().splitlines()[-1].endswith("£12.90")
           ^^^^^^^^^^^^^^^^^^^^^^^
src/shop/cart.py:80: in receipt
    f"{line.quantity:>3} x {line.article.name:<28} {format_amount(line.total):>10}" for line in self
                                                    ^^^^^^^^^^^^^^^^^^^^^^^^^
src/shop/prices.py:70: in format_amount
    locale.setlocale(locale.LC_ALL, "en_GB.UTF-8")
    ^^^^^^
E   NameError: name 'locale' is not defined. Did you forget to import 'locale'?
=========================== short test summary info ============================
FAILED tests/test_cart.py::test_receipt_ends_with_the_total - NameError: name...
!!!!!!!!!!!!!!!!!!!!!!!!!! stopping after 1 failures !!!!!!!!!!!!!!!!!!!!!!!!!!!
1 failed, 3 passed in 0.10s


Command exited with code 1"""
LOCALE_WORDS = """\
The import is missing, but there is a second problem that adding it would only uncover: `en_GB.UTF-8` has to \
be installed on every machine that prints a receipt, and `setlocale` changes the whole process. Shall I go \
on this way, or format it plainly?"""
BRANCH_SUMMARY = """\
The user tried formatting amounts with the locale module. format_amount was edited to call locale.setlocale \
with en_GB.UTF-8; the tests failed with a NameError because the import was missing. The agent warned that \
the locale must be installed and that setlocale acts on the whole process. The edit is undone."""
TEST_FAILED = """\
........................................................................ [ 59%]
.................................................F                       [100%]
=================================== FAILURES ===================================
__________________ test_amounts_are_read_as_people_type_them ___________________
tests/test_prices.py:24: in test_amounts_are_read_as_people_type_them
    assert format_amount(parse_amount(" £1,250.5 ")) == "£1250.50"
E   AssertionError: assert '£1,250.50' == '£1250.50'
E     - £1250.50
E     + £1,250.50
E     ?   +
=========================== short test summary info ============================
FAILED tests/test_prices.py::test_amounts_are_read_as_people_type_them - Asse...
1 failed, 121 passed in 0.49s


Command exited with code 1"""
GREP = """\
tests/test_cart.py:34:    assert cart_of(BOOK).receipt().splitlines()[-1].endswith("£12.90")
tests/test_prices.py:24:    assert format_amount(parse_amount(" £1,250.5 ")) == "£1250.50"
src/shop/prices.py:18:CURRENCY = "£"
src/shop/prices.py:63:    \"\"\"Read an amount as people type it: `12`, `12.5`, `£1,250.00`.\"\"\"
src/shop/prices.py:69:    \"\"\"Write an amount as the shop shows it: `£1,250.00`.\"\"\"
"""
PASSED = logs.quiet_log(122, "0.48") + "\n"
FIRST_DONE = """\
Amounts are grouped now: `format_amount` uses the format spec `,.2f`. One test spelled out the old form and \
follows; 122 tests pass. `parse_amount` already dropped commas, so what the shop writes it can read back."""
DIFFSTAT = """\
 src/shop/prices.py   | 4 ++--
 tests/test_prices.py | 2 +-
 2 files changed, 3 insertions(+), 3 deletions(-)
"""
NOTE = "The branch main has moved by one commit since this session began: 8e41b77 to 5d0c1ae."
SUMMARY = """\
## Goal
Amounts over 999 pounds are to be written with a comma, as in £1,250.00.

## Done
- `format_amount` in src/shop/prices.py uses `f"{CURRENCY}{amount:,.2f}"`; the locale module was tried and \
given up.
- tests/test_prices.py follows. 122 tests passed.

## Next
- The user asks whether the receipt still lines up above ten thousand pounds."""
TRY_COMMAND = """\
PYTHONPATH=src python - <<'END'
from shop.cart import Article, Cart
from shop.prices import Price, parse_amount
cart = Cart()
for sku, amount in (("a", "9.00"), ("b", "12500.00"), ("c", "125000.00")):
    cart.add(Article(sku, "Something", Price(parse_amount(amount), "zero")))
print(cart.receipt())
END"""
TRY_OUTPUT = """\
  1 x Something                         £9.00
  1 x Something                    £12,500.00
  1 x Something                    £125,000.00
Total                              £137,509.00
"""
LAST_WORDS = """\
Checked: it lines up to £99,999.99. From £100,000.00 on an amount is eleven characters and the column ten, \
so the row sticks out by one. I changed nothing; if such carts occur, widening the column in `Cart.receipt` \
from 10 to 12 is enough."""
