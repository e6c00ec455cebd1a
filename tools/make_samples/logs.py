"""Output of the shop's commands: the catalogue of the tests, and pytest's report on it.

The long log is computed: each line's result comes from pricing the article as the code of that day does, once with
binary fractions (which sometimes lose half a penny) and once exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

KINDS = ("mug", "tea", "book", "lamp", "scarf", "candle", "print")
PERCENT = {"tea": 5, "print": 5, "book": 0}
BANDS = {0: "zero", 5: "reduced", 20: "standard"}
HEAD = """\
============================= test session starts ==============================
platform linux -- Python 3.12.3, pytest-8.3.4, pluggy-1.5.0 -- /home/sam/shop/.venv/bin/python
cachedir: .pytest_cache
rootdir: /home/sam/shop
configfile: pyproject.toml
"""


@dataclass(frozen=True)
class Entry:
    """An article of the catalogue, in pennies."""

    sku: str
    net: int
    percent: int

    @property
    def gross(self) -> int:
        """Exact price including tax, with half a penny rounded up."""
        return self.net + (self.net * self.percent * 2 + 100) // 200

    @property
    def binary_gross(self) -> float:
        """Price computed with binary fractions."""
        tax = round(self.net / 100 * (self.percent / 100), 2)
        return round(self.net / 100 + tax, 2)

    @property
    def passes(self) -> bool:
        """Return True if binary fractions give the exact price."""
        return self.binary_gross == self.gross / 100


def catalogue(size: int = 100) -> Iterator[Entry]:
    """Return the articles of the shop's tests."""
    for number in range(1, size + 1):
        kind = KINDS[number % len(KINDS)]
        percent = PERCENT.get(kind, 20)
        net = 235 + (number * number * 37 + number * 91) % 4800
        yield Entry(f"{kind}-{number:03d}", net // 10 * 10 if percent == 5 else net, percent)


def pounds(pennies: int) -> str:
    """Format pennies as an amount."""
    return f"{pennies // 100}.{pennies % 100:02d}"


def catalogue_table(entries: list[Entry]) -> str:
    """Return the catalogue as the file that the tests read."""
    rows = (f"{each.sku},{pounds(each.net)},{BANDS[each.percent]},{pounds(each.gross)}" for each in entries)
    return "\n".join(("sku,net,band,gross", *rows)) + "\n"


CART_TESTS = (
    "test_more_of_the_same_goes_onto_one_line",
    "test_total_adds_up_what_the_receipt_shows",
    "test_removing_takes_the_whole_line",
    "test_receipt_ends_with_the_total",
)
PRICE_TESTS = (
    "test_tax_of_the_standard_band",
    "test_half_a_penny_is_rounded_up",
    "test_line_total_is_exact",
    "test_an_unknown_band_is_named",
    "test_amounts_are_read_as_people_type_them",
)
PRICE_FAILURES = """\
_______________________ test_half_a_penny_is_rounded_up ________________________
tests/test_prices.py:11: in test_half_a_penny_is_rounded_up
    assert Price(parse_amount("0.30"), "reduced").tax == parse_amount("0.02")
E   AssertionError: assert 0.01 == 0.02
E    +  where 0.01 = Price(net=0.3, band='reduced').tax
E    +    where Price(net=0.3, band='reduced') = Price(0.3, 'reduced')
E    +      where 0.3 = parse_amount('0.30')
E    +  and   0.02 = parse_amount('0.02')
___________________________ test_line_total_is_exact ___________________________
tests/test_prices.py:15: in test_line_total_is_exact
    assert line_total(Price(parse_amount("0.10"), "zero"), 3) == parse_amount("0.30")
E   AssertionError: assert 0.30000000000000004 == 0.3
E    +  where 0.30000000000000004 = line_total(Price(net=0.1, band='zero'), 3)
E    +    where Price(net=0.1, band='zero') = Price(0.1, 'zero')
E    +      where 0.1 = parse_amount('0.10')
E    +  and   0.3 = parse_amount('0.30')
"""


def verdicts(entries: list[Entry]) -> list[tuple[str, bool]]:
    """Return every test of the shop before the fix, in pytest's order, with its result."""
    failing = PRICE_TESTS[1:3]
    return [
        *((f"tests/test_cart.py::{name}", True) for name in CART_TESTS),
        *((f"tests/test_catalogue.py::test_gross_price[{each.sku}]", each.passes) for each in entries),
        *((f"tests/test_prices.py::{name}", name not in failing) for name in PRICE_TESTS),
    ]


def catalogue_failure(entry: Entry) -> str:
    """Return pytest's report on one wrong price."""
    net, seen, wanted = entry.net / 100, entry.binary_gross, entry.gross / 100
    band = BANDS[entry.percent]
    return f"""\
{f" test_gross_price[{entry.sku}] ":_^80}
tests/test_catalogue.py:14: in test_gross_price
    assert Price(parse_amount(net), band).gross == parse_amount(gross)
E   AssertionError: assert {seen} == {wanted}
E    +  where {seen} = Price(net={net}, band='{band}').gross
E    +    where Price(net={net}, band='{band}') = Price({net}, '{band}')
E    +      where {net} = parse_amount('{pounds(entry.net)}')
E    +  and   {wanted} = parse_amount('{pounds(entry.gross)}')
"""


def long_log() -> str:
    """Return the whole verbose test run before the fix: long, with no two equal lines."""
    entries = list(catalogue())
    tests = verdicts(entries)
    lines = [
        f"{name + (' PASSED' if passed else ' FAILED'):<73}[{(number * 100) // len(tests):3d}%]"
        for number, (name, passed) in enumerate(tests, 1)
    ]
    failed = [name for name, passed in tests if not passed]
    blocks = [catalogue_failure(each) for each in entries if not each.passes]
    return "".join(
        (
            HEAD,
            f"collecting ... collected {len(tests)} items\n\n",
            "\n".join(lines),
            "\n\n=================================== FAILURES ===================================\n",
            *blocks,
            PRICE_FAILURES,
            "=========================== short test summary info ============================\n",
            *(f"FAILED {name} - AssertionError\n" for name in failed),
            f"{f' {len(failed)} failed, {len(tests) - len(failed)} passed in 0.61s ':=^80}",
        )
    )


def quiet_log(count: int, seconds: str) -> str:
    """Return a quiet run in which all tests pass."""
    rows = [min(72, count - start) for start in range(0, count, 72)]
    done = 0
    lines = []
    for row in rows:
        done += row
        lines.append(f"{'.' * row:<73}[{done * 100 // count:3d}%]")
    return "\n".join((*lines, f"{count} passed in {seconds}s"))


NAME_ERROR_LOG = """\
.F
=================================== FAILURES ===================================
__________________ test_total_adds_up_what_the_receipt_shows ___________________
tests/test_cart.py:24: in test_total_adds_up_what_the_receipt_shows
    assert cart.total == parse_amount("44.30")
           ^^^^^^^^^^
src/shop/cart.py:62: in total
    return sum(line.total for line in self)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
src/shop/cart.py:32: in total
    return line_total(self.article.price, self.quantity)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
src/shop/prices.py:54: in line_total
    return price.gross * quantity
           ^^^^^^^^^^^
src/shop/prices.py:49: in gross
    return self.net + self.tax
                      ^^^^^^^^
src/shop/prices.py:44: in tax
    return rounded(self.net * tax_rate(self.band))
           ^^^^^^^
E   NameError: name 'rounded' is not defined
=========================== short test summary info ============================
FAILED tests/test_cart.py::test_total_adds_up_what_the_receipt_shows - NameEr...
!!!!!!!!!!!!!!!!!!!!!!!!!! stopping after 1 failures !!!!!!!!!!!!!!!!!!!!!!!!!!!
1 failed, 1 passed in 0.09s"""

IMPORT_ERROR_LOG = """\

==================================== ERRORS ====================================
_____________________ ERROR collecting tests/test_cart.py ______________________
tests/test_cart.py:1: in <module>
    from shop.cart import Article, Cart
src/shop/cart.py:37: in <module>
    class Cart:
src/shop/cart.py:41: in Cart
    discount: Discount | None = None
              ^^^^^^^^
E   NameError: name 'Discount' is not defined
=========================== short test summary info ============================
ERROR tests/test_cart.py - NameError: name 'Discount' is not defined
ERROR tests/test_discounts.py - NameError: name 'Discount' is not defined
!!!!!!!!!!!!!!!!!!! Interrupted: 2 errors during collection !!!!!!!!!!!!!!!!!!!!
2 errors in 0.11s"""
