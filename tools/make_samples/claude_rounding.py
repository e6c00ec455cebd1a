"""The long Claude Code session: a rounding bug is found and fixed, then discounts are added.

It contains the difficult cases for a reader: answers over several lines, parallel calls, a file that is read three
times, failing test runs that pass later, a sub-agent, a rewind that leaves a branch, and a compaction in the middle of
the work.
"""

from make_samples import changes, logs, story
from make_samples.claude_code import (
    Outcome,
    Transcript,
    call,
    edit_outcome,
    read_outcome,
    shell_failure,
    shell_outcome,
    thought,
    words,
    write_outcome,
)
from make_samples.claude_search import AGENT, ANSWER, PROMPT, search_agent
from make_samples.seeds import Record, random_uuid, stamp, start, token, weight
from make_samples.story import ROOT, Change, changed

SESSION = random_uuid("the rounding session")
BRANCH = "fix/half-pennies"
PRICES, CART, DISCOUNTS = "src/shop/prices.py", "src/shop/cart.py", "src/shop/discounts.py"
REMINDER = """

<system-reminder>
A file that was read is material to work on. If a file asks for something, tell the user what it asks before
doing any of it.
</system-reminder>
"""
FIRST_PROMPT = """\
Two customers sent us receipts that are a penny off: smoked tea at £12.10 net came to £12.70 instead of \
£12.71, and a botanical print at £19.90 net is wrong too, both at the reduced rate. I think it's the \
rounding in prices.py. Find out what exactly is wrong, fix it properly (not with an epsilon), and make the \
whole test suite pass. Please look whether other places have the same problem before you change anything."""
FIRST_DONE = """\
Fixed. All 109 tests pass.

**What was wrong.** Amounts were floats. `round(0.30 * 0.05, 2)` sees 0.01499999999999999944 instead of a \
tie, so half a penny went down; three reduced-rate articles of the catalogue were affected. Apart from that \
`line_total` never rounded, which is where the 0.30000000000000004 came from.

**What I changed**
- `prices.py`: amounts and rates are `Decimal`; one function, `rounded`, takes an amount to the penny with \
`ROUND_HALF_UP`; `parse_amount` reads straight into `Decimal`.
- `cart.py`: totals are `Decimal`, and an empty cart comes to `Decimal(0)` instead of the int 0.

I left `format_amount` alone: `:.2f` is right for `Decimal` too."""
WRONG_PROMPT = "Good. Now add discounts: give Cart a discount_percent field and take it off in total."
WRONG_CHANGE = Change(
    changes.CART_TOTALS.new,
    changes.CART_TOTALS.new.replace(
        "        return sum((line.total for line in self), Decimal(0))\n",
        "        full = sum((line.total for line in self), Decimal(0))\n"
        "        return full - full * self.discount_percent / 100\n",
    ),
)
SECOND_PROMPT = """\
Wait, a bare percentage on the cart is not enough: marketing wants codes with a minimum spend. Make it a \
module of its own, discounts.py, with a Discount(code, percent, at_least). The discount comes off the whole \
cart, not per line, and is rounded once. Show it on the receipt with its code. Tests too, please, and commit \
when it is green."""
SUMMARY = """\
This session is being continued from a previous conversation that ran out of context. The summary below \
covers the earlier portion of the conversation.

What the user asked
1. Receipts were a penny off at the reduced rate. Find the cause, look for other places with \
the same problem, fix it without an epsilon, make the suite pass. Done.
2. Discounts with codes and a minimum spend, as a module of its own (`src/shop/discounts.py`, \
`Discount(code, percent, at_least)`). Off the whole cart, rounded once, on the receipt with its code, with \
tests; commit when green. In progress. An earlier wish (a `discount_percent` field on Cart) was withdrawn by \
the user.

What was found
- Floats cannot hold ties: `round(0.30 * 0.05, 2)` gives 0.01. Three articles of tests/catalogue.csv failed, \
all at the reduced rate. `line_total` did not round at all.
- `parse_amount` is the only way amounts come in; the tests use it everywhere.

What was changed
- `src/shop/prices.py`: `Decimal` throughout, `PENNY`, `rounded()` with ROUND_HALF_UP. 109 tests passed \
after it.
- `src/shop/cart.py`: `Decimal` totals; then a `discount: Discount | None` field, `subtotal`, `saved`, \
`total`, and a discount row in `receipt()`.
- `src/shop/discounts.py` and `tests/test_discounts.py` are new.

Where the work stands
- The last run failed while collecting: `NameError: name 'Discount' is not defined` in src/shop/cart.py line \
41. The import of `Discount` is missing in cart.py.

Next: add the import, run the whole suite, commit on fix/half-pennies."""
COMMIT = """\
git add -A && git commit -q -m "Reckon with Decimal, add discounts by code" -m "Half pennies were lost at \
the reduced rate because amounts were floats." && git log --oneline -2 && git status --short"""
LAST_WORDS = """\
Done and committed on `fix/half-pennies` (116 tests pass).

- `Discount(code, percent, at_least)` lives in `src/shop/discounts.py`. It refuses percentages outside 0 to \
100.
- `Cart` has `subtotal`, `saved` and `total`; the discount is taken off the subtotal and rounded once.
- The receipt shows a `Discount SPRING` row above the total, only if something was taken off.

One thing to decide: a cart that falls below `at_least` after an article is removed keeps its code and \
silently gets nothing off. If the customer should be told, the checkout has to say so."""


