"""The share of references that are coincidence: output of one session is searched in another session.

The candidates of all calls of a session are searched where the definition does, in the text visible to each call, and
in all the text of another session, with the same guards. The null rate of a kind is the number of matches in the other
session per match in its own session. For a different project it is close to zero. For the same project it is higher,
but not only by coincidence: both sessions read the same files, and a later session reads what an earlier one wrote. The
tests therefore search only sessions that started earlier.
"""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from small_traces import agent, call, did, trace, user

import thresher as th
from thresher.model import History, Message
from thresher.replay import ReferenceIndex, Trace, find_references, trace_history, trace_session
from thresher.replay.references import (
    ALWAYS_ALLOWED_SOURCES,
    MAX_SOURCE_SHARE,
    ReferenceKind,
    find_reference_candidates,
)

LIMIT = 0.10
KINDS = ("E", "G")
"""Names and paths are shared by all sessions of a project, so they do not test it."""
CALLS = 15
PROJECTS = {
    "entireio/cli": ("claude_code", 24),
    "EntityProcess/agentv": ("codex", 12),
    "SWE-agent/mini-swe-agent": ("mini_swe", 12),
    "badlogic/pi-mono": ("pi", 1),
}
"""A project's folder and the number of its sessions to use."""
Found = tuple[ReferenceKind, str]


class Searched(NamedTuple):
    """A session: its text, the candidates of its calls (once per call), and those that are references."""

    of: Trace
    blocks: ReferenceIndex
    written: Counter[Found]
    home: Counter[Found]

    def holds(self, kind: ReferenceKind, text: str) -> bool:
        """Report whether a candidate would be a reference after this session: present, not everywhere, not its own."""
        held = self.blocks.find_holders(kind, text)
        if not held or len(held) > max(ALWAYS_ALLOWED_SOURCES, MAX_SOURCE_SHARE * len(self.blocks)):
            return False
        return kind == "E" or self.of.blocks[min(held)].kind in "UR"


def searched(of: Trace) -> Searched:
    index = ReferenceIndex()
    once: dict[tuple[int, Found], None] = {}
    for block in of.blocks:
        index.add(block.text)
        if block.kind in "AC" and block.visible:
            once.update(((block.visible, one), None) for one in find_reference_candidates(of, block))
    home = Counter((reference.kind, reference.text) for references in find_references(of) for reference in references)
    return Searched(of, index, Counter(one for _, one in once), home)


class Rate(NamedTuple):
    """Totals over several pairs of sessions."""

    home: int
    """References in the first session of each pair."""
    abroad: int
    """Candidates of the first session that the second one contains."""
    both: int
    """References of the first session that the second one contains."""

    @property
    def null(self) -> float:
        return self.abroad / self.home

    def __str__(self) -> str:
        return f"{self.null:.1%} of {self.home:,} ({self.both / self.home:.1%} references)"


def rates(pairs: Iterable[tuple[Searched, Searched]]) -> dict[str, Rate]:
    home, abroad, both = Counter[str](), Counter[str](), Counter[str]()
    for one, other in pairs:
        for (kind, _), count in one.home.items():
            home[kind] += count
        for (kind, text), count in one.written.items():
            if kind in KINDS and other.holds(kind, text):
                abroad[kind] += count
                both[kind] += one.home[kind, text]
    return {kind: Rate(home[kind], abroad[kind], both[kind]) for kind in KINDS if home[kind]}


def exceeding(found: dict[str, Rate]) -> list[str]:
    return [kind for kind, rate in found.items() if rate.null > LIMIT]


def told(found: dict[str, Rate]) -> str:
    return "; ".join(f"{kind} {rate}" for kind, rate in found.items())


# Two small sessions, and controls


SPEC = "Shipping is added once for every order and never once for each of its items"
CART = "def total(cart):\n    return items_sum(cart) + shipping_for(cart) * len(cart.items)\n"
RULE = "A ticket that nobody has answered after three days goes back to the first of the queue"
QUEUE = "def next_ticket(queue):\n    return min(queue, key=lambda ticket: ticket.opened_at)\n"


def session(told_: str, file: str) -> list[list[Message]]:
    """Build a session that reads a file, edits it, and quotes its prompt."""
    change = call("Edit", "9", file_path="/a", old_string=file, new_string="pass")
    return [user(f"Mend it. {told_}."), did("1", "Read", file, file_path="/a"), agent(change, f"{told_}: done.")]


