"""Claude Code with the server and a scripted model: real sub-agents request the context of their parents.

A story recognizes a sub-agent by the words of its prompt. The tests read the answer of the server from the request in
which the client passes it to the model.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from threading import Event, Thread
from typing import Any

import pytest
from real_clients import (
    LIMIT,
    NEEDS_CLIENTS,
    THRESHER,
    TOOLS,
    behind_proxy,
    installed,
    own_environment,
    ran,
    ran_json,
    started,
)
from scripted_model import Call, ModelRequest, ScriptedModel, Story, Turn

from thresher.memory import Memory

pytestmark = NEEDS_CLIENTS
GET_CONTEXT = "mcp__thresher__get_context"
ASK = Turn("I ask what is known.", (Call(GET_CONTEXT, {}),))


class Claude:
    """Claude Code in its own home and one folder, with a scripted model."""

    def __init__(self, place: Path, model: ScriptedModel) -> None:
        self.home, self.folder, self.model = place / "home", place / "project", model
        self.folder.mkdir()
        self.environment = own_environment(
            self.home,
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="dummy",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
            MCP_CONNECTION_NONBLOCKING="0",  # otherwise the first turn starts without a server that is slow to start
            **behind_proxy(model.url),
        )
        self._config = place / "mcp.json"
        server = {"command": str(THRESHER), "args": ["mcp"], "env": {"THRESHER_HOME": str(self.home / "thresher")}}
        self._config.write_text(json.dumps({"mcpServers": {"thresher": server}}))

    def command(self, *words: str) -> list[str]:
        """Allow the needed tools by name, since root may not skip permissions."""
        servers = ["--mcp-config", str(self._config), "--strict-mcp-config"]
        return [installed("claude"), "-p", *words, *servers, "--allowedTools", "Agent,Read,mcp__thresher"]

    def says(self, prompt: str, folder: Path | None = None) -> dict[str, Any]:
        """Return the answer to one prompt and the session id."""
        reply = ran_json(self.command(prompt, "--output-format", "json"), self.environment, folder or self.folder)
        assert not reply["is_error"], reply
        return reply

    def await_written(self, words: str, files: str = "*.jsonl") -> None:
        """Wait until a conversation is on disk up to a text: Claude Code writes 0.1 s late, real models are slower."""
        folder = self.home / ".claude" / "projects"
        _await(lambda: any(words in path.read_text() for path in folder.glob(f"*/{files}")))

    def contexts(self, prompt: str) -> list[str]:
        """Return the answers of get_context in conversations with this prompt."""
        requests = [one for one in self.model.requests if one.has_prompt(prompt)]
        return [one.results[-1].text for one in requests if one.results and one.results[-1].tool == GET_CONTEXT]


def _await(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT / 2
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("what the story waits for did not come")
        time.sleep(0.02)


def _say(process: Popen[str], prompt: str) -> None:
    """Send a message to an interactive client and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if json.loads(line)["type"] == "result":
            return
    raise AssertionError(f"no answer to {prompt!r}")


@pytest.fixture
def make_claude(tmp_path: Path) -> Iterator[Callable[[Story], Claude]]:
    with ExitStack() as stack:

        def make(story: Story) -> Claude:
            model = ScriptedModel(story)
            stack.callback(model.close)
            return Claude(tmp_path, model)

        yield make


def _spawn(*prompts: str) -> tuple[Call, ...]:
    kind = "general-purpose"
    return tuple(
        Call("Agent", {"description": "a helper", "prompt": prompt, "subagent_type": kind}) for prompt in prompts
    )