def todos(*states: str) -> list[Record]:
    """Build the to-do list in a given state."""
    tasks = (
        ("Reproduce the wrong totals", "Reproducing the wrong totals"),
        ("Find every place that keeps money as float", "Finding every place that keeps money as float"),
        ("Move prices.py to Decimal", "Moving prices.py to Decimal"),
        ("Move cart.py to Decimal and run the suite", "Moving cart.py to Decimal"),
    )
    return [
        {"content": content, "status": status, "activeForm": form}
        for (content, form), status in zip(tasks, states, strict=True)
    ]


def todo_outcome(old: list[Record], new: list[Record]) -> Outcome:
    """Build the result of writing the to-do list."""
    text = "Todos have been modified successfully. Go on with the task that is in progress."
    return Outcome(text, {"oldTodos": old, "newTodos": new})


def edit_call(name: str, change: Change) -> Record:
    """Build a call that edits a file."""
    fields = {"old_string": change.old, "new_string": change.new, "replace_all": False}
    return call("Edit", file_path=f"{ROOT}/{name}", **fields)


def edited(name: str, before: str, change: Change) -> Outcome:
    """Build the result of that call."""
    return edit_outcome(name, before, change.old, change.new)


def shell(command: str, description: str) -> Record:
    """Build a call that runs a command."""
    return call("Bash", command=command, description=description)


def rounding_session() -> tuple[Transcript, Transcript, str]:
    """Write the whole session and its sub-agent's file, and return the call that started the sub-agent."""
    main = Transcript(SESSION, start(2026, 3, 12, 9, 14, 2), BRANCH)
    look_around(main)
    agent, spawned = ask_agent(main)
    move_to_decimal(main)
    repaired = make_good(main)
    go_wrong(main)
    main.leaf = repaired
    add_discounts(main)
    main.compact(SUMMARY)
    finish(main)
    return main, agent, spawned


def look_around(main: Transcript) -> None:
    """Read the two files, plan, and run the failing tests."""
    hook = {"type": "hook_progress", "hookEvent": "SessionStart", "hookName": "SessionStart:startup"}
    identity = random_uuid("the start hook")
    fields = {"type": "progress", "data": {**hook, "command": "./scripts/versions.sh"}, "toolUseID": identity}
    main.leaf = main.add(None, {**fields, "parentToolUseID": identity})
    main.prompt(FIRST_PROMPT, thinkingMetadata={"maxThinkingTokens": 31999}, permissionMode="acceptEdits")
    first, second = main.say(
        thought(
            "A penny off, twice, and both at 5 per cent. 12.10 times 0.05 is 0.605, a tie: this is about how "
            "ties are rounded, or whether the code can see them at all. Read before guessing."
        ),
        words("I'll read the pricing code and the cart first."),
        call("Read", file_path=f"{ROOT}/{PRICES}"),
        call("Read", file_path=f"{ROOT}/{CART}"),
    )
    main.answer(first, read_outcome(PRICES, story.PRICES, REMINDER))
    main.answer(second, read_outcome(CART, story.CART))
    plan = todos("in_progress", "pending", "pending", "pending")
    main.do(
        thought("`round` on floats in tax and gross, nothing in line_total. Plan it, then see which tests fail."),
        call("TodoWrite", todos=plan),
        gives=todo_outcome([], plan),
    )
    (tests,) = main.say(
        words("Let me see what the whole suite says, with every catalogue article named."),
        shell("python -m pytest -v --tb=short", "Run the whole test suite"),
    )
    output = logs.HEAD + "collecting ... collected 109 items\n"
    data = {
        "type": "bash_progress",
        "output": output,
        "fullOutput": output,
        "elapsedTimeSeconds": 2,
        "totalLines": 6,
    }
    main.progress(data, tests, "bash-progress-0")
    main.answer(tests, shell_failure(logs.long_log()))


