"""Authors of user messages in Codex transcripts."""

import json
from pathlib import Path
from typing import Any

import pytest

from thresher.model import Session
from thresher.transcripts import read

PLUGINS = "<recommended_plugins>\n- browser\n</recommended_plugins>"
RULES = "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nBe terse.\n</INSTRUCTIONS>"
ENVIRONMENT = "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"
NEXT_VERSION = "<kind_of_tomorrow>\nNobody typed this.\n</kind_of_tomorrow>"
PROMPT = "<p>Why is this tag red?</p>"


def session(tmp_path: Path, *texts: tuple[str, ...], typed: str = PROMPT, has_events: bool = True) -> Session:
    """A session with one user message of harness texts, then a prompt and its event."""
    payloads: list[tuple[str, dict[str, Any]]] = [("session_meta", {"id": "s1", "cwd": "/repo"})]
    for message in (*texts, (typed,)):
        content = [{"type": "input_text", "text": text} for text in message]
        payloads.append(("response_item", {"type": "message", "role": "user", "content": content}))
    if has_events:
        payloads.append(("event_msg", {"type": "user_message", "message": typed}))
    path = tmp_path / "rollout.jsonl"
    rows = ({"timestamp": "2026-05-05T09:00:01.000Z", "type": kind, "payload": payload} for kind, payload in payloads)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path, format="codex")


@pytest.mark.parametrize(
    ("texts", "author"),
    [
        ((PLUGINS, RULES, ENVIRONMENT), "context"),
        (("\n".join((PLUGINS, RULES, ENVIRONMENT)),), "context"),
        ((NEXT_VERSION,), "harness"),
        ((RULES, NEXT_VERSION), "harness"),
    ],
)
def test_harness_text_is_neither_a_prompt_nor_a_title(texts: tuple[str, ...], author: str, tmp_path: Path) -> None:
    found = session(tmp_path, texts)
    assert [message.author for message in found.history] == [author, "human"]
    assert found.title == PROMPT


def test_without_events_an_unknown_element_is_a_prompt(tmp_path: Path) -> None:
    found = session(tmp_path, (NEXT_VERSION,), has_events=False)
    assert [message.author for message in found.history] == ["human", "human"]
