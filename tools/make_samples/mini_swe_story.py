"""Texts of the mini-swe-agent run: a cart must reject a quantity below one."""

from dataclasses import dataclass

from make_samples import changes, logs, story
from make_samples.seeds import unified
from make_samples.story import Change


@dataclass(frozen=True)
class Action:
    """A command and its output; without a return code it has no output."""

    command: str
    output: str = ""
    code: int | None = 0


@dataclass(frozen=True)
class Step:
    """One answer of the model."""

    thinking: str
    actions: tuple[Action, ...]
    text: str = ""


SYSTEM = "You solve programming tasks in a computer's shell."
TEMPLATE = """\
<pr_description>
{{task}}
</pr_description>

<instructions>
Work in /testbed. Every answer calls the bash tool at least once; each command runs in a shell of its own, \
so changes
of directory do not last. Change source files only, no tests and no settings. Reproduce the problem first, \
mend it,
then see that the tests still pass.

When you are done, in separate commands: write the patch with `git diff -- FILES > patch.txt`, read it, and \
submit it
with `echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt`.
</instructions>"""
ISSUE = """\
Cart.add takes zero and negative quantities

A customer found that adding -2 of an article makes the cart cheaper. Zero is accepted as well and leaves a \
line "0 x"
on the receipt. `Cart.add` should raise a ValueError for anything below one, with a message that names the \
sku and the
quantity, and leave the cart as it was. Taking articles away is what `Cart.remove` is for."""
TASK = TEMPLATE.replace("{{task}}", ISSUE)
CHECK = Change(
    """\
        line = self.lines.get(article.sku)
        if line is None:""",
    """\
        if quantity < 1:
            raise ValueError(f"cannot add {quantity} of {article.sku}: a cart holds at least one")
        line = self.lines.get(article.sku)
        if line is None:""",
)
PATCH = unified("src/shop/cart.py", changes.CART_DISCOUNTED, CHECK.apply(changes.CART_DISCOUNTED))
REPRODUCE = """\
cd /testbed && PYTHONPATH=src python - <<'END'
from shop.cart import Article, Cart
from shop.prices import Price, parse_amount
mug = Article("mug-01", "Stoneware mug", Price(parse_amount("7.35")))
cart = Cart()
cart.add(mug, 3)
cart.add(mug, -2)
print(cart.receipt())
cart.add(Article("tea-11", "Smoked tea", Price(parse_amount("4.70"), "reduced")), 0)
print(cart.receipt())
END"""
WRONG_RECEIPT = """\
  1 x Stoneware mug                     £8.82
Total                                   £8.82
  1 x Stoneware mug                     £8.82
  0 x Smoked tea                        £0.00
Total                                   £8.82
"""
EDIT = """\
cd /testbed && python - <<'END'
from pathlib import Path
path = Path("src/shop/cart.py")
text = path.read_text()
old = "        line = self.lines.get(article.sku)\\n"
new = '''        if quantity < 1:
            raise ValueError(f"cannot add {quantity} of {article.sku}: a cart holds at least one")
''' + old
assert text.count(old) == 1, text.count(old)
path.write_text(text.replace(old, new))
END"""
REFUSED = """\
Traceback (most recent call last):
  File "<stdin>", line 6, in <module>
  File "/testbed/src/shop/cart.py", line 47, in add
    raise ValueError(f"cannot add {quantity} of {article.sku}: a cart holds at least one")
ValueError: cannot add -2 of mug-01: a cart holds at least one
"""
USES = """\
./src/shop/cart.py:44:    def add(self, article: Article, quantity: int = 1) -> None:
./tests/test_cart.py:12:        cart.add(article)
./tests/test_discounts.py:13:    cart.add(LAMP)
./tests/test_discounts.py:23:    cart.add(LAMP)
"""
LISTING = """\
.:
patch.txt  pyproject.toml  src  tests

./src/shop:
__init__.py  cart.py  discounts.py  prices.py

./tests:
catalogue.csv  test_cart.py  test_catalogue.py  test_discounts.py  test_prices.py
"""
AS_MENDED = "\n".join(CHECK.apply(changes.CART_DISCOUNTED).splitlines()[37:58]) + "\n"
STEPS = (
    Step(
        "Look at the project and at the method the issue names.",
        (Action("cd /testbed && ls . src/shop tests", LISTING.replace("patch.txt  ", "")),),
        "I'll look at the layout first.",
    ),
    Step(
        "The method is in cart.py. At the same time see who calls add, so that no caller relies on zero.",
        (
            Action("cd /testbed && cat src/shop/cart.py", changes.CART_DISCOUNTED),
            Action(r"cd /testbed && grep -rnE '\.add\(|def add' --include=*.py .", USES),
        ),
    ),
    Step(
        "add checks nothing: zero of a new article becomes a line, -2 of an old one is taken off. Try both.",
        (Action(REPRODUCE, WRONG_RECEIPT),),
        "Both halves of the report, before I change anything:",
    ),
    Step(
        "See what the tests of the cart expect, and whether the whole suite is green to begin with.",
        (
            Action("cd /testbed && cat tests/test_cart.py", story.TEST_CART),
            Action("cd /testbed && python -m pytest -q", logs.quiet_log(116, "0.51") + "\n"),
        ),
    ),
    Step(
        "The check belongs before the line is looked up, so that a refused call leaves the cart as it was.",
        (Action(EDIT),),
        "The check goes first in `add`.",
    ),
    Step(
        "Run the reproduction again; it should now stop at the negative quantity with the new message.",
        (Action(REPRODUCE, REFUSED, 1),),
        "The same script must be refused now:",
    ),
    Step(
        "Refused at -2, before anything was changed. Zero goes the same way. Read it again, run the tests.",
        (
            Action("cd /testbed && sed -n '38,58p' src/shop/cart.py", AS_MENDED),
            Action("cd /testbed && python -m pytest -q", logs.quiet_log(116, "0.50") + "\n"),
        ),
    ),
    Step(
        "All green. Write the patch with the one source file.",
        (Action("cd /testbed && git diff -- src/shop/cart.py > patch.txt"),),
    ),
    Step(
        "Read the patch before submitting it.",
        (Action("cd /testbed && cat patch.txt", PATCH),),
    ),
    Step(
        "The patch holds the two lines and nothing else. Submit.",
        (Action("cd /testbed && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt", code=None),),
        "The patch is what I meant. Submitting it.",
    ),
)
