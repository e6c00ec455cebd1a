"""The short Claude Code session: an interrupted export of orders.

Its last call has no result, as in a session whose terminal was closed while a command ran. A reader must repair that
before the history can go to a model again.
"""

from make_samples.claude_code import (
    Outcome,
    Transcript,
    call,
    read_outcome,
    shell_outcome,
    thought,
    words,
    write_outcome,
)
from make_samples.seeds import random_uuid, start
from make_samples.story import ROOT

SESSION = random_uuid("the export session")
PROMPT = """\
The bookkeeper needs last month's orders as a CSV file: order number, date, sku, quantity, gross per piece, \
line total. Write an export for it; orders are JSON files under data/orders, one per order. 1,900 files, so \
don't load them all at once."""
ORDER = """\
{
  "number": 20417,
  "placed": "2026-02-11T18:22:40Z",
  "lines": [
    {"sku": "tea-071", "quantity": 2, "gross": "12.71"},
    {"sku": "mug-007", "quantity": 1, "gross": "8.82"}
  ],
  "discount": "SPRING"
}
"""
EXPORT = '''\
"""The export of orders for the bookkeeper: one row per line of an order.

Orders are read one at a time, so the size of the archive does not matter.
"""

import csv
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

COLUMNS = ("order", "date", "sku", "quantity", "gross", "total")


def rows(path: Path) -> Iterator[tuple[str, ...]]:
    """The rows of one order."""
    order = json.loads(path.read_text())
    for line in order["lines"]:
        gross = Decimal(line["gross"])
        total = gross * line["quantity"]
        head = (str(order["number"]), order["placed"][:10], line["sku"])
        yield (*head, str(line["quantity"]), str(gross), str(total))


def export(folder: Path, month: str) -> None:
    """Write the orders of a month, such as `2026-02`, to the standard output."""
    writer = csv.writer(sys.stdout)
    writer.writerow(COLUMNS)
    for path in sorted(folder.glob("*.json")):
        writer.writerows(row for row in rows(path) if row[1].startswith(month))


if __name__ == "__main__":
    export(Path(sys.argv[1]), sys.argv[2])
'''
MISSING = f"File does not exist. The current working directory is {ROOT}."


def export_session() -> Transcript:
    """Write the session up to its interruption."""
    main = Transcript(SESSION, start(2026, 3, 13, 16, 40, 11), "main", slug="brisk-sorting-heron")
    main.prompt(PROMPT, seconds=1, permissionMode="default")
    first, second = main.say(
        words("Let me look at one order and at how many there are."),
        call("Read", file_path=f"{ROOT}/data/orders/20001.json"),
        call("Bash", command="ls data/orders | head -3; ls data/orders | wc -l", description="Count the orders"),
    )
    main.answer(first, Outcome(f"<tool_use_error>{MISSING}</tool_use_error>", f"Error: {MISSING}", error=True))
    main.answer(second, shell_outcome("20417.json\n20418.json\n20421.json\n1904"))
    main.do(
        words("The numbers start at 20417."),
        call("Read", file_path=f"{ROOT}/data/orders/20417.json"),
        gives=read_outcome("data/orders/20417.json", ORDER),
    )
    main.do(
        thought(
            "Amounts are strings, good: Decimal takes them as they are. `gross` is per piece. A discount is "
            "only named by its code; the bookkeeper asked for line totals, so it stays out."
        ),
        words("I'll write it as a generator per order, so only one file is in memory at a time."),
        call("Write", file_path=f"{ROOT}/src/shop/export.py", content=EXPORT),
        gives=write_outcome("src/shop/export.py", EXPORT),
    )
    main.say(
        words("Now a run over the whole archive, to see that no order is shaped differently."),
        call(
            "Bash",
            command="python -m shop.export data/orders 2026-02 > february.csv && wc -l february.csv",
            description="Export February",
            timeout=120_000,
        ),
    )
    return main
