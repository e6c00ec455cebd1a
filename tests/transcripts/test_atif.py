"""Tests of the `atif` format beyond its fixture: sub-agent files, images, unnamed results and malformed documents."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Image, Summary, Text, ToolResult, Unknown
from thresher.transcripts.atif.reader import find_atif_homes

Json = dict[str, Any]


def step(source: str, message: Any = "", **fields: Any) -> Json:
    return {"step_id": 1, "source": source, "message": message} | fields


def called(*ids: Any, results: list[Any] | None = None, **fields: Any) -> Json:
    calls = [{"tool_call_id": id_, "function_name": "bash", "arguments": {"command": "ls"}} for id_ in ids]
    return step("agent", "Run.", tool_calls=calls, observation={"results": results or []}, **fields)


def result(content: Any, id_: Any = None, **fields: Any) -> Json:
    return {"source_call_id": id_, "content": content} | fields


def document(*steps: Any, **fields: Any) -> Json:
    return {"schema_version": "ATIF-v1.7", "session_id": "s1", "agent": {"name": "a"}, "steps": list(steps)} | fields


def read(folder: Path, *steps: Any, name: str = "trajectory.json", **fields: Any) -> th.Session:
    path = folder / name
    path.write_text(json.dumps(document(*steps, **fields)))
    assert th.sniff(path) == "atif"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def answers(session: th.Session) -> dict[str, str]:
    return {result.call_id: result.text for message in session.messages() for result in message.results}


def problem_texts(session: th.Session) -> list[str]:
    return [problem.what for problem in session.problems]


def test_unnamed_results_answer_the_last_open_calls(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        called("a", "b", results=[result("all of it")]),
        called("c", "d", results=[result("of d", "d"), result("of c")]),
        called("e", results=[result("of e", "e"), result("and the screen")]),
        step("agent", "No tools.", observation={"results": [result("the screen")]}),
    )
    assert answers(session) == {"a": "", "b": "all of it", "c": "of c", "d": "of d", "e": "of e"}
    loose = [(one.author, one.text) for one in session.history if one.role == "user"]
    assert loose == [("tool", "and the screen"), ("tool", "the screen")]
    assert session.history.orphans == ()


def test_two_results_of_one_call_are_merged(tmp_path: Path) -> None:
    session = read(tmp_path, called("a", results=[result("one", "a"), result("two", "a", extra={"is_error": True})]))
    [found] = [found for one in session.history for found in one.results]
    assert found == ToolResult("a", (Text("one"), Text("two")), is_error=True, name="bash")


def test_calls_with_the_same_id_get_unique_ids(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        called("x", results=[result("one", "x")]),
        called("x", "x", None, results=[result("two", "x"), result("three"), result("four")]),
    )
    assert [call.id for one in session.history for call in one.calls] == ["x", "call-2-1", "call-2-2", "call-2-3"]
    assert answers(session) == {"x": "one", "call-2-1": "two", "call-2-2": "three", "call-2-3": "four"}


def test_a_step_can_mark_its_only_call_as_failed(tmp_path: Path) -> None:
    extra = {"tool_result_is_error": True}
    alone = called("a", results=[result("no", "a")], extra=extra)
    both = called("b", "c", results=[result("x", "b"), result("y", "c")], extra=extra)
    session = read(tmp_path, alone, both)
    assert [found.is_error for one in session.history for found in one.results] == [True, False, False]


OLD_NOTICE = "Performed context summarization and handoff to continue task."


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"context_management": {"type": "compaction", "boundary": "replace"}}, "Compacted."),
        ({"context_management": {"type": "compaction"}}, "Compacted."),
        (None, OLD_NOTICE),
    ],
)
def test_the_next_user_step_can_be_the_summary(tmp_path: Path, extra: Any, message: str) -> None:
    session = read(
        tmp_path,
        step("user", "Fix it."),
        called("a", results=[result("x", "a")]),
        step("system", message, extra=extra, observation={"results": [{"subagent_trajectory_ref": []}]}),
        step("user", "So far: nothing."),
        step("agent", "On with it."),
    )
    assert session.compactions == 1
    assert session.history[0].parts == (Summary("So far: nothing."),)
    assert [one.text for one in session.history] == ["So far: nothing.", "On with it."]


@pytest.mark.parametrize("boundary", ["append", "truncate", "whim"])
def test_other_context_changes_start_no_segment(tmp_path: Path, boundary: str) -> None:
    extra = {"context_management": {"type": "injection", "boundary": boundary}}
    facts = {"results": [result("A fact.")]}
    session = read(
        tmp_path, step("user", "Go."), step("agent", "Yes."), step("system", "Note.", extra=extra, observation=facts)
    )
    assert session.compactions == 0
    assert [(one.author, one.text) for one in session.history][2:] == [("harness", "Note."), ("harness", "A fact.")]


def test_runs_in_files_next_to_the_run_are_children(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    inner = document(step("user", "Count."), step("agent", "Three."), session_id="s2")
    (tmp_path / "sub" / "count.json").write_text(json.dumps(inner))
    outside = tmp_path.parent / "outside.json"
    outside.write_text(json.dumps(inner))
    refs = [
        {"session_id": "s2", "trajectory_path": "sub/count.json"},
        {"session_id": "s2", "trajectory_path": "./sub/../sub/count.json"},
        {"trajectory_path": "../outside.json"},
        {"trajectory_path": str(outside)},
        {"trajectory_path": "trajectory.json"},
        {"trajectory_path": "s3://somewhere/else.json"},
        {"trajectory_id": "gone"},
    ]
    session = read(tmp_path, called("a", results=[result("3", "a", subagent_trajectory_ref=refs)]))
    [child] = session.children
    assert (child.id, child.parent, child.call_id) == ("s2", "s1", "a")
    assert child.file == str(tmp_path / "sub" / "count.json")
    assert child.history[0].author == "model"
    assert problem_texts(session) == ["4 sub-agent runs are not in the file or its folder"]


def test_runs_that_reference_each_other_are_read_once(tmp_path: Path) -> None:
    for name, other in (("trajectory.json", "b.json"), ("b.json", "trajectory.json")):
        refs = [{"trajectory_path": other}, {"trajectory_path": name}]
        called_once = called("a", results=[result("x", "a", subagent_trajectory_ref=refs)])
        (tmp_path / name).write_text(json.dumps(document(called_once)))
    session = th.read(tmp_path / "trajectory.json")
    assert isinstance(session, th.Session)
    assert [(child.file, child.children) for child in session.children] == [(str(tmp_path / "b.json"), ())]


def test_the_nesting_of_sub_agents_is_limited(tmp_path: Path) -> None:
    inner = document(step("user", "Deep."), trajectory_id="t0")
    for n in range(1, 20):
        inner = document(step("user", "Down."), trajectory_id=f"t{n}", subagent_trajectories=[inner])
    session = read(tmp_path, subagent_trajectories=[inner, 5, {}])
    depth, one = 0, session
    while one.children:
        depth, one = depth + 1, one.children[0]
    assert depth == 8
    assert len(problem_texts(session)) == 3


def test_images_next_to_the_run_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"picture")
    (tmp_path.parent / "secret.png").write_bytes(b"secret")

    def picture(path: str) -> Json:
        return {"type": "image", "source": {"media_type": "image/png", "path": path}}

    (tmp_path / "id_rsa").write_bytes(b"secret")
    (tmp_path / "link.png").symlink_to(tmp_path / "id_rsa")
    for path in ("id_rsa", "link.png"):
        assert read(tmp_path, step("user", [picture(path)])).history[0].parts == (Image("image/png", url=path),)
    paths = ("images/a.png", "images/a.png", "../secret.png", "https://example.org/b.png", "data:image/png;base64,aGk=")
    session = read(tmp_path, step("user", [*map(picture, paths), {"type": "sound"}, 4, "plain"]))
    data = base64.b64encode(b"picture").decode()
    assert session.history[0].parts == (
        Image("image/png", data),
        Image("image/png", data),
        Image("image/png", url="../secret.png"),
        Image("image/png", url="https://example.org/b.png"),
        Image("image/png", "aGk="),
        Unknown("sound", '{"type":"sound"}'),
        Unknown("", "4"),
        Text("plain"),
    )
    assert session.files == (str(tmp_path / "images" / "a.png"),)


def test_a_sub_agents_prompt_can_follow_a_reminder(tmp_path: Path) -> None:
    steps = [step("user", "<system-reminder>\nBe brief.\n</system-reminder>"), step("user", "Count.")]
    inner = {"trajectory_id": "t", "agent": {"name": "b", "version": "1"}, "steps": steps}
    session = read(tmp_path, step("user", "Go."), subagent_trajectories=[inner])
    assert [one.author for one in session.children[0].history] == ["harness", "model"]


@pytest.mark.parametrize(("id_", "parent"), [("a-cont-1", "a"), ("a-cont-3", "a-cont-2"), ("a", ""), ("-cont-1", "")])
def test_a_continued_run_has_its_parent_in_its_name(tmp_path: Path, id_: str, parent: str) -> None:
    assert read(tmp_path, step("user", "Go."), session_id=id_).parent == parent


def test_scripted_steps_have_the_harness_as_author(tmp_path: Path) -> None:
    session = read(tmp_path, step("agent", "Dispatch.", llm_call_count=0, model_name="m"), step("oracle", "Beware."))
    assert [(one.author, one.model, one.usage) for one in session.history] == [("harness", "", None)] * 2
    assert session.records == {"agent": 1, "oracle": 1}


def test_malformed_steps_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    session = read(tmp_path, None, 3, step("user", "Hi."), step("agent", {"a": 1}, observation=[], tool_calls=7))
    assert [problem.line for problem in session.problems] == [1, 2]
    assert [one.parts for one in session.history] == [(Text("Hi."),), (Unknown("", '{"a":1}'),)]


def test_a_document_without_steps_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text('{"schema_version": "ATIF-v1.7", "agent": {"name": "a"}}')
    with pytest.raises(th.ThresherError, match="ATIF"):
        th.read(path, format="atif")


@pytest.mark.parametrize(
    "value",
    [
        {"steps": [{"name": "build", "run": "make"}], "agent": {"name": "ci"}},
        {"steps": [{"step_id": 1, "source": "user", "message": "Hi."}]},
        {"schema_version": "1.4", "steps": []},
        [{"step_id": 1, "source": "user", "message": "Hi."}],
    ],
)
def test_other_documents_are_not_detected_as_atif(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(value))
    assert th.sniff(path) != "atif"


def test_a_document_without_a_version_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"agent": {"name": "a"}, "steps": [step("user", "Hi.")]}))
    assert th.sniff(path) == "atif"


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {}, "home/.local/share"),
        ("darwin", {"XDG_DATA_HOME": "data"}, "data"),
        ("win32", {}, "home/AppData/Local"),
        ("win32", {"LOCALAPPDATA": "local"}, "local"),
    ],
)
def test_homes_include_devins_folder(platform: str, environment: dict[str, str], folder: str) -> None:
    [home] = find_atif_homes(environment, Path("home"), platform)
    assert (home.folder, home.pattern) == (Path(folder, "devin", "cli", "transcripts"), "*.json")


def test_every_recording_is_read(shared_data: Path) -> None:
    """Compare with the index, which counts each file of this format as one message without calls.

    A step is a message, and each of its results is one more. In the second file the step that compacts and the step
    after it are one message: the summary.
    """
    found = {}
    for row, (session,) in recordings.indexed(shared_data, "atif"):
        assert (session.agent, row["sessions"], row["msgs"], row["calls"]) == ("atif", 1, 1, 0)
        messages = list(session.messages())
        calls = sum(len(list(one.calls)) for one in messages)
        assert calls == sum(len(list(one.results)) for one in messages)
        assert session.history.orphans == ()
        found[session.title.partition(":")[0]] = (sum(session.records.values()), len(messages), calls)
    assert found == {"claude-code": (40, 40 + 46, 46), "terminus-2": (10, 10 - 1 + 7, 7)}
