"""Tests of index documents: no secrets, even truncated ones, and every file of a patch."""

import pytest

from thresher.memory.index.documents import IndexDocument
from thresher.memory.ingest.document_builder import (
    HEAD,
    TAIL,
    attribute_session,
    build_documents,
    build_title_document,
    clean_title,
)
from thresher.memory.records import ArchivedSession
from thresher.model import History, Message, Session, Text, ToolCall, ToolResult
from thresher.transcripts.base import MAX_TITLE_CHARS, title_from_prompt

BODY = "a1B2c3D4e5" * 3 + "f6G7h8"
TOKEN = "ghp_" + BODY
RECALL = '<thresher-recall sessions="a1b2c3d4">\nan okapi was seen in March\n</thresher-recall>'


def _user(text: str) -> Message:
    return Message("user", (Text(text),))


def _session(*messages: Message, title: str | None = None) -> Session:
    history = History(messages)
    return Session("codex", "one", "/a", (history,), title=title_from_prompt([history]) if title is None else title)


def _docs(*messages: Message) -> list[IndexDocument]:
    return [*build_documents(messages, attribute_session(_session(*messages)), 0, made_by="")]


@pytest.mark.parametrize("before", range(HEAD - len(TOKEN), HEAD + 1, 5))
def test_output_is_redacted_before_it_is_truncated(before: int) -> None:
    filler = "word " * HEAD
    head = f"{filler[: before - 1]} {TOKEN} {filler}"
    tail = f"{filler} {TOKEN} {filler[: before - HEAD + TAIL]}"
    for text in (head, tail):
        [doc] = _docs(Message("tool", (ToolResult("c", (Text(text),)),), "tool"))
        assert all(BODY[at : at + 6] not in doc.texts[0] for at in range(0, len(BODY) - 6, 3))
        assert len(doc.texts[0]) == HEAD + TAIL + 1


def test_a_password_field_contains_no_password() -> None:
    arguments = '{"login": {"password": "x9Kq72LmZ4vT81pQ", "note": "giraffe"}}'
    [doc] = _docs(Message("assistant", (ToolCall("c", "login", arguments),), "model"))
    assert "giraffe" in doc.texts[0]
    assert "72" not in doc.texts[0]


def test_a_document_names_every_file_of_a_patch() -> None:
    patch = "*** Begin Patch\n*** Update File: a/b.py\n*** Move to: a/c.py\n@@\n*** Add File: d.py\n*** End Patch"
    calls = (ToolCall("1", "apply_patch", patch), ToolCall("2", "Read", '{"file_path": "e.py"}'))
    edits, others = _docs(Message("assistant", calls, "model"))
    assert (edits.kind, edits.paths) == ("edits", ("a/b.py", "a/c.py", "d.py"))
    assert (others.kind, others.paths) == ("input", ("e.py",))


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("paint the shed", "paint the shed"),
        (f"{RECALL} paint the shed", "paint the shed"),
        (f"paint the shed\n{RECALL}", "paint the shed"),
        (f"{RECALL.replace('March', 'March ' * 40)}\n\npaint the shed", "paint the shed"),
        (f"<system-reminder>\nhook: {RECALL}\n</system-reminder>\npaint the shed", "paint the shed"),
        (f"{RECALL.removesuffix('</thresher-recall>')}\npaint it"[:MAX_TITLE_CHARS], None),
        (RECALL, ""),
        (f"use {TOKEN} here", "use [redacted github-token] here"),
        ("long " * 60, ("long " * 60)[:MAX_TITLE_CHARS]),
    ],
)
def test_a_title_contains_no_recalled_text(prompt: str, title: str | None) -> None:
    assert clean_title(_session(_user(prompt))) == (prompt if title is None else title)


@pytest.mark.parametrize("before", range(MAX_TITLE_CHARS - len(TOKEN), MAX_TITLE_CHARS, 3))
def test_a_secret_truncated_by_a_title_is_redacted(before: int) -> None:
    prompt = f"{'long ' * 30}"[: before - 1] + f" {TOKEN} and more"
    session = _session(_user("something else first"), _user(prompt), title=prompt[:MAX_TITLE_CHARS])
    for title in (session.title, session.title + "…", " ".join(session.title.split())):
        told = clean_title(_session(_user("something else first"), _user(prompt), title=title))
        assert "ghp" not in told
        assert told.startswith("long long")


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("Paint the shed", "Paint the shed"),
        ("Paint the", "Paint the"),
        ("Paint...", "Paint..."),
        ("", ""),
        (f"Rotate {TOKEN}", "Rotate [redacted github-token]"),
        ('<thresher-recall sessions="a">\nan okapi', ""),
    ],
)
def test_a_generated_title_stays(title: str, told: str) -> None:
    assert clean_title(_session(_user("Please, Paint the shed today."), title=title)) == told
    doc = build_title_document(ArchivedSession(key=7, id="one", agent="codex", file="/a", title=title, branch="main"))
    assert "okapi" not in doc.texts[0]
    assert BODY[:6] not in doc.texts[0]