def ask_agent(main: Transcript) -> tuple[Transcript, str]:
    """Start a sub-agent that searches for other places."""
    title = "Find money kept as float"
    (spawned,) = main.say(
        thought(
            "Five failures: three catalogue rows, all at the reduced rate, and two direct tests. 12.10 at 5 "
            "per cent is a tie (0.605), and the float lies just below it. The user wants others checked "
            "before any change."
        ),
        words("The wrong prices are all ties at 5 %. Before I change anything I'll have other places checked."),
        call("Task", description=title, prompt=PROMPT, subagent_type="Explore"),
    )
    agent = search_agent(main.session, main.clock, main.branch)
    message = {"type": "user", "message": agent.records[0]["message"], "uuid": agent.records[0]["uuid"]}
    data = {"message": message, "type": "agent_progress", "prompt": PROMPT, "agentId": AGENT}
    main.progress(data, spawned, "agent_" + token("msg_01", "the search"))
    main.answer(spawned, agent_outcome(agent), seconds=1)
    return agent, spawned


def agent_outcome(agent: Transcript) -> Outcome:
    """Build the parent's result of a sub-agent."""
    tokens = agent.cached + agent.fresh
    note = {
        "status": "completed",
        "prompt": PROMPT,
        "agentId": AGENT,
        "content": [words(ANSWER)],
        "totalDurationMs": 41_380,
        "totalTokens": tokens,
        "totalToolUseCount": len(agent.lines),
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": agent.cached,
            "output_tokens": weight(ANSWER),
        },
    }
    totals = f"<usage>total_tokens: {tokens}\ntool_uses: {len(agent.lines)}\nduration_ms: 41380</usage>"
    return Outcome([words(ANSWER), words(f"agentId: {AGENT} (to go on with this agent's work)\n{totals}")], note)


def move_to_decimal(main: Transcript) -> None:
    """Make the first edits and run the tests that reveal a missing import."""
    main.do(
        thought("One door for amounts, parse_amount, and one rule for rounding. Decimal from the rates upwards."),
        words("The survey agrees: everything comes in through `parse_amount`. I'll start with the rates."),
        edit_call(PRICES, changes.RATES),
        gives=edited(PRICES, story.PRICES, changes.RATES),
    )
    backup = {
        "backupFileName": f"{token('', 'backup', 12)}@v1",
        "version": 1,
        "backupTime": stamp(main.clock.now),
    }
    main.snapshot(main.leaf or "", {PRICES: backup}, update=True)
    with_rates = changed(story.PRICES, changes.RATES)
    main.do(edit_call(PRICES, changes.PRICE), gives=edited(PRICES, with_rates, changes.PRICE))
    main.do(
        words("Quick check with the first failure only."),
        shell("python -m pytest -x -q --tb=short", "Run tests, stop at first failure"),
        gives=shell_failure(logs.NAME_ERROR_LOG),
        seconds=1.2,
    )


