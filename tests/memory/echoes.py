"""Sessions of a small web shop: original work, and recalled text that repeats its words.

A `Talk` is one Claude Code session, a `Rollout` one of Codex.

`TOPICS` are the sources: each was requested, implemented and summarized once. `ECHOES` are ways in which their words
reach sessions that did not do the work; these sessions do other work before and after, which a search must still
match. `HONEST` are messages that resemble recalled text or noise, but are neither.
"""

import html
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chats import line, name

SHOP = "/home/sam/shop"
EPISODIC = "mcp__plugin_episodic-memory_episodic-memory__search"
CLAUDE_MEM = "mcp__plugin_claude-mem_mcp-search__get_observations"


class Talk:
    """A Claude Code session under construction."""

    def __init__(self, number: int, *, project: str = SHOP, branch: str = "main", day: int = 1) -> None:
        self.id = name(number)
        self._facts = {"cwd": project, "gitBranch": branch, "version": "2.1.58"}
        self._day = day
        self.rows: list[tuple[str, Any, dict[str, Any]]] = []

    def user(self, content: Any, **more: Any) -> "Talk":
        """Add a user message."""
        self.rows.append(("user", content, more))
        return self

    def says(self, text: str) -> "Talk":
        """Add a model message."""
        self.rows.append(("assistant", [{"type": "text", "text": text}], {}))
        return self

    def thinks(self, text: str) -> "Talk":
        """Add a thinking message."""
        self.rows.append(("assistant", [{"type": "thinking", "thinking": text, "signature": "c2ln"}], {}))
        return self

    def does(self, tool: str, output: str, **arguments: Any) -> "Talk":
        """Add a tool call and its result."""
        call = f"toolu_{uuid.UUID(self.id).int}_{len(self.rows)}"
        self.rows.append(("assistant", [{"type": "tool_use", "id": call, "name": tool, "input": arguments}], {}))
        return self.user([{"type": "tool_result", "tool_use_id": call, "content": output}])

    def runs(self, command: str, output: str) -> "Talk":
        """Add a shell command and its output."""
        return self.does("Bash", output, command=command)

    def compacts(self, summary: str) -> "Talk":
        """Replace the history by a summary."""
        text = f"This session is being continued from a previous conversation that ran out of context. {summary}"
        boundary = {"type": "system", "subtype": "compact_boundary"}
        last = str(uuid.uuid5(uuid.UUID(self.id), str(len(self.rows) - 1)))
        self.rows.append(("user", "", {**boundary, "parentUuid": None, "logicalParentUuid": last}))
        return self.user(text, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def lines(self) -> Iterator[bytes]:
        """Return the records as lines."""
        for number, (role, content, more) in enumerate(self.rows):
            time = f"2026-02-{self._day:02}T{8 + number // 60:02}:{number % 60:02}:00.000Z"
            yield line(self.id, number, role, content, **{**self._facts, "timestamp": time, **more})

    def write(self, folder: Path) -> str:
        """Write the session as Claude Code does; return its id."""
        path = folder / f"{self.id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self.lines()))
        return self.id

    def write_copy(self, folder: Path, copy: "Talk") -> str:
        """Write a resumed session, which begins with the records of this one."""
        own = [json.loads(record) for record in copy.lines()]
        own[0]["parentUuid"] = json.loads(list(self.lines())[-1])["uuid"]
        theirs = [{**json.loads(record), "sessionId": copy.id} for record in self.lines()]
        text = "".join(json.dumps(record) + "\n" for record in (*theirs, *own))
        (folder / f"{copy.id}.jsonl").write_text(text, encoding="utf-8")
        return copy.id


class Rollout(NamedTuple):
    """A Codex session: prompts, answers, and commands with their output."""

    number: int
    rows: tuple[tuple[str, ...], ...]

    def write(self, folder: Path) -> str:
        """Write the session as Codex does; return its id."""
        id = name(self.number)
        told = {"id": id, "cwd": SHOP, "cli_version": "0.112.0", "git": {"branch": "main"}}
        items = [("session_meta", told)]
        items += [("response_item", item) for number, row in enumerate(self.rows) for item in _items(number, *row)]
        records = [
            {"timestamp": f"2026-02-20T09:{at:02}:00.000Z", "type": kind, "payload": payload}
            for at, (kind, payload) in enumerate(items)
        ]
        path = folder / f"rollout-2026-02-20T09-00-00-{id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return id


def _items(number: int, kind: str, text: str, output: str = "") -> Iterator[dict[str, Any]]:
    if kind == "runs":
        call = {"call_id": f"call_{number}"}
        yield {"type": "function_call", "name": "exec_command", "arguments": json.dumps({"cmd": text}), **call}
        yield {"type": "function_call_output", "output": output, **call}
    else:
        side = "input" if kind == "user" else "output"
        yield {"type": "message", "role": kind, "content": [{"type": f"{side}_text", "text": text}]}


class Topic(NamedTuple):
    """Work done in one session."""

    asked: str
    file: str
    change: str
    told: str
    """Final words of the agent, which echoes repeat."""
    questions: tuple[str, str]


TOPICS = (
    Topic(
        "Customers are logged out after an hour although they are active. Make the session last.",
        "src/shop/auth/refresh.py",
        "def rotate(token: RefreshToken) -> RefreshToken:\n    return store.replace(token, grace=timedelta(0, 30))",
        "The JWT refresh failed because two tabs rotated the refresh token at the same moment. The old token now stays "
        "valid for a grace period of 30 seconds, so the slower tab is not logged out.",
        ("how did we fix the jwt refresh?", "why were customers logged out with two tabs open"),
    ),
    Topic(
        "The nightly invoice export to the warehouse dies on Mondays.",
        "src/shop/export/invoices.py",
        "for page in invoices.pages(size=500, key='id'):\n    upload(page)",
        "Mondays carry the whole weekend, and the export held all invoices in memory. It streams keyset pages of 500 "
        "invoices now, and the worker stays below 200 MB.",
        ("what was wrong with the invoice export on mondays?", "export invoices keyset pages memory"),
    ),
    Topic(
        "Half pennies get lost when a voucher is applied to a basket.",
        "src/shop/vouchers.py",
        "share = (amount * line.net / total).quantize(PENNY, ROUND_HALF_EVEN)",
        "The voucher was spread over the basket lines with floats. It is spread with Decimal and the largest remainder "
        "goes to the dearest line, so the shares add up to the voucher again.",
        ("voucher half pennies rounding", "how do we spread a voucher over basket lines?"),
    ),
    Topic(
        "Search for 'Müller' finds nothing although we have three of them.",
        "src/shop/search/folding.py",
        "def folded(text: str) -> str:\n    return unidecode(normalize('NFKD', text)).casefold()",
        "Names were indexed with umlauts and queries without. Both sides are folded by the same function now, and a "
        "migration reindexed 84,000 customers.",
        ("why did the search not find umlauts?", "folding of customer names and reindex migration"),
    ),
    Topic(
        "Checkout is slow: 4 seconds until the payment page shows.",
        "src/shop/checkout/stock.py",
        "SELECT sku, SUM(quantity) FROM reservations WHERE sku = ANY(%s) GROUP BY sku",
        "Checkout asked the stock service once for each article. One grouped query over reservations replaced the N+1 "
        "calls, and the payment page shows after 300 ms.",
        ("what made checkout slow?", "N+1 stock reservations grouped query"),
    ),
    Topic(
        "The webhook of the payment provider is delivered twice and we ship twice.",
        "src/shop/payments/webhook.py",
        "INSERT INTO deliveries (event_id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING event_id",
        "The webhook handler is idempotent now: every event id is inserted into a deliveries table first, and a "
        "duplicate is answered with 200 without shipping again.",
        ("how do we handle duplicate payment webhooks?", "idempotent webhook deliveries table event id"),
    ),
    Topic(
        "Set up the staging database so that it does not hold real customers.",
        "ops/staging/anonymise.sql",
        "UPDATE customers SET email = 'user' || id || '@example.org', phone = NULL;",
        "Staging is restored from the production dump every Sunday and then anonymised: addresses are scrambled, phone "
        "numbers dropped, and mail goes to a sink.",
        ("how is staging anonymised?", "where do mails of the staging environment go"),
    ),
    Topic(
        "CI takes 25 minutes, mostly installing things.",
        ".github/workflows/test.yml",
        "- uses: actions/cache@v4\n  with: {path: ~/.cache/uv, key: lock}",
        "CI caches the wheel folder by the hash of the lock file and splits the browser tests over four shards. A run "
        "takes seven minutes.",
        ("how did we make ci faster?", "browser tests shards and wheel cache"),
    ),
    Topic(
        "Pictures of articles are blurred on phones.",
        "src/shop/media/thumbnails.py",
        "WIDTHS = (320, 640, 960, 1280)\nsrcset = ', '.join(f'{url(w)} {w}w' for w in WIDTHS)",
        "Thumbnails were made in one width of 320 pixels. Four widths are rendered on upload and the template offers "
        "them as a srcset, so dense screens pick a sharp one.",
        ("blurred article pictures on phones", "which thumbnail widths do we render for srcset?"),
    ),
    Topic(
        "Orders from Switzerland are refused with a tax error.",
        "src/shop/tax/zones.py",
        "EXPORT = frozenset({'CH', 'NO', 'GB'})",
        "Switzerland fell through to the union's tax zones. Export countries have a zone of their own with a rate of "
        "zero and the customs form is printed with the parcel.",
        ("why were swiss orders refused?", "tax zone for export countries, customs form"),
    ),
)


def source(number: int, topic: Topic) -> Talk:
    """Return the session in which the model worked on a topic."""
    path = f"{SHOP}/{topic.file}"
    talk = Talk(100 + number, day=1 + number).user(topic.asked)
    talk.says("I look at the code that does this first.").does("Read", "     1→# as it was", file_path=path)
    talk.does(
        "Edit", f"The file {path} has been updated.", file_path=path, old_string="# as it was", new_string=topic.change
    )
    talk.runs("python -m pytest -q", "48 passed in 2.31s").says(topic.told)
    return talk.user("Good. Commit it, please.").runs("git commit -qam 'Fix it'", "[main 5d0c1ae] Fix it")


def paraphrased(topic: Topic) -> str:
    """Paraphrase a recall: the same words in another order."""
    first, *rest = (part.strip(" .") for part in topic.told.split(". "))
    return f"From what I found: {'; '.join([*rest, first])}."


def hits_of(topics: Sequence[Topic]) -> list[str]:
    """Return topics as a memory tool quotes them."""
    return [f"{topic.asked} {topic.told}" for topic in topics]


def own_block(topics: Sequence[Topic]) -> str:
    """Return topics as our MCP server prints them."""
    quoted = "\n\n".join(
        f"~/shop | {name(100)[:8]} | 3 matches | 2026-02-01 08:06\n  [asst] {hit}" for hit in hits_of(topics)
    )
    quoted += f"\nFound matches in {len(topics)} sessions"
    return f'<thresher-recall sessions="{name(100)}">\n{quoted}\n</thresher-recall>'


def deja_block(topics: Sequence[Topic]) -> str:
    """Return topics in the tag of deja-vu."""
    quoted = "\n".join(f"  - Session: **shop** `2fc1d1ef`\n    - Assistant: {hit}" for hit in hits_of(topics))
    return f"<deja-recall>\nRecalled history from prior sessions; untrusted reference data.\n{quoted}\n</deja-recall>"


def episodic_text(topics: Sequence[Topic]) -> str:
    """Return exchanges with their positions, as episodic-memory prints them without a tag."""
    rows = [
        f'{at}. [shop, 2026-02-0{at}] - {91 - at}% match\n   "{hit}"\n   Lines 3-19 in /home/sam/.config/superpowers/'
        f"conversation-archive/shop/{name(at)}.jsonl (12KB, 24 lines)"
        for at, hit in enumerate(hits_of(topics), 1)
    ]
    return f"Found {len(rows)} relevant conversations:\n\n" + "\n\n".join(rows)


def observations(topics: Sequence[Topic]) -> str:
    """Return observations of claude-mem."""
    rows = [{"id": 900 + at, "type": "bugfix", "narrative": hit} for at, hit in enumerate(hits_of(topics))]
    return json.dumps(rows)


def mem_context(topics: Sequence[Topic]) -> str:
    """Return the text that claude-mem adds at the start of a session."""
    rows = "\n".join(f"{900 + at} 6:09a 🔴 {hit}" for at, hit in enumerate(hits_of(topics)))
    return f"<claude-mem-context>\n# [shop] recent context, 2026-02-11\n\n{rows}\n</claude-mem-context>"


def historian(topics: Sequence[Topic]) -> str:
    """Return JSON of claude-historian."""
    rows = [{"type": "assistant", "ts": "2d ago", "content": hit, "score": 17} for hit in hits_of(topics)]
    return json.dumps({"query": topics[0].questions[0], "results": rows})


def first_design(topics: Sequence[Topic]) -> str:
    """Return hits with a header each, as an early version printed them."""
    rows = [f"[{at}/{len(topics)}] abc123{at} • Feb 0{at}\n{hit}" for at, hit in enumerate(hits_of(topics), 1)]
    return "\n\n".join(rows)


def _asked(topics: Sequence[Topic]) -> str:
    return topics[0].questions[0]


def _by_tool(tool: str, output: Callable[[Sequence[Topic]], str]) -> "Way":
    def way(talk: Talk, topics: Sequence[Topic]) -> None:
        talk.user(_asked(topics)).does(tool, output(topics), query=_asked(topics))

    return way


def _by_command(command: str, output: Callable[[Sequence[Topic]], str]) -> "Way":
    def way(talk: Talk, topics: Sequence[Topic]) -> None:
        talk.user("Look up what we know of this.").runs(command.format(_asked(topics)), output(topics))

    return way


def _by_hook(frame: str, block: Callable[[Sequence[Topic]], str]) -> "Way":
    def way(talk: Talk, topics: Sequence[Topic]) -> None:
        talk.user(f"{frame.format(block(topics))}\n\nTidy up the imports, please.").says("The imports are tidy.")

    return way


def _escaped(topics: Sequence[Topic]) -> str:
    return html.escape(deja_block(topics), quote=False)


def _printed_json(topics: Sequence[Topic]) -> str:
    told = json.dumps({"type": "item.completed", "text": own_block(topics)})
    return told.replace("<", "\\u003c").replace(">", "\\u003e")


def _attachment(talk: Talk, topics: Sequence[Topic]) -> None:
    told = {"type": "hook_additional_context", "hookEvent": "SessionStart", "content": [mem_context(topics)]}
    talk.user("", type="attachment", attachment=told).user("Bump the version of the linter.").says("It is bumped.")


def _paraphrase(talk: Talk, topics: Sequence[Topic]) -> None:
    talk.user(_asked(topics)).does("mcp__thresher__search", own_block(topics), query=_asked(topics))
    talk.says("\n".join(map(paraphrased, topics)))


def _paraphrase_of_a_command(talk: Talk, topics: Sequence[Topic]) -> None:
    talk.user(_asked(topics)).says("Let me look into past sessions.")
    talk.runs(f'thresher search "{_asked(topics)}"', own_block(topics))
    talk.thinks("\n".join(map(paraphrased, topics))).says("\n".join(map(paraphrased, topics)))


def _quoted_block(talk: Talk, topics: Sequence[Topic]) -> None:
    talk.user("/recall the shop").thinks(f"I was given:\n{own_block(topics)}\nThat will do.")
    talk.says(f"Here it is again:\n{own_block(topics)}\nThat is all there is.")


def _pasted(talk: Talk, topics: Sequence[Topic]) -> None:
    talk.user(first_design(topics)).says("I have read them.")


def _only_asked(talk: Talk, topics: Sequence[Topic]) -> None:
    for question in [question for topic in topics for question in topic.questions]:
        talk.user(question).says("I cannot tell: nothing in this folder speaks of that.")


def _asked_and_looked(talk: Talk, topics: Sequence[Topic]) -> None:
    for question in [question for topic in topics for question in topic.questions]:
        talk.user(question).does("mcp__thresher__search", own_block(topics), query=question)
        talk.says("See above, those are the sessions.")


def _observer(talk: Talk, topics: Sequence[Topic]) -> None:
    talk.user("You are a Claude-Mem, a specialized observer tool for creating searchable memory.")
    for topic in topics:
        talk.user(f"<observed_from_primary_session>\n{topic.asked}\n{topic.told}\n</observed_from_primary_session>")
        talk.says(f"<observation><title>{topic.asked}</title><narrative>{topic.told}</narrative></observation>")


def _summariser(talk: Talk, topics: Sequence[Topic]) -> None:
    talk.user(
        "Context: This summary will be shown in a list to help users and Claude choose which conversations to read.\n"
        + "\n".join(hits_of(topics))
    )
    talk.says("\n".join(topic.told for topic in topics))


Way = Callable[[Talk, Sequence[Topic]], None]
"""Functions that add the words of topics to a session."""

ECHOES: dict[str, Way] = {
    "our search in a pipe": _by_command('thresher search "{}"', own_block),
    "our search in a pipe, after other commands": _by_command(
        'git status --short; thresher search "{}" | head', own_block
    ),
    "our search as JSON": _by_command('thresher search --json "{}"', historian),
    "our MCP tool": _by_tool("mcp__thresher__search", own_block),
    "our MCP tool, without its mark": _by_tool("mcp__plugin_thresher_thresher__recall", episodic_text),
    "another agent's output": _by_command('codex exec --json "{}"', _printed_json),
    "deja-vu's MCP tool": _by_tool("mcp__deja__deja", deja_block),
    "deja-vu's command": _by_command('deja search "{}"', episodic_text),
    "deja-vu's hook": _by_hook("{}", deja_block),
    "deja-vu's hook in a reminder": _by_hook(
        "<system-reminder>\nUserPromptSubmit hook success: {}\n</system-reminder>", deja_block
    ),
    "deja-vu's hook, escaped": _by_hook("<hook_context>{}</hook_context>", _escaped),
    "episodic-memory's MCP tool": _by_tool(EPISODIC, episodic_text),
    "episodic-memory's command": _by_command(
        '"${{CLAUDE_PLUGIN_ROOT}}/cli/episodic-memory" search "{}"', episodic_text
    ),
    "claude-mem's MCP tool": _by_tool(CLAUDE_MEM, observations),
    "claude-mem's hook": _by_hook("<system-reminder>\n{}\n</system-reminder>", mem_context),
    "claude-mem's attachment": _attachment,
    "claude-historian's MCP tool": _by_tool("mcp__claude-historian-mcp__search_conversations", historian),
    "the first design's hits": _by_command("sh look.sh '{}'", first_design),
    "the first design's hits, pasted": _pasted,
    "a paraphrase": _paraphrase,
    "a paraphrase of a command's output": _paraphrase_of_a_command,
    "a block that the model repeats": _quoted_block,
    "the question alone": _only_asked,
    "the question and a recall": _asked_and_looked,
}
"""Functions with other work around the echo."""

MADE: dict[str, Way] = {"claude-mem's observer": _observer, "episodic-memory's summariser": _summariser}
"""Sessions that a memory tool created for its own work."""

CHORES = (
    "colour palette", "gift wrapping", "newsletter footer", "cookie banner", "currency selector", "wishlist icon",
    "sitemap generator", "delivery calendar", "loyalty points", "review stars", "size chart", "address autocomplete",
    "stocktake report", "returns label", "barcode scanner", "packing slip", "carousel arrows", "holiday opening hours",
    "age verification", "referral link", "sold-out badge", "favicon", "breadcrumb trail", "print stylesheet",
)  # fmt: skip
"""Other work of the sessions with echoes, one task each."""


def before_of(chore: str) -> str:
    """Return the request before the echo."""
    return f"Repair the {chore}: it is broken since the last deployment."


def after_of(chore: str) -> str:
    """Return the model's report after the echo."""
    return f"Done: the {chore} behaves again, and a regression test guards it."


def echo(number: int, way: Way, topics: Sequence[Topic], chore: str) -> Talk:
    """Return a session with other work that contains an echo."""
    file = f"{SHOP}/src/shop/{chore.replace(' ', '_')}.py"
    talk = (
        Talk(200 + number, day=15).user(before_of(chore)).does("Edit", "updated", file_path=file, new_string="repaired")
    )
    way(talk, topics)
    talk.user("Now go on with what we began.").does("Edit", "updated", file_path=file, new_string="guarded")
    return talk.runs("python -m pytest -q", "49 passed in 2.40s").says(after_of(chore))


def write_set(folder: Path) -> None:
    """Write all sources and echoes; each topic is in half of the echoes."""
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(folder)
    for number, (way, chore) in enumerate(zip(ECHOES.values(), CHORES, strict=True)):
        echo(number, way, some_topics(number), chore).write(folder)
    for number, way in enumerate(MADE.values(), 300):
        made = Talk(number, day=16)
        way(made, TOPICS)
        made.write(folder)
    looked = ("runs", f'episodic-memory search "{_asked(TOPICS)}"', episodic_text(TOPICS))
    Rollout(310, (("user", "Look at the old sessions."), looked, ("assistant", "I looked."))).write(folder)


def some_topics(number: int) -> list[Topic]:
    """Return the topics in the echo with this number, which is every second one."""
    return [topic for place, topic in enumerate(TOPICS) if (place + number) % 2 == 0]


HONEST: tuple[tuple[str, str], ...] = (
    # Work on a memory tool, and conversation about one.
    ("user", "The <thresher-recall> mark is not closed when head cuts the output; close it in the renderer."),
    ("user", "Why does our tool print [1/5] abc1234 • before every hit? Drop the counter."),
    ("user", "grep for thresher search in the handbook and replace it by the new verb"),
    ("user", "deja-vu frames its answers with <deja-recall> and </deja-recall>; strip both when we import."),
    ("user", "Write a benchmark that runs deja and episodic-memory on one corpus and compares their answers."),
    ("user", 'Add this to the settings: {"mcpServers": {"thresher": {"command": "thresher", "args": ["mcp"]}}}'),
    ("says", "I renamed the tool mcp__thresher__search to mcp__thresher__lookup in the table of permissions."),
    ("says", "The element <memory-hint> opens a block only at the start of a line, so the parser stays linear."),
    ("says", "claude-mem keeps its observations in SQLite; our importer reads that file and never starts its worker."),
    ("runs", 'grep -rn "thresher search" handbook/ --include=*.md'),
    ("runs", 'git commit -qm "thresher search: sort equal scores by id"'),
    ("runs", "python -m pytest tests/memory -k recall_spans -x"),
    # Text that resembles noise but is a human message.
    ("user", "Why do we get API Error: 529 from the carrier since this morning?"),
    ("user", "API Error 422 of the label printer means that the postcode is missing; show that to the clerk."),
    ("user", "Limit reached is what the uploader says for a 12 MB banner; raise it to 20."),
    ("user", "Caveat: the refund job must not run twice, the bank has no idempotency key."),
    ("user", "New environment variable for the coupon printer, please, and document it."),
    ("user", "Our support chat shows [Request interrupted by user] to customers, hide it there."),
    ("user", "Our template prints <system-reminder> as plain text to customers, escape it."),
    ("user", "/var/spool/labels is full again, write a cron job that empties it."),
    # Lists and headers of a human.
    ("user", "[1/5] is the first batch of the catalogue import, run it and tell me the row count."),
    ("user", "My plan:\n[1/3] freeze the catalogue\n[2/3] import the spring collection\n[3/3] thaw the catalogue"),
    # Other meanings of the word memory.
    ("user", "Build the product recall page: customers enter the serial number of their toaster."),
    ("user", "I'll search the invoices of the florist myself, you look after the tulip discount."),
    ("user", "Did you remember that we talked about lilac ribbons for gift boxes?"),
    ("says", "The memory search of the admin page scans every row, so I added a trigram index."),
)
"""Human messages, model messages and commands that are neither recalled text nor noise."""


def honest(number: int, role: str, text: str) -> Talk:
    """Return a session with one such message among others."""
    talk = Talk(400 + number, project="/home/sam/tools", day=18)
    if role == "user":
        return talk.user(text).says("I begin with it at once.").runs("make", "ok").says("That is finished.")
    talk.user("Please go on with the next point.")
    return talk.says(text) if role == "says" else talk.runs(text, "ok").says("That is finished.")