def test_a_sub_agent_gets_the_context_of_its_parent(make_claude: Callable[[Story], Claude]) -> None:
    def story(request: ModelRequest) -> Turn:
        if request.has_prompt("Count the windows"):
            if request.results:
                return Turn("They are seven.")
            claude.await_written("Count the windows")
            return ASK
        if not request.results:
            return Turn("I look at the notes.", (Call("Read", {"file_path": str(claude.folder / "notes.md")}),))
        if request.results[-1].tool == "Read":
            return Turn("The notes say it: a helper for the KESTREL house.", _spawn("Count the windows, OSPREY."))
        return Turn("All done.")

    claude = make_claude(story)
    (claude.folder / "notes.md").write_text("The house is called KESTREL.\n")
    reply = claude.says("The password is XYZZY-4711. See notes.md, and get help.")
    assert reply["result"] == "All done."
    seen = {name.removeprefix("mcp__thresher__") for name in claude.model.requests[0].tools if "thresher" in name}
    assert seen == TOOLS

    (context,) = claude.contexts("Count the windows")
    assert "The password is XYZZY-4711." in context
    assert "a helper for the KESTREL house" in context
    assert f"session {reply['session_id'][:8]} (claude-code), when it started sub-agent " in context
    assert "OSPREY" not in context
    assert "I ask what is known." not in context


def test_each_of_several_sub_agents_gets_the_context_at_its_start(
    make_claude: Callable[[Story], Claude],
) -> None:
    def story(request: ModelRequest) -> Turn:
        for helper in ("helper ONE", "helper TWO", "helper THREE"):
            if request.has_prompt(helper):
                if request.results:
                    return Turn(f"This was {helper}.")
                claude.await_written(helper)
                return ASK
        match len(request.results):
            case 0:
                return Turn("Two at once.", _spawn("You are helper ONE.", "You are helper TWO."))
            case 2:
                return Turn("Now I know: HERON.", _spawn("You are helper THREE."))
        return Turn("All done.")

    claude = make_claude(story)
    assert claude.says("The password is XYZZY-4712. Get help.")["result"] == "All done."
    for helper in ("helper ONE", "helper TWO", "helper THREE"):
        (context,) = claude.contexts(helper)
        assert "The password is XYZZY-4712." in context
        assert "Two at once." in context
        assert ("Now I know: HERON." in context) == (helper == "helper THREE")
        assert f"You are {helper}" not in context


def test_two_clients_in_one_folder_are_distinguished(make_claude: Callable[[Story], Claude]) -> None:
    passwords = ["XYZZY-1", "XYZZY-2"]

    def story(request: ModelRequest) -> Turn:
        password = next(one for one in passwords if request.has_prompt(one))
        if request.results:
            return Turn("Done.")
        if not request.has_prompt("You help"):
            return Turn("Help!", _spawn(f"You help {password}."))
        for each in passwords:
            claude.await_written(f"You help {each}.")
        if password == passwords[1]:
            _await(lambda: bool(claude.contexts(f"You help {passwords[0]}.")))
        return ASK

    claude = make_claude(story)
    with ExitStack() as stack:
        commands = [claude.command(f"The password is {password}.") for password in passwords]
        running = [stack.enter_context(started(one, claude.environment, claude.folder)) for one in commands]
        for process in running:
            process.communicate(timeout=LIMIT)
    for password in passwords:
        (context,) = claude.contexts(f"You help {password}.")
        assert [each for each in passwords if f"The password is {each}." in context] == [password], context


def test_after_clear_a_sub_agent_belongs_to_the_new_conversation(make_claude: Callable[[Story], Claude]) -> None:
    def story(request: ModelRequest) -> Turn:
        number = "two" if request.has_prompt("number two") else "one"
        if request.results:
            return Turn("Done.")
        if not request.has_prompt("You help"):
            return Turn("Help!", _spawn(f"You help number {number}."))
        claude.await_written(f"You help number {number}.")
        return ASK

    claude = make_claude(story)
    streams = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    with started(claude.command(*streams), claude.environment, claude.folder, talks=True) as process:
        for prompt in ("I am number one: XYZZY-1.", "/clear", "I am number two: XYZZY-2."):
            _say(process, prompt)
    (context,) = claude.contexts("You help number two.")
    assert "XYZZY-1" not in context
    assert "XYZZY-2" in context


