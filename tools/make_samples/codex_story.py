"""Texts of the Codex session: delivery charges, free from a limit on."""

from make_samples import changes, logs, story

BASE = """\
You are a coding agent in a terminal. You share a working directory with the user. Read before you write, \
keep changes small, run the tests that a change touches, and say plainly what you did and what you did not \
do."""
PERMISSIONS = """\
<permissions instructions>
Commands may read every file and write inside the working directory. There is no network. Ask before \
anything else.
</permissions instructions>"""
INSTRUCTIONS = """\
# AGENTS.md instructions for /home/sam/shop

<INSTRUCTIONS>
- Python 3.12, no dependencies besides pytest.
- Amounts are Decimal and come in through parse_amount. Round only with prices.rounded.
- One module per matter; every public name has a docstring of one line.
- Run `python -m pytest -q` before you say that something is done.
</INSTRUCTIONS>"""
ENVIRONMENT = """\
<environment_context>
  <cwd>/home/sam/shop</cwd>
  <shell>bash</shell>
  <current_date>2026-03-14</current_date>
  <timezone>Europe/London</timezone>
</environment_context>"""
FIRST_PROMPT = """\
Add delivery charges: £3.95, free from £40 after the discount. Gift cards (sku starts with gift-) are sent \
by mail and never cost delivery. Own module, with tests."""
SECOND_PROMPT = "Nice. The receipt should show delivery as its own row above the total, also when it is free."
LOOKING = (
    ("cat src/shop/cart.py", changes.CART_DISCOUNTED, 0),
    ("cat src/shop/prices.py", changes.PRICES_EXACT, 0),
    ("cat tests/test_cart.py", story.TEST_CART, 0),
)
DELIVERY = '''\
"""Delivery: what it costs to send a cart."""

from decimal import Decimal

from shop.cart import Cart

CHARGE = Decimal("3.95")
FREE_FROM = Decimal("40")


def is_posted(sku: str) -> bool:
    """Does this article need a parcel?"""
    return not sku.startswith("gift-")


def charge(cart: Cart) -> Decimal:
    """What the customer pays for delivery; the limit is measured after the discount."""
    if not any(is_posted(sku) for sku in cart.lines):
        return Decimal(0)
    return Decimal(0) if cart.total > FREE_FROM else CHARGE
'''
TEST_DELIVERY = """\
import pytest

from shop.cart import Article, Cart
from shop.delivery import CHARGE, charge
from shop.discounts import Discount
from shop.prices import Price, parse_amount


def cart_worth(amount, sku="book-07", discount=None):
    cart = Cart(discount=discount)
    cart.add(Article(sku, "Something", Price(parse_amount(amount), "zero")))
    return cart


@pytest.mark.parametrize(("amount", "costs"), [("39.99", "3.95"), ("40.00", "0"), ("40.01", "0")])
def test_delivery_is_free_from_the_limit_on(amount, costs):
    assert charge(cart_worth(amount)) == parse_amount(costs)


def test_the_limit_is_measured_after_the_discount():
    assert charge(cart_worth("42.00", discount=Discount("TEN", parse_amount("10")))) == CHARGE


def test_gift_cards_are_not_posted():
    assert charge(cart_worth("10.00", sku="gift-25")) == 0


def test_an_empty_cart_is_not_sent():
    assert charge(Cart()) == 0
"""


def added(name: str, text: str) -> str:
    """Return a new file in Codex's patch language."""
    return f"*** Add File: {name}\n" + "".join(f"+{line}\n" for line in text.splitlines())


DELIVERY_PATCH = (
    "*** Begin Patch\n"
    + added("src/shop/delivery.py", DELIVERY)
    + added("tests/test_delivery.py", TEST_DELIVERY)
    + "*** End Patch"
)
LIMIT_PATCH = """\
*** Begin Patch
*** Update File: src/shop/delivery.py
@@
         return Decimal(0)
-    return Decimal(0) if cart.total > FREE_FROM else CHARGE
+    return Decimal(0) if cart.total >= FREE_FROM else CHARGE
*** End Patch"""
FAILED = """\
.F....                                                                   [100%]
=================================== FAILURES ===================================
_______________ test_delivery_is_free_from_the_limit_on[40.00-0] _______________
tests/test_delivery.py:17: in test_delivery_is_free_from_the_limit_on
    assert charge(cart_worth(amount)) == parse_amount(costs)
E   AssertionError: assert Decimal('3.95') == Decimal('0')
E    +  where Decimal('3.95') = charge(Cart(lines={'book-07': Line(article=Article(sku='book-07', \
name='Something', \
price=Price(net=Decimal('40.00'), band='zero')), quantity=1)}, discount=None))
E    +  and   Decimal('0') = parse_amount('0')
=========================== short test summary info ============================
FAILED tests/test_delivery.py::test_delivery_is_free_from_the_limit_on[40.00-0]
1 failed, 5 passed in 0.08s
"""
PASSED = logs.quiet_log(122, "0.52") + "\n"
FIRST_DONE = """\
Delivery is in `src/shop/delivery.py`: £3.95, free from £40.00 on, measured after the discount. Carts that \
hold only gift cards, and empty carts, cost nothing to send. 122 tests pass; 6 of them are new. My first \
version compared with `>` instead of `>=`, which the test for exactly £40.00 caught."""
RECEIPT_USES = """\
tests/test_cart.py:34:    assert cart_of(BOOK).receipt().splitlines()[-1].endswith("£12.90")
tests/test_discounts.py:24:    assert "Discount SPRING" in cart.receipt()
"""
RECEIPT_LOOK = (
    ("sed -n '77,85p' src/shop/cart.py", "\n".join(changes.CART_DISCOUNTED.splitlines()[76:]) + "\n", 0),
    ("grep -rn 'receipt()' src tests", RECEIPT_USES, 0),
)
HANDOVER = """\
Another model began this task and wrote down where it stands. Delivery charges are done: \
src/shop/delivery.py has `charge(cart)`, tests/test_delivery.py has six tests, 122 tests pass. Open: \
`Cart.receipt` in src/shop/cart.py is to show delivery as its own row above the total, also when it is free. \
delivery.py imports Cart, so cart.py must not import delivery at the top: hand the charge to `receipt` as an \
argument."""
READ_AGAIN = ("cat src/shop/cart.py", changes.CART_DISCOUNTED, 0)
RECEIPT_PATCH = """\
*** Begin Patch
*** Update File: src/shop/cart.py
@@
-    def receipt(self) -> str:
-        \"\"\"The cart as the customer reads it, one line per article and the total under it.\"\"\"
+    def receipt(self, delivery: Decimal = Decimal(0)) -> str:
+        \"\"\"The cart as the customer reads it: the articles, the discount, delivery, and the total under \
them.\"\"\"
@@
-        rows.append(f"{'Total':<34} {format_amount(self.total):>10}")
+        rows.append(f"{'Delivery':<34} {format_amount(delivery) if delivery else 'free':>10}")
+        rows.append(f"{'Total':<34} {format_amount(self.total + delivery):>10}")
*** End Patch"""
PASSED_AGAIN = f"""\
{logs.quiet_log(122, "0.50")}
 src/shop/cart.py | 7 ++++---
 1 file changed, 4 insertions(+), 3 deletions(-)
"""
LAST_WORDS = """\
The receipt now has a `Delivery` row above the total, with the charge or the word "free". `Cart.receipt` \
takes the charge as an argument, because `delivery.py` already imports `Cart` and the other way round would \
be a circle. Callers that pass nothing print "free": the checkout should pass `charge(cart)`. 122 tests \
pass."""
