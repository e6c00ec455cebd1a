"""XML calls in a model's text and results in user messages: their bounds, and the authors of other text."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from thresher.model import Image, Part, Text, Thinking, ToolCall, ToolResult, part_text
from thresher.model.tool_calls import describe_tool_call
from thresher.transcripts.xml_calls import XML_TOOL_NAMES, parse_result_header, sort_xml_answers, split_xml_calls

MEGABYTE = 1_000_000


def ids() -> Iterator[str]:
    return (f"c{number}" for number in count(1))


def split(text: str) -> list[Part]:
    return split_xml_calls(text, ids())


def call(text: str) -> tuple[str, dict[str, Any]]:
    [part] = split(text)
    assert isinstance(part, ToolCall)
    return part.name, json.loads(part.arguments)


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(f"c{number}", name, "{}") for number, name in enumerate(names, 1)]


READ = "<read_file>\n<path>a.py</path>\n</read_file>"


def test_text_thinking_and_calls_stay_in_order() -> None:
    parts = split(f"<thinking>Hm, <b>.</thinking>\nFirst.\n\n{READ}\n\nThen.\n{READ}\n[Response interrupted]")
    assert parts == [
        Thinking("Hm, <b>."),
        Text("First."),
        ToolCall("c1", "read_file", '{"path":"a.py"}'),
        Text("Then."),
        ToolCall("c2", "read_file", '{"path":"a.py"}'),
        Text("[Response interrupted]"),
    ]


CALLS: dict[str, tuple[str, tuple[str, dict[str, Any]]]] = {
    "one line": ("<read_file><path>a.py</path></read_file>", ("read_file", {"path": "a.py"})),
    "indented": ("  <read_file>\n  <path>a.py</path>\n  </read_file>", ("read_file", {"path": "a.py"})),
    "text with tags": (
        "<write_to_file>\n<path>a.html</path>\n<content>\n<p>x < y</p>\n<path>\n</content>\n</write_to_file>",
        ("write_to_file", {"path": "a.html", "content": "<p>x < y</p>\n<path>"}),
    ),
    "text with its own end": (
        "<write_to_file><path>a</path><content>\nsay </content> twice\n</content><line_count>1</line_count>"
        "</write_to_file>",
        ("write_to_file", {"path": "a", "content": "say </content> twice", "line_count": "1"}),
    ),
    "text with a call": (
        "<write_to_file><path>a</path><content><write_to_file></write_to_file></content></write_to_file>",
        ("write_to_file", {"path": "a", "content": "<write_to_file></write_to_file>"}),
    ),
    "several files": (
        "<read_file><args>\n<file>\n<path>a</path>\n<line_range>1-5</line_range>\n</file>\n<file><path>b</path></file>\n</args></read_file>",
        ("read_file", {"file": [{"path": "a", "line_range": "1-5"}, {"path": "b"}]}),
    ),
    "mcp": (
        "<use_mcp_tool>\n<server_name>s</server_name>\n<tool_name>t</tool_name>\n"
        '<arguments>\n{"a": "<b>"}\n</arguments>\n</use_mcp_tool>',
        ("use_mcp_tool", {"server_name": "s", "tool_name": "t", "arguments": '{"a": "<b>"}'}),
    ),
    "forge": ("<tool>\n<tool_name>grep</tool_name>\n<path>a</path>\n</tool>", ("grep", {"path": "a"})),
    "forge in JSON": (
        '<tool>\n{"server_name": "local", "tool_name": "write_file",\n'
        '"arguments": {"path": "a", "content": "<b></tool>"}}\n</tool>',
        ("write_file", {"path": "a", "content": "<b></tool>", "server_name": "local"}),
    ),
    "forge without arguments": ('<tool>{"tool_name": "list", "arguments": {}}</tool>', ("list", {})),
    "forge with arguments": (
        "<tool><server_name>local</server_name><tool_name>apply_diff</tool_name>\n<arguments>\n<path>a</path>\n"
        "<edits><edit><search>x</search></edit></edits>\n</arguments></tool>",
        ("apply_diff", {"path": "a", "edits": {"edit": {"search": "x"}}, "server_name": "local"}),
    ),
    "forge with arguments in JSON": (
        '<tool><tool_name>grep</tool_name><arguments>{"path": "a"}</arguments></tool>',
        ("grep", {"path": "a"}),
    ),
    "mcp in XML": (
        "<use_mcp_tool><server_name>s</server_name><arguments><a>b</a></arguments></use_mcp_tool>",
        ("use_mcp_tool", {"server_name": "s", "arguments": {"a": "b"}}),
    ),
    "choices": (
        "<ask_followup_question><question>A?</question><follow_up><suggest>b</suggest><suggest>c</suggest></follow_up></ask_followup_question>",
        ("ask_followup_question", {"question": "A?", "follow_up": {"suggest": ["b", "c"]}}),
    ),
    "words outside parameters": (
        "<attempt_completion>Done. <result>It <b>works.</result></attempt_completion>",
        ("attempt_completion", {"result": "It <b>works.", "text": "Done."}),
    ),
    "a parameter that is not closed": ("<read_file><path>a.py</read_file>", ("read_file", {"text": "<path>a.py"})),
    "a parameter of words": ("<list_files><path>a b</path></list_files>", ("list_files", {"path": "a b"})),
    "wrapped words": ("<read_file><args>all < of them</args></read_file>", ("read_file", {"args": "all < of them"})),
    "too deep": (
        "<read_file><args><a><b><c><d>x</d></c></b></a></args></read_file>",
        ("read_file", {"a": {"b": {"c": "<d>x</d>"}}}),
    ),
}


@pytest.mark.parametrize(("text", "expected"), CALLS.values(), ids=list(CALLS))
def test_an_element_is_a_call_with_its_parameters(text: str, expected: tuple[str, dict[str, Any]]) -> None:
    assert call(text) == expected


def test_a_call_has_a_kind_and_a_path() -> None:
    assert describe_tool_call(ToolCall("", "read_file", json.dumps(CALLS["several files"][1][1]))).path == "a"
    assert (
        describe_tool_call(ToolCall("", "write_to_file", json.dumps(CALLS["text with tags"][1][1]))).category
        == "file_edit"
    )


@pytest.mark.parametrize(
    "text",
    [
        "say `<read_file>` and </read_file>",
        "<read_file><path>a</path>",
        "<div><path>a</path></div>",
        "</read_file> <read_file>",
        "<tool>no name</tool>",
        '<tool>{"arguments": {"tool": "no name"}}</tool>',
        '<tool>{"tool_name": "grep"} and more</tool>',
        '<tool>{"tool_name": "grep"</tool>',
        '<tool>["tool_name", "grep"]</tool>',
        "<thinking>no end",
        "<read_file><path></read_file></path>",
        "",
    ],
)
def test_text_without_calls_stays_unchanged(text: str) -> None:
    assert split(text) == [Text(text)]


OPENINGS = {
    "openings in a row": "<read_file>" * (MEGABYTE // 11),
    "openings on lines": "<read_file>\n" * (MEGABYTE // 12),
    "openings and one end": "<read_file>\n" * (MEGABYTE // 12) + "</read_file>",
    "parameters of many names": "".join(f"<read_file>\n<a{n}>" for n in range(MEGABYTE // 18)) + "</read_file>",
    "ends inside of parameters": "<read_file><path></read_file></path>\n" * (MEGABYTE // 37),
    "ends of every tool": "".join(
        f"<{name}><path></{name}></path>\n" for _ in range(MEGABYTE // 2000) for name in sorted(XML_TOOL_NAMES)
    ),
    "nested parameters": f"<read_file><args>{'<a>' * (MEGABYTE // 7)}{'</a>' * (MEGABYTE // 7)}</args></read_file>",
    "texts of files": f"<write_to_file>{'<content></content>' * (MEGABYTE // 19)}</write_to_file>",
    "blanks": ("\t" * 30 + "<read_file>") * (MEGABYTE // 41),
    "objects that do not end": '<tool>\n{"tool_name":[' * (MEGABYTE // 22),
    "nested objects": "<tool>" + '{"a":' * (MEGABYTE // 5) + "</tool>",
    "thoughts": "<thinking>\n" * (MEGABYTE // 11) + "</thinking>",
}


@pytest.mark.parametrize("text", OPENINGS.values(), ids=list(OPENINGS))
def test_a_hostile_text_is_read_without_loss(text: str) -> None:
    """Each takes well under a second; with quadratic time it would take hours."""
    kept = "".join(part_text(part) for part in split(text))
    assert len(kept) >= len(text) // 3


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[read_file for 'a.py'] Result:", "read_file"),
        ("\n[update_todo_list] Result:\nDone.", "update_todo_list"),
        ("[execute_command for 'a\nb [c]'] Result:", "execute_command"),
        ("[switch_mode to 'code' because: it's time] Result:", "switch_mode"),
        ("[new_task in Code mode: 'Do it'] Result:", "new_task"),
        ("Tool 'grep' result:\nnone", "grep"),
        ("[ERROR] You did not use a tool", None),
        ("[read_file] was what I meant; the Result: none", None),
        ("[read_file for 'a.py'] is what I want", None),
        ("See [read_file] Result:", None),
    ],
)
def test_a_result_begins_with_the_name_of_its_tool(text: str, name: str | None) -> None:
    found = parse_result_header(text)
    assert (found and found[0]) == name


def test_results_match_their_calls_and_the_rest_stays() -> None:
    environment = "<environment_details>\nnow\n</environment_details>"
    shot = Image("image/png", "aGk=")
    results, rest, author = sort_xml_answers(
        [
            Text("[read_file for 'a'] Result:"),
            Text("one"),
            shot,
            Text("[read_file for 'b'] Result:\ntwo"),
            Text(environment),
            shot,
        ],
        calls("read_file", "read_file", "list_files"),
    )
    assert [(result.call_id, result.name, result.is_error) for result in results] == [
        ("c1", "read_file", False),
        ("c2", "read_file", False),
    ]
    assert results[0].content == (Text("[read_file for 'a'] Result:"), Text("one"), shot)
    assert results[1].text == "[read_file for 'b'] Result:\ntwo"
    assert (rest, author) == ([Text(environment), shot], "harness")


SPOKEN = {
    "an answer": ("[ask_followup_question for 'A?'] Result:", "<answer>\nYes.\n</answer>", False),
    "in one block": ("[ask_followup_question for 'A?'] Result:\n<answer>\nYes.\n</answer>", "", False),
    "a denial": (
        "[ask_followup_question] Result:",
        "The user denied this operation and provided the following feedback:\n<feedback>\nNo.\n</feedback>",
        True,
    ),
    "a completion": (
        "[ask_followup_question] Result:",
        "The user has provided feedback on the results.\n<feedback>\nMore.\n</feedback>\n",
        False,
    ),
}


@pytest.mark.parametrize(("line", "said", "failed"), SPOKEN.values(), ids=list(SPOKEN))
def test_a_persons_comment_has_a_person_as_author(line: str, said: str, failed: bool) -> None:
    texts = [Text(one) for one in (line, said) if one]
    [result], [rest], author = sort_xml_answers(texts, calls("ask_followup_question"))
    assert isinstance(rest, Text)
    assert rest.text == (said or line.partition("\n")[2])
    assert (result.text, result.is_error, author) == (line.partition("\n")[0], failed, "human")


def test_a_persons_comment_is_split_from_the_output() -> None:
    output = "Command is still running.\nOutput:\n<feedback>\n"
    said = "The user provided the following feedback:\n<feedback>\nStop it.\n</feedback>"
    [result], rest, author = sort_xml_answers(
        [Text("[execute_command for 'x'] Result:"), Text(output + said)], calls("execute_command")
    )
    assert result.content[1:] == (Text(output),)
    assert (rest, author) == ([Text(said)], "human")


def test_a_file_that_ends_like_a_comment_belongs_to_the_tool() -> None:
    text = "<page>\n<feedback>\nx\n</feedback>"
    [result], rest, _ = sort_xml_answers([Text("[read_file for 'a'] Result:"), Text(text)], calls("read_file"))
    assert (result.content[1:], rest) == ((Text(text),), [])


def test_a_call_with_a_comment_has_one_result() -> None:
    line, said = "[write_to_file for 'a'] Result:", "The user approved this operation:\n<feedback>\nOk.\n</feedback>"
    [result], rest, author = sort_xml_answers(map(Text, (line, said, line, "saved")), calls("write_to_file"))
    assert (result.content, rest, author) == ((Text(line), Text("saved")), [Text(said)], "human")


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("The tool execution failed with the following error:\n<error>\nx\n</error>", True),
        ("The user denied this operation.", True),
        ("[ERROR] no", True),
        ("Error:\nno", True),
        ("Missing value for required parameter 'path'.", True),
        ("Command executed in terminal within working directory '/w'. Exit code: 2\nOutput:", True),
        ("Command executed in terminal within working directory '/w'. Exit code: 0\nOutput: Error:", False),
        ("<files>\n<file><path>a</path><error>Not found</error></file>\n</files>", True),
        ('{"status":"denied","feedback":"no"}', True),
        ('{"status":"approved"}', False),
        ("It says that the user denied this operation.", False),
    ],
)
def test_failed_results_are_detected(text: str, failed: bool) -> None:
    [result], _, _ = sort_xml_answers([Text("[execute_command] Result:"), Text(text)], calls("execute_command"))
    assert result.is_error is failed


@pytest.mark.parametrize("text", ["[ERROR] 12:00 a log begins", "Error: another", "<error>x</error>"])
def test_a_file_can_begin_like_an_error(text: str) -> None:
    [result], _, _ = sort_xml_answers([Text("[read_file] Result:"), Text(text)], calls("read_file"))
    assert not result.is_error


@pytest.mark.parametrize(
    "text",
    [
        "Tool [list_files] was not executed because a tool has already been used in this message.",
        "Skipping tool [list_files for 'a'] due to user rejecting a previous tool.",
        "Tool [list_files for 'a'] was interrupted and not executed due to user rejecting a previous tool.",
    ],
)
def test_a_skipped_call_has_failed(text: str) -> None:
    parts = [Text("[read_file] Result:"), Text("one"), Text(text), Text("Hello.")]
    results, rest, author = sort_xml_answers(parts, calls("read_file", "list_files"))
    assert [(result.call_id, result.is_error) for result in results] == [("c1", False), ("c2", True)]
    assert (rest, author) == ([Text("Hello.")], "human")
    results, rest, author = sort_xml_answers(parts[:3], calls("read_file"))
    assert [result.call_id for result in results] == ["c1"]
    assert (rest, author) == ([Text(text)], "harness")


def test_a_result_without_a_call_is_text_of_a_tool() -> None:
    parts = [Text("[read_file] Result:"), Text("one"), Text("<environment_details>\n</environment_details>")]
    assert sort_xml_answers(parts, []) == ([], parts, "tool")
    assert sort_xml_answers([*parts, Text("Hello.")], [])[2] == "human"


def test_many_calls_and_results_are_paired_in_order() -> None:
    many = [ToolCall(f"c{n}", "read_file", "{}") for n in range(50_000)]
    results, _, _ = sort_xml_answers((Text("[read_file] Result:") for _ in many), many)
    assert [result.call_id for result in results[:2]] == ["c0", "c1"]
    assert isinstance(results[0], ToolResult)
