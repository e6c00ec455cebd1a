"""Edits to the shop over the sample sessions, and the resulting files."""

from make_samples.story import CART, PRICES, Change, changed

# Money becomes `Decimal`: first the rates and the price, then a forgotten import.

RATES = Change(
    """\
from dataclasses import dataclass

TAX_RATES = {
    "standard": 0.20,
    "reduced": 0.05,
    "zero": 0.0,
}

CURRENCY = "£"


class UnknownBand(LookupError):
    \"\"\"A price names a tax band that the shop does not have.\"\"\"


def tax_rate(band: str) -> float:
""",
    """\
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

PENNY = Decimal("0.01")

TAX_RATES = {
    "standard": Decimal("0.20"),
    "reduced": Decimal("0.05"),
    "zero": Decimal("0"),
}

CURRENCY = "£"


class UnknownBand(LookupError):
    \"\"\"A price names a tax band that the shop does not have.\"\"\"


def tax_rate(band: str) -> Decimal:
""",
)

PRICE = Change(
    """\
    net: float
    band: str = "standard"

    @property
    def tax(self) -> float:
        \"\"\"The tax on one article.\"\"\"
        return round(self.net * tax_rate(self.band), 2)

    @property
    def gross(self) -> float:
        \"\"\"What the customer pays for one article.\"\"\"
        return round(self.net + self.tax, 2)
""",
    """\
    net: Decimal
    band: str = "standard"

    @property
    def tax(self) -> Decimal:
        \"\"\"The tax on one article, to the penny.\"\"\"
        return rounded(self.net * tax_rate(self.band))

    @property
    def gross(self) -> Decimal:
        \"\"\"What the customer pays for one article.\"\"\"
        return self.net + self.tax
""",
)

AMOUNTS = Change(
    """\
def line_total(price: Price, quantity: int) -> float:
    \"\"\"What a number of the same article costs, tax included.\"\"\"
    return price.gross * quantity


def parse_amount(text: str) -> float:
    \"\"\"Read an amount as people type it: `12`, `12.5`, `£1,250.00`.\"\"\"
    cleaned = text.strip().removeprefix(CURRENCY).replace(",", "")
    return float(cleaned)


def format_amount(amount: float) -> str:
""",
    """\
def rounded(amount: Decimal) -> Decimal:
    \"\"\"An amount to the penny; half a penny goes up, as the tax office wants it.\"\"\"
    return amount.quantize(PENNY, ROUND_HALF_UP)


def line_total(price: Price, quantity: int) -> Decimal:
    \"\"\"What a number of the same article costs, tax included.\"\"\"
    return price.gross * quantity


def parse_amount(text: str) -> Decimal:
    \"\"\"Read an amount as people type it: `12`, `12.5`, `£1,250.00`.\"\"\"
    cleaned = text.strip().removeprefix(CURRENCY).replace(",", "")
    return Decimal(cleaned)


def format_amount(amount: Decimal) -> str:
""",
)

# The cart follows and gets discounts.

CART_LINES = Change(
    """\
from dataclasses import dataclass, field

from shop.prices import Price, format_amount, line_total


@dataclass(frozen=True)
class Article:
    \"\"\"Something the shop sells.\"\"\"

    sku: str
    name: str
    price: Price


@dataclass
class Line:
    \"\"\"An article in the cart, and how many of it.\"\"\"

    article: Article
    quantity: int = 1

    @property
    def total(self) -> float:
""",
    """\
from dataclasses import dataclass, field
from decimal import Decimal

from shop.prices import Price, format_amount, line_total


@dataclass(frozen=True)
class Article:
    \"\"\"Something the shop sells.\"\"\"

    sku: str
    name: str
    price: Price


@dataclass
class Line:
    \"\"\"An article in the cart, and how many of it.\"\"\"

    article: Article
    quantity: int = 1

    @property
    def total(self) -> Decimal:
""",
)

CART_TOTALS = Change(
    """\
    @property
    def total(self) -> float:
        \"\"\"What the whole cart comes to, tax included.\"\"\"
        return sum(line.total for line in self)
""",
    """\
    @property
    def total(self) -> Decimal:
        \"\"\"What the whole cart comes to, tax included.\"\"\"
        return sum((line.total for line in self), Decimal(0))
""",
)