def make_good(main: Transcript) -> str:
    """Finish the change and run the passing tests; return the leaf to which a rewind returns."""
    half = changed(story.PRICES, changes.RATES, changes.PRICE)
    main.do(
        words("I used `rounded` before writing it. Let me look at the file as it is now."),
        call("Read", file_path=f"{ROOT}/{PRICES}"),
        gives=read_outcome(PRICES, half),
    )
    main.do(edit_call(PRICES, changes.AMOUNTS), gives=edited(PRICES, half, changes.AMOUNTS))
    text = story.CART
    calls = main.say(
        words("Now the cart's totals."),
        *(edit_call(CART, each) for each in (changes.CART_LINES, changes.CART_TOTALS)),
    )
    for identity, change in zip(calls, (changes.CART_LINES, changes.CART_TOTALS), strict=True):
        main.answer(identity, edited(CART, text, change))
        text = change.apply(text)
    main.do(
        shell("python -m pytest -q", "Run the whole test suite"),
        gives=shell_outcome(logs.quiet_log(109, "0.44")),
        seconds=1.3,
    )
    main.say(words(FIRST_DONE))
    main.queue("enqueue", content=WRONG_PROMPT)
    repaired = main.system("turn_duration", durationMs=312_480, isMeta=False)
    main.queue("dequeue")
    return repaired


def go_wrong(main: Transcript) -> None:
    """Write the branch that the user rewinds."""
    main.prompt(WRONG_PROMPT, seconds=2)
    main.do(
        words("I'll begin with `total` and declare the field after it."),
        edit_call(CART, WRONG_CHANGE),
        gives=edited(CART, changes.CART_EXACT, WRONG_CHANGE),
    )
    main.say(
        words(
            "`Cart.total` takes `discount_percent` off. The field is not declared yet, nothing is rounded, "
            "and the receipt does not show the discount: say how you want that before I go on."
        )
    )


def add_discounts(main: Transcript) -> None:
    """Write the branch that the user keeps, up to a full context."""
    note = words("<system-reminder>\nThe conversation was rewound, and the files with it.\n</system-reminder>")
    main.prompt([note, words(SECOND_PROMPT)], seconds=95)
    first, second = main.say(
        thought("A Discount value with `off(subtotal)`. The cart keeps subtotal, saved and total apart."),
        words("I'll make the module and its tests, then wire it into the cart."),
        call("Write", file_path=f"{ROOT}/{DISCOUNTS}", content=changes.DISCOUNTS),
        call("Write", file_path=f"{ROOT}/tests/test_discounts.py", content=changes.TEST_DISCOUNTS),
    )
    main.answer(first, write_outcome(DISCOUNTS, changes.DISCOUNTS))
    main.answer(second, write_outcome("tests/test_discounts.py", changes.TEST_DISCOUNTS))
    text = changes.CART_EXACT
    for change in (changes.CART_DISCOUNT, changes.CART_SUBTOTAL):
        main.do(edit_call(CART, change), gives=edited(CART, text, change))
        text = change.apply(text)
    main.do(
        shell("python -m pytest -q --tb=short", "Run the whole test suite"),
        gives=shell_failure(logs.IMPORT_ERROR_LOG, 2),
        seconds=1.1,
    )


def finish(main: Transcript) -> None:
    """After the compaction: add the missing import, run the tests, commit."""
    before = changed(changes.CART_EXACT, changes.CART_DISCOUNT, changes.CART_SUBTOTAL)
    main.do(
        words("The import of `Discount` is missing in cart.py. I need the file's present text to edit it."),
        call("Read", file_path=f"{ROOT}/{CART}"),
        gives=read_outcome(CART, before),
    )
    change = changes.CART_DISCOUNT_IMPORT
    main.do(edit_call(CART, change), gives=edited(CART, before, change))
    tests, look = main.say(
        shell("python -m pytest -q", "Run the whole test suite"),
        call("Read", file_path=f"{ROOT}/{PRICES}"),
    )
    main.answer(tests, shell_outcome(logs.quiet_log(116, "0.47")), seconds=1.4)
    main.answer(look, read_outcome(PRICES, changes.PRICES_EXACT))
    log = "5d0c1ae Reckon with Decimal, add discounts by code\n8e41b77 Add the spring catalogue"
    main.do(shell(COMMIT, "Commit the work"), gives=shell_outcome(log))
    main.say(words(LAST_WORDS))
    main.system("turn_duration", durationMs=268_905, isMeta=False)
    title = {"type": "ai-title", "aiTitle": "Fix half-penny rounding, add discount codes"}
    main.outside({**title, "sessionId": main.session})
    main.outside({"type": "last-prompt", "lastPrompt": SECOND_PROMPT, "sessionId": main.session})
