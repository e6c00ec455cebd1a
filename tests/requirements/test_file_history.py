"""Requirements of a file's history: which reads, edits and outputs stay, and what happened to a file."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from archived import Chat

import thresher as th
from command_line import run, run_json
from thresher.errors import OptionError
from thresher.policies import make_policy
from thresher.timeline import Timeline, build_changelog

Messages = list[dict[str, Any]]
CONFIG = "/work/core/config.py"


def _text(word: str, lines: int = 60) -> str:
    """Return a file or an output of which no two lines are similar."""
    return "\n".join(f"{word}_{'abcdefghij'[n % 10] * (n // 10 + 2)} = {word!r}" for n in range(lines))


class Loop:
    """Messages of an agent with the tools `read_file`, `edit_file`, `bash` and others."""

    def __init__(self) -> None:
        self.messages: Messages = [{"role": "user", "content": "Please work on the configuration."}]

    def call(self, tool: str, output: str, **arguments: Any) -> "Loop":
        id = f"call_{len(self.messages)}"
        function = {"name": tool, "arguments": json.dumps(arguments)}
        self.messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": id, "content": output},
        ]
        return self

    def read(self, text: str = "config", path: str = CONFIG, **more: Any) -> "Loop":
        return self.call("read_file", _text(text), file_path=path, **more)

    def edit(self, intent: str = "", path: str = CONFIG, output: str = "The file was edited.") -> "Loop":
        more = {"intent": intent} if intent else {}
        return self.call("edit_file", output, file_path=path, old_str=_text("old", 9), new_str=_text("new", 9), **more)

    def end(self) -> Messages:
        return [*self.messages, {"role": "assistant", "content": "All of it is done."}]


def _fit(messages: Messages, policy: str = "tool-retention", *, budget: int | None = None, **options: Any) -> Messages:
    """Fit the messages by a preset or by a policy with options. The input is unchanged."""
    before = json.dumps(messages)
    fitted: Messages = th.fit(messages, policy=make_policy(policy, **options) if options else policy, budget=budget)
    assert json.dumps(messages) == before
    return fitted


def _outputs(messages: Messages) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def _whole(messages: Messages, texts: Iterable[str]) -> list[int]:
    """Return the numbers of the outputs, from 1, that are one of these texts."""
    wanted = set(texts)
    return [number for number, text in enumerate(_outputs(messages), 1) if text in wanted]


def _reads(count: int, **options: Any) -> list[int]:
    loop = Loop()
    for _ in range(count):
        loop.read()
    return _whole(_fit(loop.end(), **options), [_text("config")])


# --- reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "kept"),
    [(1, [1]), (2, [1, 2]), (3, [1, 3]), (4, [1, 4]), (5, [1, 5])],
)
def test_the_first_and_the_last_read_of_a_file_stay(count: int, kept: list[int]) -> None:
    assert _reads(count) == kept


@pytest.mark.parametrize("count", [6, 7, 10, 20])
def test_from_six_reads_on_up_to_three_between_them_stay_evenly_spread(count: int) -> None:
    kept = _reads(count)
    gaps = [later - earlier for earlier, later in pairwise(kept)]
    assert (kept[0], kept[-1], len(kept)) == (1, count, 5)
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(("most", "kept"), [(1, [12]), (2, [1, 12]), (5, 5), (7, 7), (12, 12)])
def test_the_most_full_reads_of_a_file_are_an_option(most: int, kept: Any) -> None:
    found = _reads(12, policy="reads", max_file_reads=most)
    assert (found if isinstance(kept, list) else len(found)) == kept


def test_a_limit_of_no_reads_is_an_error() -> None:
    with pytest.raises(OptionError, match="max_file_reads"):
        _reads(3, policy="reads", max_file_reads=0)


def test_a_replaced_read_names_the_read_that_has_the_text() -> None:
    """On purpose, the placeholder has an id: it leads to the text, also if the other read is removed later."""
    fitted = _fit(Loop().read().read().read().end())
    placeholder = _outputs(fitted)[1]
    assert "re-read" in placeholder
    assert "same text as the read at turn 3" in placeholder
    assert placeholder.count("\n") == 0
    assert th.restore(re.findall(r"t1:\w+", placeholder)[0]) == _text("config")
    call = fitted[3]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"file_path": CONFIG}


def test_a_placeholder_does_not_refer_to_another_state_of_the_file() -> None:
    """On purpose: an edit between two reads makes "see the earlier read" wrong."""
    placeholder = _outputs(_fit(Loop().read("old").read("old").edit().read("new").end()))[1]
    assert "same text as the read at turn 1" in placeholder
    placeholder = _outputs(_fit(Loop().read("one").read("two").edit().read("three").end()))[1]
    assert "the file was edited at turn 3 since; read again at turn 4" in placeholder


def test_files_with_equal_names_in_two_folders_are_two_files() -> None:
    loop = Loop().read(path="/a/config.py").read(path="/b/config.py").read(path="/a/config.py")
    assert _whole(_fit(loop.end()), [_text("config")]) == [1, 2, 3]


@pytest.mark.parametrize("path", ["/work/core/./config.py", "/work/core/../core/config.py", "//work/core/config.py"])
def test_spellings_of_a_path_are_one_file(path: str) -> None:
    assert _whole(_fit(Loop().read().read(path=path).read().end()), [_text("config")]) == [1, 3]


def test_reads_of_other_lines_are_other_reads() -> None:
    loop = Loop().read("one", offset=1, limit=60).read("two", offset=61, limit=60).read("three", offset=121, limit=60)
    assert len(_whole(_fit(loop.end()), map(_text, ("one", "two", "three")))) == 3


def test_a_failed_read_is_no_read() -> None:
    loop = Loop().call("read_file", "Error: file not found", file_path=CONFIG).read().read()
    loop.call("read_file", "Error: permission denied", file_path=CONFIG)
    assert _whole(_fit(loop.end()), [_text("config")]) == [2, 3]


# --- edits ---------------------------------------------------------------------------------------------------


def test_edits_stay_as_they_are_between_repeated_reads() -> None:
    loop = Loop()
    for number in range(12):
        loop.read().edit(f"Change {number}")
    messages = loop.end()
    fitted = _fit(messages)
    edits = [message for message in messages if "edit_file" in json.dumps(message)]
    assert [message for message in fitted if "edit_file" in json.dumps(message)] == edits
    assert _outputs(fitted)[1::2] == ["The file was edited."] * 12


@pytest.mark.parametrize(("option", "is_kept"), [(None, False), (True, True)])
def test_all_edits_stay_if_the_user_says_so(option: bool | None, is_kept: bool) -> None:
    """On purpose, the default summarizes old edits from 41 edits on; the option keeps each."""
    loop = Loop()
    for number in range(50):
        loop.edit(f"Change {number}")
    messages = loop.end()
    assert (_fit(messages, policy="edit-history", keep_all_edits=option) == messages) == is_kept


def test_under_a_budget_reads_go_before_edits() -> None:
    loop = Loop()
    for number in range(8):
        loop.read(f"text {number}", f"/work/{number}.py").edit(f"Change {number}", f"/work/{number}.py")
    messages = loop.end()
    fitted = _fit(messages, budget=th.count(messages) // 2)
    assert len(_whole(fitted, (_text(f"text {number}") for number in range(8)))) < 8
    assert [m for m in fitted if "edit_file" in json.dumps(m)] == [m for m in messages if "edit_file" in json.dumps(m)]


def test_old_edits_of_a_file_become_a_list_of_their_intents() -> None:
    loop = Loop()
    for intent in ("Add the agent settings", "Modify the prompt", "Modify the prompt", "Modify the prompt"):
        loop.edit(intent)
    loop.edit("The newest change")
    fitted = _fit(loop.end(), policy="edit-history", keep_all_edits=False, keep_newest=1)
    text = json.dumps(fitted)
    assert "Edits to config.py: 4 changes, turns 1-4" in text
    assert "Add the agent settings" in text
    assert "Modify the prompt 3x" in text
    summary = next(part for part in re.findall(r"[a-z]1:\w+", text))
    assert _text("old", 9).splitlines()[0] in th.restore(summary)


EDIT_TOOL = {
    "type": "function",
    "function": {
        "name": "edit_file",
        "parameters": {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]},
    },
}


def test_edit_tools_can_ask_for_an_intent_which_is_optional() -> None:
    (tool,) = th.with_intent([EDIT_TOOL])
    schema = tool["function"]["parameters"]
    assert "intent" in schema["properties"]
    assert schema["required"] == ["file_path"]
    assert "intent" not in json.dumps(EDIT_TOOL)


def test_the_tool_does_not_see_the_intent() -> None:
    arguments = json.dumps({"file_path": CONFIG, "old_str": "a", "intent": "Rename it"})
    left = th.without_intent(arguments)
    assert (json.loads(left) if isinstance(left, str) else left) == {"file_path": CONFIG, "old_str": "a"}


# --- outputs -------------------------------------------------------------------------------------------------


def _bash(text: str, **options: Any) -> str:
    return _outputs(_fit(Loop().call("bash", text, command="npm test").end(), **options))[0]


@pytest.mark.parametrize("lines", [10, 30, 290])
def test_an_output_below_10000_characters_is_kept(lines: int) -> None:
    text = _text("line", lines)[:10_000]
    assert _bash(text) == text


def test_a_long_output_keeps_2000_characters_of_both_ends_and_states_its_size() -> None:
    text = _text("line", 600)
    kept = _bash(text)
    head, tail = kept.partition("\n[thresher")[0], kept.rpartition("]\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 1_800 <= len(head) <= 2_000
    assert 1_800 <= len(tail) <= 2_000
    assert f"{len(text):,} chars, 600 lines in total" in kept


def test_the_limit_of_an_output_is_an_option() -> None:
    text = _text("line", 200)
    assert len(_bash(text, policy="output", truncate_above=3_000)) < 3_000 < len(text)


def test_a_medium_output_is_shortened_only_under_pressure() -> None:
    text = _text("line", 200)
    assert 1_000 < len(text) < 10_000
    assert _bash(text) == text
    assert len(_bash(text, policy="output", pressure=True)) < 2_500


def test_other_tools_stay_whole() -> None:
    text = _text("row", 600)
    assert _outputs(_fit(Loop().call("query_database", text, sql="SELECT 1").end())) == [text]


@pytest.mark.parametrize("tool", ["ls", "focus", "unfocus", "glob"])
def test_of_light_tools_only_the_newest_result_stays(tool: str) -> None:
    loop = Loop()
    for number in range(4):
        loop.call(tool, _text(f"entry {number}"), path=f"/work/{number}")
    assert _whole(_fit(loop.end()), (_text(f"entry {number}") for number in range(4))) == [4]


def test_a_typical_session_loses_about_half_and_nothing_for_good() -> None:
    loop = Loop()
    for number in range(6):
        loop.read().edit(f"Change {number}").call("bash", _text(f"test {number}", 400), command="make test")
    messages = loop.end()
    fitted = _fit(messages)
    assert 0.3 <= th.count(fitted) / th.count(messages) <= 0.7
    assert [message["role"] for message in fitted] == [message["role"] for message in messages]
    for old, new in zip(_outputs(messages), _outputs(fitted), strict=True):
        assert old == new or th.restore(re.findall(r"t1:\w+", new)[0]) == old


# --- what happened to a file ---------------------------------------------------------------------------------


def _session(folder: Path) -> Path:
    """Write a session that writes, edits and moves files, and has a failed edit."""
    write = {"file_path": CONFIG, "content": "limit = 30\n"}
    raised = {"file_path": CONFIG, "old_string": "30", "new_string": "50", "intent": "Keep more results"}
    named = {"file_path": CONFIG, "old_string": "limit", "new_string": "most", "intent": "Name the limit"}
    chat = Chat(1, project="/work").asks("Please set up the configuration.")
    chat.calls("Write", "w", **write).returns("w", f"File created successfully at: {CONFIG}")
    chat.calls("Edit", "e1", **raised).returns("e1", f"The file {CONFIG} has been updated.")
    chat.calls("Edit", "e2", **named, replace_all=True).returns("e2", f"The file {CONFIG} has been updated.")
    chat.calls("Edit", "e3", file_path=CONFIG, old_string="nothing", new_string="x")
    chat.returns("e3", "String to replace not found in file.", failed=True)
    chat.runs("mv core/config.py core/settings.py", "").says("It is done.")
    return chat.write(folder)


@pytest.mark.parametrize(
    ("turn", "text"), [(1, "limit = 30\n"), (2, "limit = 50\n"), (3, "most = 50\n"), (4, "most = 50\n")]
)
def test_the_text_of_a_file_is_known_after_every_turn(tmp_path: Path, turn: int, text: str) -> None:
    state = Timeline(th.read(_session(tmp_path))).file_state_at("config.py", turn=turn)
    assert (state.text, state.exact) == (text, True)


def test_a_moved_file_continues_under_its_new_name(tmp_path: Path) -> None:
    timeline = Timeline(th.read(_session(tmp_path)))
    assert timeline.file_state_at("settings.py", turn=5).text == "most = 50\n"
    assert timeline.file_state_at("config.py", turn=5).text is None


def test_a_history_without_a_session_is_enough(tmp_path: Path) -> None:
    history = th.read(_session(tmp_path)).history
    assert Timeline(history).file_state_at(CONFIG, turn=2).text == "limit = 50\n"


def test_an_unknown_text_has_its_gaps_instead_of_a_guess() -> None:
    messages = Loop().call("bash", "", command="sed -i s/a/b/ config.py").end()
    state = Timeline(th.parse(messages)).file_state_at("config.py", turn=1)
    assert (state.text, state.exact) == (None, False)
    assert state.gaps


def test_a_changelog_lists_the_intents_of_the_changes_per_file(tmp_path: Path) -> None:
    log = build_changelog([th.read(_session(tmp_path))])
    reasons = {file.path: [entry.why for entry in file.entries] for file in log.files}
    assert reasons["core/config.py"][1:3] == ["Keep more results", "Name the limit"]
    printed = run("changelog", str(_session(tmp_path))).output
    assert printed.index("Keep more results") < printed.index("Name the limit")


def test_a_failed_edit_is_in_the_history_and_not_in_the_changelog(tmp_path: Path) -> None:
    session = th.read(_session(tmp_path))
    assert [event.failed for event in Timeline(session).events(CONFIG)][:4] == [False, False, False, True]
    (file,) = build_changelog([session]).files
    assert 4 not in [entry.turn for entry in file.entries]


def test_the_command_line_lists_files_and_shows_a_state_and_a_diff(tmp_path: Path) -> None:
    path = str(_session(tmp_path))
    assert CONFIG in [file["path"] for file in run_json("files", path)["files"]]
    assert run("files", path, CONFIG, "--at", "2").output.strip().endswith("limit = 50")
    assert "+most = 50" in run("files", path, CONFIG, "--diff", "--at", "3").output


def test_a_file_on_disk_is_neither_opened_nor_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.py").write_text("on disk")
    timeline = Timeline(th.parse(Loop().read("in the session", "config.py").end()))
    assert timeline.file_state_at("config.py", turn=1).text == _text("in the session") + "\n"
    assert (tmp_path / "config.py").read_text() == "on disk"
