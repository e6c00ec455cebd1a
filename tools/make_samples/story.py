"""The story of the sample sessions: a small web shop and the changes to it.

The shop's files are defined here in their original version. Every later version follows from them by `Change`s, which
are also the source of the agents' edits. So a file that an agent reads late in a session contains the agent's earlier
edits. The code is real: it runs, and its tests fail and pass as the sessions show.
"""

from dataclasses import dataclass

ROOT = "/home/sam/shop"


@dataclass(frozen=True)
class Change:
    """One edit of one file: an old text and its replacement."""

    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the file after the edit; the old text must occur in it exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"the text to replace stands {text.count(self.old)} times in the file: {self.old!r}")
        return text.replace(self.old, self.new)


def changed(text: str, *changes: Change) -> str:
    """Return a file after several edits."""
    for change in changes:
        text = change.apply(text)
    return text


PRICES = '''\
"""Prices: what an article costs before tax, the tax on it, and what the customer pays.

Every amount is in the shop's own currency. Nothing here knows about carts, discounts or delivery: those
modules ask for a line total and add up what they get.
"""

from dataclasses import dataclass

TAX_RATES = {
    "standard": 0.20,
    "reduced": 0.05,
    "zero": 0.0,
}

CURRENCY = "£"


class UnknownBand(LookupError):
    """A price names a tax band that the shop does not have."""


def tax_rate(band: str) -> float:
    """The rate of a band, as a share of the net price."""
    try:
        return TAX_RATES[band]
    except KeyError:
        known = ", ".join(sorted(TAX_RATES))
        raise UnknownBand(f"no tax band {band!r}; known bands: {known}") from None


@dataclass(frozen=True)
class Price:
    """A net price and the band it is taxed in."""

    net: float
    band: str = "standard"

    @property
    def tax(self) -> float:
        """The tax on one article."""
        return round(self.net * tax_rate(self.band), 2)

    @property
    def gross(self) -> float:
        """What the customer pays for one article."""
        return round(self.net + self.tax, 2)


def line_total(price: Price, quantity: int) -> float:
    """What a number of the same article costs, tax included."""
    return price.gross * quantity


def parse_amount(text: str) -> float:
    """Read an amount as people type it: `12`, `12.5`, `£1,250.00`."""
    cleaned = text.strip().removeprefix(CURRENCY).replace(",", "")
    return float(cleaned)


def format_amount(amount: float) -> str:
    """Write an amount as the shop shows it: `£1250.00`."""
    return f"{CURRENCY}{amount:.2f}"
'''

CART = '''\
"""The cart: what a customer means to buy, and what it comes to.

A cart keeps one line per article. It is plain data: storing it in the session and checking the stock are
the business of the checkout.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shop.prices import Price, format_amount, line_total


@dataclass(frozen=True)
class Article:
    """Something the shop sells."""

    sku: str
    name: str
    price: Price


@dataclass
class Line:
    """An article in the cart, and how many of it."""

    article: Article
    quantity: int = 1

    @property
    def total(self) -> float:
        """What this line comes to, tax included."""
        return line_total(self.article.price, self.quantity)


@dataclass
class Cart:
    """The lines of one customer's cart, in the order they were added."""

    lines: dict[str, Line] = field(default_factory=dict)

    def add(self, article: Article, quantity: int = 1) -> None:
        """Put articles into the cart; more of the same goes onto its line."""
        line = self.lines.get(article.sku)
        if line is None:
            self.lines[article.sku] = Line(article, quantity)
        else:
            line.quantity += quantity

    def remove(self, sku: str) -> None:
        """Take an article out, however many of it there are."""
        self.lines.pop(sku, None)

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines.values())

    def __len__(self) -> int:
        return sum(line.quantity for line in self)

    @property
    def total(self) -> float:
        """What the whole cart comes to, tax included."""
        return sum(line.total for line in self)

    def receipt(self) -> str:
        """The cart as the customer reads it, one line per article and the total under it."""
        rows = [
            f"{line.quantity:>3} x {line.article.name:<28} {format_amount(line.total):>10}" for line in self
        ]
        rows.append(f"{'Total':<34} {format_amount(self.total):>10}")
        return "\\n".join(rows)
'''

TEST_PRICES = """\
import pytest

from shop.prices import Price, UnknownBand, format_amount, line_total, parse_amount


def test_tax_of_the_standard_band():
    assert Price(parse_amount("10.00")).tax == parse_amount("2.00")


def test_half_a_penny_is_rounded_up():
    assert Price(parse_amount("0.30"), "reduced").tax == parse_amount("0.02")


def test_line_total_is_exact():
    assert line_total(Price(parse_amount("0.10"), "zero"), 3) == parse_amount("0.30")


def test_an_unknown_band_is_named():
    with pytest.raises(UnknownBand, match="luxury"):
        _ = Price(parse_amount("1.00"), "luxury").tax


def test_amounts_are_read_as_people_type_them():
    assert format_amount(parse_amount(" £1,250.5 ")) == "£1250.50"
"""

TEST_CART = """\
from shop.cart import Article, Cart
from shop.prices import Price, parse_amount

MUG = Article("mug-01", "Stoneware mug", Price(parse_amount("7.35")))
BOOK = Article("book-07", "Field guide to mosses", Price(parse_amount("12.90"), "zero"))
TEA = Article("tea-11", "Smoked tea, 100 g", Price(parse_amount("4.70"), "reduced"))


def cart_of(*articles):
    cart = Cart()
    for article in articles:
        cart.add(article)
    return cart


def test_more_of_the_same_goes_onto_one_line():
    cart = cart_of(MUG, MUG, TEA)
    assert [line.quantity for line in cart] == [2, 1]
    assert len(cart) == 3


def test_total_adds_up_what_the_receipt_shows():
    cart = cart_of(MUG, MUG, MUG, BOOK, TEA)
    assert cart.total == parse_amount("44.30")


def test_removing_takes_the_whole_line():
    cart = cart_of(MUG, MUG, BOOK)
    cart.remove("mug-01")
    assert [line.article for line in cart] == [BOOK]


def test_receipt_ends_with_the_total():
    assert cart_of(BOOK).receipt().splitlines()[-1].endswith("£12.90")
"""

TEST_CATALOGUE = """\
import csv
from pathlib import Path

import pytest

from shop.prices import Price, parse_amount

with (Path(__file__).parent / "catalogue.csv").open() as file:
    ROWS = [tuple(row.values()) for row in csv.DictReader(file)]


@pytest.mark.parametrize(("sku", "net", "band", "gross"), ROWS, ids=[row[0] for row in ROWS])
def test_gross_price(sku, net, band, gross):
    assert Price(parse_amount(net), band).gross == parse_amount(gross)
"""