DISCOUNTS = '''\
"""Discounts: what a customer pays less, and under which code.

A discount takes a share off the whole cart, never off a line, so that a receipt has one place where pennies
are rounded. It does not know how a cart adds up; it is handed a subtotal.
"""

from dataclasses import dataclass
from decimal import Decimal

from shop.prices import rounded


class DiscountError(ValueError):
    """A discount that could not be meant."""


@dataclass(frozen=True)
class Discount:
    """A percentage off, for carts that come to at least a given amount."""

    code: str
    percent: Decimal
    at_least: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise DiscountError(f"discount {self.code}: {self.percent} per cent is not between 0 and 100")

    def off(self, subtotal: Decimal) -> Decimal:
        """What this discount takes off a subtotal."""
        if subtotal < self.at_least:
            return Decimal(0)
        return rounded(subtotal * self.percent / 100)
'''

CART_DISCOUNT = Change(
    """\
    lines: dict[str, Line] = field(default_factory=dict)

    def add""",
    """\
    lines: dict[str, Line] = field(default_factory=dict)
    discount: Discount | None = None

    def add""",
)

CART_DISCOUNT_IMPORT = Change(
    "from shop.prices import Price, format_amount, line_total\n",
    "from shop.discounts import Discount\nfrom shop.prices import Price, format_amount, line_total\n",
)

RECEIPT_HEAD = """
    def receipt(self) -> str:
        \"\"\"The cart as the customer reads it, one line per article and the total under it.\"\"\"
        rows = [
            f"{line.quantity:>3} x {line.article.name:<28} {format_amount(line.total):>10}" for line in self
        ]
"""
DISCOUNT_ROW = """\
        if self.discount and self.saved:
            rows.append(f"{'Discount ' + self.discount.code:<34} {'-' + format_amount(self.saved):>10}")
"""
TOTAL_ROW = """\
        rows.append(f"{'Total':<34} {format_amount(self.total):>10}")
"""

CART_SUBTOTAL = Change(
    CART_TOTALS.new + RECEIPT_HEAD + TOTAL_ROW,
    """\
    @property
    def subtotal(self) -> Decimal:
        \"\"\"What the lines come to, tax included.\"\"\"
        return sum((line.total for line in self), Decimal(0))

    @property
    def saved(self) -> Decimal:
        \"\"\"What the discount takes off.\"\"\"
        return self.discount.off(self.subtotal) if self.discount else Decimal(0)

    @property
    def total(self) -> Decimal:
        \"\"\"What the customer pays.\"\"\"
        return self.subtotal - self.saved
"""
    + RECEIPT_HEAD
    + DISCOUNT_ROW
    + TOTAL_ROW,
)

TEST_DISCOUNTS = """\
import pytest

from shop.cart import Article, Cart
from shop.discounts import Discount, DiscountError
from shop.prices import Price, parse_amount

LAMP = Article("lamp-03", "Brass reading lamp", Price(parse_amount("41.65")))
SPRING = Discount("SPRING", parse_amount("10"), at_least=parse_amount("40"))


def test_a_share_of_the_subtotal_is_taken_off():
    cart = Cart(discount=SPRING)
    cart.add(LAMP)
    assert (cart.subtotal, cart.saved, cart.total) == tuple(map(parse_amount, ("49.98", "5.00", "44.98")))


def test_a_small_cart_gets_nothing_off():
    assert SPRING.off(parse_amount("39.99")) == 0


def test_the_receipt_names_the_code():
    cart = Cart(discount=SPRING)
    cart.add(LAMP)
    assert "Discount SPRING" in cart.receipt()


def test_an_empty_cart_costs_nothing():
    assert Cart(discount=SPRING).total == 0


@pytest.mark.parametrize("percent", ["0", "-5", "101"])
def test_a_percentage_must_make_sense(percent):
    with pytest.raises(DiscountError):
        Discount("ODD", parse_amount(percent))
"""

PRICES_EXACT = changed(PRICES, RATES, PRICE, AMOUNTS)
CART_EXACT = changed(CART, CART_LINES, CART_TOTALS)
CART_DISCOUNTED = changed(CART_EXACT, CART_DISCOUNT_IMPORT, CART_DISCOUNT, CART_SUBTOTAL)
