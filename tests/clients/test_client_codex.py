"""Codex with the server and a scripted model: it requests its context and starts sub-agents."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_clients import CODEX, NEEDS_CLIENTS, THRESHER, TOOLS, behind_proxy, installed, own_environment, ran
from scripted_model import Call, ModelRequest, ScriptedModel, Story, Turn

pytestmark = NEEDS_CLIENTS
SERVER = """
[mcp_servers.thresher]
command = "{thresher}"
args = ["mcp"]
required = true  # or the first turn goes without a server that takes its time to start
env = {{ THRESHER_HOME = "{home}/thresher" }}
"""
GET_CONTEXT = "mcp__thresher__get_context"
ASK = Turn("I ask what is known.", (Call(GET_CONTEXT, {}),))


class Codex:
    """Codex in its own home, with a scripted model."""

    def __init__(self, place: Path, model: ScriptedModel) -> None:
        home, self.folder, self.model = place / "home", place / "project", model
        self.folder.mkdir()
        self._environment = own_environment(home, SCRIPTED_KEY="dummy", **behind_proxy(model.url))
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(
            CODEX.format(url=model.url) + SERVER.format(thresher=THRESHER, home=home)
        )

    def says(self, prompt: str, folder: Path | None = None) -> str:
        """Return the id of the session that answered a prompt."""
        command = [installed("codex"), "exec", "--skip-git-repo-check", "--json", prompt]
        first, *_ = ran(command, self._environment, folder or self.folder).splitlines()
        return str(json.loads(first)["thread_id"])


@pytest.fixture
def make_codex(tmp_path: Path) -> Iterator[Callable[[Story], Codex]]:
    with ExitStack() as stack:

        def make(story: Story) -> Codex:
            model = ScriptedModel(story)
            stack.callback(model.close)
            return Codex(tmp_path, model)

        yield make


def test_it_lists_the_tools_and_requests_its_context(make_codex: Callable[[Story], Codex]) -> None:
    codex = make_codex(lambda request: Turn("Done.") if request.results else ASK)
    session = codex.says("The password is XYZZY-4711.")
    last = codex.model.requests[-1]
    assert {name.removeprefix("mcp__thresher__") for name in last.tools if "thresher" in name} == TOOLS
    (context,) = last.results
    assert f'<thresher-recall sessions="{session}">' in context.text
    assert "The password is XYZZY-4711." in context.text


def test_a_past_session_is_found_and_read(make_codex: Callable[[Story], Codex], tmp_path: Path) -> None:
    question = "Why does the kiln crack the glaze?"

    def story(request: ModelRequest) -> Turn:
        if not request.has_prompt("Ask what we knew"):
            return Turn("The damper was shut too early: the kiln cooled at 300 degrees an hour.")
        match request.results:
            case []:
                return Turn("I search.", (Call("mcp__thresher__search_sessions", {"query": question}),))
            case [found]:
                hit = re.search(r'read_session\("(.+)", around=(\d+)\)', found.text)
                arguments = {"session": hit[1], "around": int(hit[2])} if hit else {}
                return Turn("I read it.", (Call("mcp__thresher__read_session", arguments),))
        return Turn("Done.")

    codex = make_codex(story)
    (tmp_path / "elsewhere").mkdir()
    past = codex.says(question, folder=tmp_path / "elsewhere")
    codex.says(f"Ask what we knew: {question}")
    found, read = codex.model.requests[-1].results
    assert "1 session found\n" in found.text
    assert f'<thresher-recall sessions="{past}">' in found.text
    assert "the kiln cooled at 300 degrees an hour" in read.text


def test_a_sub_agent_gets_the_context_of_its_parent(make_codex: Callable[[Story], Codex]) -> None:
    def story(request: ModelRequest) -> Turn:
        if request.has_prompt("Count the windows"):
            return Turn("They are seven.") if request.results else ASK
        match request.results:
            case []:
                prompt = {"message": "Count the windows, OSPREY."}
                return Turn("A helper for the KESTREL house.", (Call("multi_agent_v1__spawn_agent", prompt),))
            case [spawned]:
                helpers = {"targets": [json.loads(spawned.text)["agent_id"]]}
                return Turn("I wait.", (Call("multi_agent_v1__wait_agent", helpers),))
        return Turn("Done.")

    codex = make_codex(story)
    session = codex.says("The password is XYZZY-4711. Get help.")
    requests = [one for one in codex.model.requests if one.has_prompt("Count the windows") and one.results]
    context = requests[-1].results[-1].text
    assert f'<thresher-recall sessions="{session}">' in context
    assert "The password is XYZZY-4711." in context
    assert "A helper for the KESTREL house." in context
    assert "OSPREY" not in context
