"""The definition is frozen: in this session it finds exactly the references that v1 finds.

A change of these results is a new definition: it needs a new `REFERENCE_DEFINITION` and new published results.
"""

from small_traces import agent, call, did, result, trace, user

from thresher.replay import REFERENCE_DEFINITION, find_references

ARROWS = "".join(f"{n:6}→{line}\n" for n, line in enumerate(("def total(cart):", "    return items_sum(cart) + 7"), 1))
COUNTED = "1: The shipping is added once for every order and never for every item\n2: see lib/prices.toml\n"
LOG = "9f3c2e1 Sum the items\n77ab0d4 Add shipping\nabcdefg no number\n12345 tests, 123 of them slow\n"
PATCH = (
    "*** Begin Patch\n*** Update File: lib/cart.py\n@@\n-    return items_sum(cart) + 7\n+    return 0\n*** End Patch"
)
SESSION = trace(
    user("Please mend the OrderBook in src/app/book.py, every_day_word every_day_word."),
    did("1", "Read", ARROWS, file_path="lib/cart.py"),
    did("2", "Read", COUNTED, file_path="docs/prices.md"),
    did("3", "Bash", LOG, command="git log"),
    *(did(f"x{n}", "Bash", f"every_day_word {n}", command=f"step {n}") for n in range(8)),
    did(
        "4",
        "Edit",
        "done",
        file_path="lib/cart.py",
        old_string="    return items_sum(cart) + 7",
        new_string="coined_here",
    ),
    did("5", "apply_patch", "done", input=PATCH),
    agent("The shipping is added once for every order and never for every item, as lib/prices.toml has it."),
    user("Go on."),
    agent(call("Bash", "6", command="git show 77ab0d4 12345 123 every_day_word coined_here OrderBook app/book.py")),
    result("shown", "6"),
    agent("done"),
)
V1 = """
11 E 10 return items_sum(cart) + 7
11 I 10 items_sum
12 E 0 return items_sum(cart) + 7
12 I 0 items_sum
13 G 11 The shipping is added once for every order and never
13 P 11 lib/prices.toml
14 I 11 77ab0d4
14 I 11 12345
14 I 14 OrderBook
14 P 14 app/book.py
"""


def test_definition_finds_the_same_references_as_before() -> None:
    found = [
        f"{one.call} {one.kind} {one.age} {one.text}" for references in find_references(SESSION) for one in references
    ]
    assert REFERENCE_DEFINITION == "v1"
    assert found == V1.strip().splitlines()
