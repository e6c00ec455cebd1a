"""The lines that reads of all agents show."""

from typing import Any

import pytest
from talks import Talk

from thresher.timeline.read_extents import SeenLines, parse_read_result

REMINDER = "\n\n<system-reminder>\nWhenever you read a file, think.\n</system-reminder>\n"
NIMBUS = "<path>/x/a.py</path>\n<type>file</type>\n<content>{}\n</content>"


def shown(name: str, arguments: Any, answer: str) -> SeenLines | None:
    talk = Talk()
    talk.call(name, arguments, answer)
    (link,) = talk.session().history.links
    return parse_read_result(link)


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "expected"),
    [
        ("Read", {}, "     1→a\n     2→b\n     3→", SeenLines(1, "a\nb\n", True)),
        ("Read", {}, f"     1→a\n     2→\n     3→b{REMINDER}", SeenLines(1, "a\n\nb\n", True)),
        ("Read", {}, "     1\ta\n     2\tb", SeenLines(1, "a\nb\n", True)),
        ("Read", {"offset": 7, "limit": 2}, "     7→a\n     8→", SeenLines(7, "a\n\n", False)),
        ("Read", {"offset": 7, "limit": 5}, "     7→a\n     8→", SeenLines(7, "a\n", True)),
        ("Read", {}, "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>",
         SeenLines(1, "", True)),
        ("read", {}, NIMBUS.format("1: a\n2: \n3: b\n\n(End of file - total 3 lines)"), SeenLines(1, "a\n\nb\n", True)),
        ("read", {}, NIMBUS.format("1: a\n\n(Output capped at 50 KB. Showing lines 1-1. Use offset=2 to continue.)"),
         SeenLines(1, "a\n", False)),
        (
            "read",
            {},
            "<file>\n00001| a\n00002| b\n\n(End of file - total 2 lines)\n</file>",
            SeenLines(1, "a\nb\n", True),
        ),
        ("read", {}, "a\nb\n", SeenLines(1, "a\nb\n", True)),
        ("read", {"offset": 3, "limit": 1}, "c\n\n[9 more lines in file. Use offset=4 to continue]",
         SeenLines(3, "c\n", False)),
        ("read", {}, "1: my\nown: numbers\n", SeenLines(1, "1: my\nown: numbers\n", True)),
        ("bash", {"command": "cat /x/a.py"}, "<returncode>0</returncode>\n<output>\na\nb</output>",
         SeenLines(1, "a\nb\n", True)),
        ("exec_command", {"cmd": "sed -n '1,9p' /x/a.py"},
         "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 0\nOriginal token count: 2\nOutput:\na\nb\n",
         SeenLines(1, "a\nb\n", True)),
        ("bash", {"command": "sed -n '3,4p' /x/a.py"}, "c\nd\n", SeenLines(3, "c\nd\n", False)),
        ("bash", {"command": "nl -ba /x/a.py | sed -n '2,3p'"}, "     2\tb\n     3\t\n", SeenLines(2, "b\n\n", False)),
        ("bash", {"command": "cat /x/a.py"}, "1: a\n2: b\n", SeenLines(1, "1: a\n2: b\n", True)),
    ],
)  # fmt: skip
def test_lines_are_parsed_without_agent_decoration(
    name: str, arguments: dict[str, Any], answer: str, expected: SeenLines
) -> None:
    path = {} if "command" in arguments or "cmd" in arguments else {"file_path": "/x/a.py"}
    assert shown(name, arguments | path, answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "<output_head>\na\n</output_head>\n<elided_chars>\n9 characters elided\n</elided_chars>",
        "a\n…120 tokens truncated…\nb",
        "     1→a\n     2→b... [truncated]",
        "<persisted-output>\nOutput too large (80.1KB). Full output saved to: /x\n</persisted-output>",
        "<path>/x</path>\n<type>directory</type>\n<entries>\na\n</entries>",
        "",
    ],
)
def test_truncated_output_and_folders_show_nothing(answer: str) -> None:
    found = shown("Read", {"file_path": "/x/a.py"}, answer)
    assert found is None or "<path>" in answer


def test_default_number_of_lines_may_be_incomplete() -> None:
    rows = "\n".join(f"{number:6}→x" for number in range(1, 2001))
    found = shown("Read", {"file_path": "/x/a.py"}, rows)
    assert found is not None
    assert not found.reaches_end