def test_session_refers_to_its_own_text_and_not_to_another() -> None:
    cart, queue = (searched(trace(*session(*one))) for one in ((SPEC, CART), (RULE, QUEUE)))
    assert rates([(cart, queue), (queue, cart)]) == {"E": Rate(4, 0, 0), "G": Rate(2, 0, 0)}


def test_text_of_another_session_can_be_found() -> None:
    """Without this, an empty result would be meaningless."""
    cart = searched(trace(*session(SPEC, CART)))
    same = searched(trace(user(RULE), did("1", "Bash", f"{SPEC}\n{CART}", command="cat *"), agent("end")))
    assert rates([(cart, same)]) == {"E": Rate(2, 2, 2), "G": Rate(1, 1, 1)}
    assert exceeding(rates([(cart, same)])) == ["E", "G"]


def test_guards_apply_to_the_other_session() -> None:
    cart = searched(trace(*session(SPEC, CART)))
    everywhere = searched(
        trace(*(did(str(n), "Bash", f"{n} {SPEC}\n{CART}", command="cat") for n in range(ALWAYS_ALLOWED_SOURCES + 1)))
    )
    assert rates([(cart, everywhere)]) == {"E": Rate(2, 0, 0), "G": Rate(1, 0, 0)}
    coined = searched(trace(user("go"), agent(f"{SPEC}\n{CART}"), user(f"{SPEC}\n{CART}"), agent("end")))
    assert rates([(cart, coined)]) == {"E": Rate(2, 2, 2), "G": Rate(1, 0, 0)}


# Recordings


def sample(data: Path, project: str, wanted: int) -> list[Searched]:
    """Return sessions of a project that are long enough, evenly spaced in the index."""
    folder, _ = PROJECTS[project]
    rows = [json.loads(line) for line in (data / "index.jsonl").read_text("utf-8").splitlines()]
    files = [row["file"] for row in rows if row["repo"] == project and row["split"] == "tune"]
    files = [file for file in files if file.startswith(f"{folder}/")]
    chosen = [files[n * len(files) // wanted] for n in range(wanted)]
    return [searched(one) for file in chosen if len((one := longest(data / file)).calls) >= CALLS]


def longest(path: Path) -> Trace:
    return max((one for session in th.read_all(path) for one in trace_session(session)), key=lambda one: len(one.calls))


def began(one: Searched) -> float:
    return next((call.time for call in one.of.calls if call.time is not None), 0.0)


def test_sessions_of_other_projects_contain_almost_nothing(shared_data: Path) -> None:
    some = {project: sample(shared_data, project, min(4, wanted)) for project, (_, wanted) in PROJECTS.items()}
    found = rates((a, b) for one, other in permutations(some, 2) for a in some[one] for b in some[other])
    assert set(found) == set(KINDS)
    assert all(rate.null <= LIMIT / 5 for rate in found.values()), told(found)


def test_earlier_sessions_of_the_same_project_contain_little(shared_data: Path) -> None:
    every = []
    for project, (_, wanted) in PROJECTS.items():
        pairs = list(permutations(sample(shared_data, project, wanted), 2))
        earlier = [(one, other) for one, other in pairs if began(other) <= began(one)]
        every += earlier
        found = rates(earlier)
        assert not exceeding(found), f"{project}: {told(found)}; later ones, too: {told(rates(pairs))}"
    found = rates(every)
    assert set(found) == set(KINDS)
    assert not exceeding(found), f"all projects: {told(found)}"


def test_search_in_another_session_agrees_with_the_definition(shared_data: Path) -> None:
    """A message of one session after all of another is a call that sees that session: the guards are the same."""
    alike = 0
    for one, other in permutations(sample(shared_data, "entireio/cli", 4), 2):
        for said in [m for m in one.of.history.messages if any(c.name == "Edit" for c in m.calls)][::20]:
            joined = trace_history(History((*other.of.history.messages, *user("go"), said)))
            references = {(reference.kind, reference.text) for reference in find_references(joined)[-1]}
            written = [block for block in joined.blocks if block.visible == len(joined.calls) and block.kind in "AC"]
            sought = {found for block in written for found in find_reference_candidates(joined, block)}
            assert {found for found in sought if other.holds(*found)} == references
            alike += len(references)
    assert alike > 20