def test_a_nested_sub_agent_gets_the_context_of_its_own_parent(make_claude: Callable[[Story], Claude]) -> None:
    def story(request: ModelRequest) -> Turn:
        if request.results:
            return Turn("Done.")
        if request.has_prompt("You are the second."):
            claude.await_written("I know of the HERON.", "*/subagents/*.jsonl")
            return ASK
        if request.has_prompt("You are the first."):
            return Turn("I know of the HERON.", _spawn("You are the second."))
        return Turn("Help!", _spawn("You are the first."))

    claude = make_claude(story)
    claude.says("The password is XYZZY-4713.")
    (context,) = claude.contexts("You are the second.")
    assert "I know of the HERON." in context
    assert "You are the second." not in context


def test_concurrent_readers_never_get_another_conversation(make_claude: Callable[[Story], Claude]) -> None:
    def story(request: ModelRequest) -> Turn:
        if request.results or request.has_prompt("Earlier"):
            return Turn("Done.")
        if not request.has_prompt("You help."):
            return Turn("Help!", _spawn("You help."))
        claude.await_written("You help.")
        reading.start()
        _await(is_reading.is_set)
        return ASK

    def read() -> None:
        with Memory(home=claude.environment["THRESHER_HOME"]).store.write_lease():
            is_reading.set()
            time.sleep(1)

    is_reading, reading = Event(), Thread(target=read)
    claude = make_claude(story)
    claude.says("Earlier: XYZZY-1.")
    ran([str(THRESHER), "sync"], claude.environment, claude.folder)
    claude.says("Now: XYZZY-2.")
    reading.join()
    (context,) = claude.contexts("You help.")
    assert "XYZZY-1" not in context
    assert "XYZZY-2" in context


# On a busy machine it may be written in time.
def test_a_sub_agent_that_asks_at_once_gets_the_context_at_its_start(
    make_claude: Callable[[Story], Claude],
) -> None:
    def story(request: ModelRequest) -> Turn:
        if request.has_prompt("helper TWO"):
            return Turn("Done.") if request.results else ASK
        if request.has_prompt("helper ONE"):
            claude.await_written("helper ONE")
            return Turn("Done.") if request.results else ASK
        match len(request.results):
            case 0:
                return Turn("First one.", _spawn("You are helper ONE."))
            case 1:
                return Turn("Now I know: HERON.", _spawn("You are helper TWO."))
        return Turn("All done.")

    claude = make_claude(story)
    claude.says("The password is XYZZY-4714.")
    (context,) = claude.contexts("helper TWO")
    assert "Now I know: HERON." in context


def test_a_past_session_is_found_and_read(make_claude: Callable[[Story], Claude], tmp_path: Path) -> None:
    question = "Why does the kiln crack the glaze?"

    def story(request: ModelRequest) -> Turn:
        if not request.has_prompt("Ask what we knew"):
            return Turn("The damper was shut too early: the kiln cooled at 300 degrees an hour.")
        match request.results:
            case []:
                claude.await_written("Ask what we knew")
                return Turn("I search.", (Call("mcp__thresher__search_sessions", {"query": question}),))
            case [found]:
                hit = re.search(r'read_session\("(.+)", around=(\d+)\)', found.text)
                arguments = {"session": hit[1], "around": int(hit[2])} if hit else {}
                return Turn("I read it.", (Call("mcp__thresher__read_session", arguments),))
        return Turn("All done.")

    claude = make_claude(story)
    past = claude.says(question, folder=tmp_path)["session_id"]
    reply = claude.says(f"Ask what we knew: {question}")
    assert reply["result"] == "All done."
    found, read = claude.model.requests[-1].results
    assert found.text.startswith("1 session found\n")
    assert f"\n{past[:8]} | " in found.text
    assert reply["session_id"][:8] not in found.text
    assert "the kiln cooled at 300 degrees an hour" in read.text
