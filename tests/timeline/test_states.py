"""File states after each turn, and the gaps that they report."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from talks import PROJECT, START, Talk

from thresher.errors import OptionError
from thresher.model import History, Message, Session
from thresher.timeline import FileEvent, Timeline

A = f"{PROJECT}/a.py"


def state(talk: Talk, path: str = "a.py", turn: int | None = None) -> tuple[str | None, bool, tuple[str, ...]]:
    found = Timeline(talk.session()).file_state_at(path, turn=turn)
    return found.text, found.exact, found.gaps


def test_write_and_edits_give_the_text_after_every_turn() -> None:
    talk = Talk()
    talk.write(A, "one\ntwo\n")
    talk.edit(A, "two", "three")
    talk.call("MultiEdit", {"file_path": A, "edits": [
        {"old_string": "one", "new_string": "1"}, {"old_string": "1\nthree", "new_string": "1\n3"}]})  # fmt: skip
    assert [state(talk, turn=turn)[:2] for turn in (0, 1, 2, 3)] == [
        (None, False), ("one\ntwo\n", True), ("one\nthree\n", True), ("1\n3\n", True),
    ]  # fmt: skip


def test_nothing_is_known_before_the_first_read() -> None:
    talk = Talk()
    talk.bash("ls")
    talk.read(A, "one\n")
    assert state(talk, turn=1) == (None, False, ("its text is unknown up to turn 1",))


def test_failed_edit_changes_nothing_and_is_listed() -> None:
    talk = Talk()
    talk.write(A, "one\n")
    talk.call("Edit", {"file_path": A, "old_string": "one", "new_string": "two"}, "no", error=True)
    assert state(talk)[:2] == ("one\n", True)
    assert [event.failed for event in Timeline(talk.session()).events("a.py")] == [False, True]


def test_edit_without_a_result_is_uncertain() -> None:
    talk = Talk()
    talk.write(A, "one\n")
    talk.call("Edit", {"file_path": A, "old_string": "one", "new_string": "two"}, None)
    text, exact, gaps = state(talk)
    assert (text, exact) == ("one\n", False)
    assert gaps == ("turn 2: a change without a result",)


def test_differing_read_reports_the_turns_of_the_outside_change() -> None:
    talk = Talk()
    talk.write(A, "one\ntwo\n")
    talk.bash("ls")
    talk.read(A, "one\nTWO\n")
    timeline = Timeline(talk.session())
    gap = "changed outside the session between turn 1 and 3: turn 3 shows other lines"
    assert timeline.file_state_at(A, turn=2).gaps == (gap,)
    assert timeline.file_state_at(A, turn=3).exact
    assert timeline.file_state_at(A, turn=3).text == "one\nTWO\n"


def test_partial_read_confirms_or_replaces_known_lines() -> None:
    talk = Talk()
    talk.write(A, "1\n2\n3\n4\n")
    talk.read(A, "2\n3", 2, offset=2, limit=2)
    assert state(talk)[:2] == ("1\n2\n3\n4\n", True)
    talk.read(A, "2\nX", 2, offset=2, limit=2)
    text, exact, gaps = state(talk)
    assert (text, exact) == ("1\n2\n3\n4\n", False)
    assert gaps[0].startswith("changed outside the session between turn 2 and 3")


def test_consecutive_partial_reads_form_the_whole_text() -> None:
    talk = Talk()
    talk.read(A, "1\n2", 1, limit=2)
    assert state(talk) == (
        "1\n2\n[… text after line 2 unknown …]\n",
        False,
        ("text after line 2 never shown",),
    )
    talk.read(A, "5\n6\n", 5, offset=5, limit=9)
    assert state(talk)[2] == ("lines 3-4 never shown",)
    talk.read(A, "3\n4", 3, offset=3, limit=2)
    assert state(talk)[:2] == ("1\n2\n3\n4\n5\n6\n", True)


def test_edit_of_unknown_lines_shifts_later_lines() -> None:
    talk = Talk()
    talk.read(A, "1\n2", 1, limit=2)
    talk.read(A, "9", 9, offset=9, limit=1)
    talk.edit(A, "unseen", "unseen\nmore")
    assert state(talk)[2] == ("text after line 2 never shown",)


def test_edit_with_a_missing_old_text_is_a_gap_until_the_next_whole_read() -> None:
    talk = Talk()
    talk.write(A, "one\n")
    talk.edit(A, "two", "three")
    assert "the text that turn 2 replaces is not in the known text" in state(talk)[2][0]
    talk.read(A, "zero\nthree\n")
    assert state(talk)[:2] == ("zero\nthree\n", True)
    assert not Timeline(talk.session()).file_state_at(A, turn=1).exact


def test_all_matches_are_replaced_only_on_request() -> None:
    talk = Talk()
    talk.write(A, "x\nx\n")
    talk.edit(A, "x", "y", replace_all=True)
    assert state(talk)[:2] == ("y\ny\n", True)
    talk.edit(A, "y", "z")
    assert "more than once" in state(talk)[2][0]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("str_replace_editor", {"command": "insert", "path": A, "insert_line": 1, "new_str": "x"}, "1\nx\n2\n3\n"),
        ("edit", {"path": A, "edits": [{"oldText": "2", "newText": "b"}]}, "1\nb\n3\n"),
        ("replace_in_file", {"path": A, "diff": "<<<<<<< SEARCH\n2\n=======\nb\n>>>>>>> REPLACE\n"}, "1\nb\n3\n"),
        ("append_file", {"path": A, "content": "4\n"}, "1\n2\n3\n4\n"),
        ("apply_patch", f"*** Begin Patch\n*** Update File: {A}\n@@\n 1\n-2\n+b\n*** End Patch", "1\nb\n3\n"),
        ("apply_patch", "*** Begin Patch\n*** Update File: a.py\n@@ 2\n+x\n*** End Patch", "1\n2\n3\nx\n"),
        ("apply_patch", {"patchText": f"*** Begin Patch\n*** Add File: {A}\n+new\n*** End Patch"}, "new\n"),
        ("bash", {"command": f"apply_patch <<'E'\n*** Begin Patch\n*** Update File: {A}\n@@\n-3\n+c\n*** End Patch\nE"},
         "1\n2\nc\n"),
        ("bash", {"command": f"cat > {A} <<'EOF'\nx > y\n$HOME\nEOF"}, "x > y\n$HOME\n"),
        ("bash", {"command": "cd /home/sam/shop && cat >> a.py << EOF\n4\nEOF"}, "1\n2\n3\n4\n"),
        ("bash", {"command": "echo 'four' > a.py"}, "four\n"),
        ("bash", {"command": "tee a.py <<'EOF' >/dev/null\nt\nEOF"}, "t\n"),
        ("shell", {"command": ["bash", "-lc", "printf hi; cp a.py b.py"]}, "1\n2\n3\n"),
    ],
)  # fmt: skip
def test_every_kind_of_edit_is_applied(name: str, arguments: Any, text: str) -> None:
    talk = Talk()
    talk.write(A, "1\n2\n3\n")
    talk.call(name, arguments)
    assert state(talk)[:2] == (text, True)


@pytest.mark.parametrize(
    "command",
    [
        "sed -i 's/1/2/' a.py",
        "cd /home/sam/shop; sed -i.bak -e s/a/b/ *.py",
        "prettier --write a.py",
        "npx prettier --write .",
        "git checkout -- a.py",
        "git checkout main",
        "git stash && git pull",
        "python - <<'PY'\nopen('a.py', 'w').write('x')\nPY",
        "./fix-imports a.py",
        "make format",
        "cat <<EOF > a.py\n$HOME\nEOF",
        "sort b.py > a.py",
        'for f in *.py; do mv "$f" "$f.bak"; done',
        "rm a.py || true; false",
        "git rm a.py",
        "find . -name '*.py' -delete",
    ],
)
def test_command_that_may_write_a_file_is_a_gap(command: str) -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.bash(command, "failed" if "false" in command else "", error="false" in command)
    found = Timeline(talk.session()).file_state_at(A)
    assert not found.exact or found.text is None
    assert found.text is None or any(gap.startswith("turn 2") for gap in found.gaps)


@pytest.mark.parametrize(
    "command",
    [
        "cat a.py | head -3",
        "grep -n x a.py > /dev/null 2>&1",
        "python -m pytest tests/test_a.py a.py",
        "git add a.py && git commit -m 'rewrite a.py > b'",
        "git diff a.py",
        "git checkout -b topic",
        "npm test -- a.py",
        "python -c 'print(1)'",
        'git commit -m "$(cat <<\'EOF\'\nsay "x" > a.py\nEOF\n)"',
        "go test ./... # > a.py",
    ],
)
def test_read_only_command_keeps_a_file_known(command: str) -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.bash(command)
    assert state(talk)[:2] == ("1\n", True)


def test_writing_script_makes_the_files_it_names_uncertain() -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.write(f"{PROJECT}/b.py", "1\n")
    talk.bash("cat > fix.py <<'EOF'\nopen('a.py', 'w').write('2')\nEOF\npython fix.py")
    assert not state(talk)[1]
    assert state(talk, "b.py")[1]


@pytest.mark.parametrize(
    ("command", "to"),
    [
        ("git mv a.py lib.py", "lib.py"),
        ("mv a.py pkg/", "pkg/a.py"),
        ("cd .. && mv shop/a.py shop/b.py shop/pkg", "pkg/a.py"),
        ("mv *.py pkg/", "pkg/a.py"),
    ],
)
def test_moved_file_keeps_its_text(command: str, to: str) -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.bash(command)
    talk.edit(f"{PROJECT}/{to}", "1", "2")
    timeline = Timeline(talk.session())
    assert timeline.file_state_at(to).text == "2\n"
    assert timeline.file_state_at(to, turn=2).text == "1\n"
    gone = timeline.file_state_at("./a.py")
    assert (gone.text, gone.exact, gone.gaps) == (None, True, ())
    assert timeline.diff(to) == f"--- a/{to}\n+++ b/{to}\n@@ -1 +1 @@\n-1\n+2\n"


def test_folders_are_moved_and_removed_with_their_files() -> None:
    talk = Talk()
    talk.write(f"{PROJECT}/old/x.py", "x\n")
    talk.write(f"{PROJECT}/old/deep/y.py", "y\n")
    talk.bash("mv old new")
    assert state(talk, "new/deep/y.py")[:2] == ("y\n", True)
    talk.bash("rm -rf new")
    assert state(talk, "new/x.py") == (None, True, ())


def test_patches_delete_and_move_files() -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.write(f"{PROJECT}/b.py", "2\n")
    moved = "*** Update File: b.py\n*** Move to: c.py\n@@\n-2\n+3\n"
    talk.call("apply_patch", f"*** Begin Patch\n*** Delete File: a.py\n{moved}*** End Patch")
    assert state(talk) == (None, True, ())
    assert state(talk, "c.py")[:2] == ("3\n", True)
    assert [event.operation for event in Timeline(talk.session()).events()][2:] == ["delete", "edit", "move"]


def test_path_suffix_is_enough_and_ambiguous_ones_are_listed() -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.write(f"{PROJECT}/sub/a.py", "2\n")
    timeline = Timeline(talk.session())
    assert timeline.file_state_at("sub/a.py").text == "2\n"
    assert timeline.file_state_at("./a.py").text == "1\n"
    with pytest.raises(OptionError, match=r"matches 2 files: `/home/sam/shop/a\.py`, `/home/sam/shop/sub/a\.py`"):
        timeline.file_state_at("a.py")
    with pytest.raises(OptionError, match=r"touched no file `b\.py`"):
        timeline.events("b.py")


def test_relative_and_full_paths_are_one_file() -> None:
    talk = Talk()
    talk.write("a.py", "1\n")
    talk.edit(A, "1", "2")
    assert [one.path for one in Timeline(talk.session()).files()] == [A]
    nowhere = Talk(project="")
    nowhere.write("/x/a.py", "1\n")
    nowhere.edit("a.py", "1", "2")
    assert state(nowhere, "/x/a.py")[0] == "2\n"


def test_file_activity_is_counted() -> None:
    talk = Talk()
    talk.write(A, "1\n2\n")
    talk.edit(A, "1", "one")
    talk.read(A, "one\n2\n")
    talk.bash("rm a.py")
    (facts,) = Timeline(talk.session()).files()
    assert (facts.reads, facts.edits, facts.writes, facts.first, facts.last) == (1, 1, 1, 1, 4)
    assert facts.deleted
    assert facts.exact


def test_reasons_are_intents_or_the_preceding_text() -> None:
    talk = Talk()
    talk.call("Write", {"file_path": A, "content": "1\n", "intent": "Start the shop"})
    talk.call("Edit", {"file_path": A, "old_string": "1", "new_string": "2"}, say="All is read.\n\nNow I fix the sum:")
    talk.edit(A, "2", "3")
    talk.say("Another thing.")
    talk.edit(A, "3", "4")
    events = Timeline(talk.session()).events()
    assert [event.why for event in events] == ["Start the shop", "Now I fix the sum", "Now I fix the sum", ""]
    assert [(event.added, event.removed) for event in events] == [(1, 0), (1, 1), (1, 1), (1, 1)]


def test_events_repeated_by_a_compaction_are_counted_once() -> None:
    talk = Talk()
    talk.write(A, "1\n")
    first = talk.session()
    talk.edit(A, "1", "2")
    again = tuple(structs.replace(message, carried=True) for message in first.history)
    session = structs.replace(first, segments=(first.history, History((*again, *talk.messages[3:]))))
    events = Timeline(session).events()
    assert [(event.operation, event.turn, event.message) for event in events] == [("write", 1, 1), ("edit", 2, 6)]
    assert Timeline(session).file_state_at("a.py").text == "2\n"


def child(talk: Talk, minutes: float, **more: Any) -> Session:
    """Build a sub-agent whose messages start at that minute."""
    messages = [later(message, minutes) for message in talk.messages]
    return structs.replace(talk.session(id="kid", **more), segments=(History(tuple(messages)),))


def later(message: Message, minutes: float) -> Message:
    passed = (message.time - START) / 60 if message.time else timedelta()
    return structs.replace(message, time=START + timedelta(minutes=minutes) + passed)


def without_time(message: Message) -> Message:
    return structs.replace(message, time=None)


def test_sub_agent_steps_are_placed_by_time() -> None:
    helper = Talk()
    helper.edit(A, "1", "2")
    talk = Talk()
    talk.write(A, "1\n")
    talk.call("Task", {"description": "help", "prompt": "p"})
    talk.edit(A, "2", "3")
    session = talk.session(children=(child(helper, 2.1, call_id="call_2"),))
    timeline = Timeline(session)
    assert [(event.turn, event.agent) for event in timeline.events()] == [(1, ""), (2, "kid"), (3, "")]
    assert [timeline.file_state_at("a.py", turn=turn).text for turn in (1, 2, 3)] == ["1\n", "2\n", "3\n"]
    timeless = structs.replace(
        session, children=(structs.replace(session.children[0], segments=(helper.session().history,)),)
    )
    assert Timeline(timeless).file_state_at("a.py").text == "3\n"


def test_diff_starts_with_the_first_known_text() -> None:
    talk = Talk()
    talk.read(A, "1\n2\n")
    talk.edit(A, "1", "one")
    talk.edit(A, "2", "two")
    timeline = Timeline(talk.session())
    assert timeline.diff("a.py") == "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-1\n-2\n+one\n+two\n"
    assert timeline.diff("a.py", since=2).count("\n-") == 1
    assert timeline.diff("a.py", until=1) == ""
    new = Talk()
    new.write(A, "x")
    assert (
        Timeline(new.session()).diff("a.py").startswith("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x\n\\ No newline")
    )


def test_malformed_calls_are_tolerated() -> None:
    talk = Talk()
    for arguments in ("", "{", "[]", '{"file_path": 3}', '{"file_path": "\\u0000\\u001b[31mx", "content": "y"}'):
        for name in ("Write", "Edit", "Read", "Bash", "apply_patch", "mv"):
            talk.call(name, arguments)
    talk.bash("'\"`$(${ <<EOF >>> ;; && || \\")
    talk.call("apply_patch", "*** Begin Patch\n*** Update File: \n@@\n*** End of File\n*** Move to: \n")
    talk.call("Edit", {"file_path": A, "edits": [1, None, {"old_string": 4}]})
    timeline = Timeline(talk.session())
    assert all(isinstance(event, FileEvent) for event in timeline.events())
    assert all(timeline.file_state_at(one.path).path == one.path for one in timeline.files())


def test_no_file_is_opened(tmp_path: Path) -> None:
    secret = tmp_path / "a.py"
    secret.write_text("on disk")
    talk = Talk(project=str(tmp_path))
    talk.edit(str(secret), "x", "y")
    talk.bash(f"cat {secret} > {tmp_path}/b.py; rm {secret}")
    timeline = Timeline(talk.session())
    assert "on disk" not in repr([timeline.file_state_at(one.path) for one in timeline.files()])
    assert secret.read_text() == "on disk"
    assert not (tmp_path / "b.py").exists()


def test_long_sessions_take_linear_time() -> None:
    talk = Talk()
    text = "".join(f"line {number}\n" for number in range(200))
    talk.write(A, text)
    for number in range(3000):
        talk.edit(A, f"line {number % 200}\n", f"line {number % 200}\n")
        talk.bash("git pull") if number % 3 == 0 else None
    assert len(Timeline(talk.session()).events()) == 3001


def test_copy_is_a_write_of_its_target() -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.bash("cp a.py b.py")
    talk.edit(A, "1", "2")
    timeline = Timeline(talk.session())
    assert timeline.file_state_at("b.py").text == "1\n"
    assert [event.operation for event in timeline.events("b.py")] == ["write"]
    assert [event.operation for event in timeline.events("a.py")] == ["write", "edit"]


@pytest.mark.parametrize(
    "command",
    [
        "$(" * 40_000,
        '"$(cat <<E\n' * 8_000,
        "open(" * 16_000,
        "." * 90_000,
        "'" * 90_001,
        "> a " * 20_000,
        "`$(" * 30_000,
    ],
)
def test_malicious_commands_do_not_take_long(command: str) -> None:
    talk = Talk()
    talk.write(A, "1\n")
    talk.bash(f"python -c '{command}'")
    talk.bash(command)
    assert Timeline(talk.session()).files()


def test_import_does_not_load_rendering() -> None:
    code = "import sys, thresher.timeline; print(*({'rich', 'click', 'tantivy', 'platformdirs'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
