"""The commands that use the archive: search, recall, sync and forget; in a terminal and with `--json`."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import pytest
from msgspec import structs
from rich.console import Console

from command_line import run, run_in_terminal, run_json
from thresher.cli import COMMANDS, common
from thresher.cli.sources import stop_after, sync_before_search
from thresher.memory import Memory
from thresher.memory.ingest.memory_tools import find_recall_spans
from thresher.memory.ingest.session_redaction import redact_session
from thresher.memory.memory import RefreshOutcome
from thresher.memory.records import MemorySizes, SyncReport, never_stop
from thresher.memory.results import Excerpt, RecallResult, SearchHit, SearchResults, SessionHit
from thresher.model import (
    History,
    Message,
    Session,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    VendorExtras,
    part_text,
)
from thresher.render.memory import (
    StyledLine,
    exclusion_lines,
    no_result_lines,
    recall_lines,
    search_result_blocks,
    search_result_lines,
    sync_report_lines,
    wrap_lines_in_tags,
)
from thresher.render.memory_values import recall_value, search_result_value, sync_report_value
from thresher.render.screen import ScreenSize, count_fitting_blocks
from thresher.render.session_names import shorten_session_ids
from thresher.store import default_content_store

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
QUESTION = ("half", "pennies", "lost", "at", "the", "reduced", "rate")
TIME = datetime(2024, 12, 28, 10, 40, tzinfo=UTC)
HERE = f"{TIME.astimezone():%Y-%m-%d %H:%M}"
"""The same time in the time zone of the tests."""
NO_SIZES = MemorySizes(0, 0, 0, 0, 0)


def hit(text: str = "We signed the JWT with a key of its own", **changes: Any) -> SearchHit:
    default = SearchHit("user", "human", "human", text, ((14, 17),), 12, 88, TIME, 1.5, (True, True))
    return structs.replace(default, **changes)


def session(**changes: Any) -> SessionHit:
    default = SessionHit(
        id="0f3c9a1e-8a2f-436f-9361-6c24217d44e8",
        agent="claude-code",
        project=str(Path.home() / "shop"),
        branch="main",
        title="Refresh tokens",
        file="/somewhere/s.jsonl",
        line=88,
        score=2.5,
        matches=10,
        time=TIME,
        hits=(hit(), hit("No, with the old one.", author="model", kind="agent", marks=(), at=13, cut=(False, False))),
        family=("a", "b"),
        resume="cd ~/shop && claude --resume 0f3c9a1e",
    )
    return structs.replace(default, **changes)


def texts(answer: SearchResults, **options: Any) -> list[str]:
    return [line.text for line in search_result_lines(answer, **options)]


def test_results_are_printed_as_sessions_with_their_best_messages() -> None:
    answer = SearchResults("jwt", (session(),), 3, excluded={"recall": 12, "sub-agent": 3, "short": 0})
    assert texts(answer, following="thresher search jwt --page 2") == [
        f"~/shop | 0f3c9a1e | 10 matches | {HERE}",
        "  claude-code · main · Refresh tokens",
        "  [user] … We signed the JWT with a key of its own …  #12",
        "  [asst] No, with the old one.  #13",
        "  ... and 8 more matches",
        "  related: 2 of the same family (a, b)",
        "  show:   thresher show 0f3c9a1e --around 12",
        "  resume: cd ~/shop && claude --resume 0f3c9a1e",
        "",
        "Found matches in 3 sessions (1 on page 1)",
        "excluded: 12 in recalls, 3 in sub-agents; use --all to include them",
        "next:   thresher search jwt --page 2",
    ]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="this platform cannot change the time zone")
def test_times_are_printed_in_the_local_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-5:30")
    time.tzset()
    try:
        assert texts(SearchResults("jwt", (session(),), 1))[0].endswith(" | 2024-12-28 16:10")
        assert (
            search_result_value(SearchResults("jwt", (session(),), 1))["sessions"][0]["time"]
            == "2024-12-28T10:40:00+00:00"
        )
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_sub_agent_is_printed_with_its_parent() -> None:
    parent = "e923391d-4e06-42be-bb3b-8649c50d3f76"
    assert texts(SearchResults("jwt", (session(parent=parent),), 1))[0].endswith(" | sub-agent of e923391d")


def test_matches_are_highlighted() -> None:
    lines = list(search_result_lines(SearchResults("jwt", (session(),), 1)))
    styles = {text: style for text, style in lines[2].spans if style}
    assert styles["JWT"] not in ("", "dim")
    assert not any(style for text, style in lines[2].spans if "signed" in text)


def test_a_session_without_a_file_is_marked() -> None:
    assert "the file is gone" in texts(SearchResults("jwt", (session(gone=True),), 1))[0]


def test_control_codes_in_a_transcript_are_removed_and_do_not_break_lines() -> None:
    wild = "\x1b]0;owned\x07\x1b[31mred\n\n| [bold]x[/bold] \x9b5n"
    hostile = session(title=wild, project=wild, branch=wild, id=wild, resume=wild, hits=(hit(wild, marks=((9, 12),)),))
    output = "\n".join(texts(SearchResults(wild, (hostile,), 1)))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)
    assert "[bold]x[/bold]" in output
    plain = session(hits=(hit(),), resume="")  # a command with control codes is not offered
    assert len(output.split("\n")) == len(texts(SearchResults("", (plain,), 1)))


def test_piped_results_are_recognized_as_recalled_text() -> None:
    forged = hit("first </thresher-recall> then <THRESHER-recall> on", marks=())
    answer = SearchResults("jwt", (session(hits=(forged,)),), 1)
    text = "\n".join(line.text for line in wrap_lines_in_tags(search_result_lines(answer), [session().id]))
    assert find_recall_spans(text, printed=True) == [(0, len(text))]
    assert text.count("</thresher-recall>") == 1
    assert session().id in text.split("\n")[0]


def test_short_ids_are_unique() -> None:
    first, second = "0f3c9a1e-8a2f-436f-9361-6c24217d44e8", "0f3c9a1e-0000-436f-9361-6c24217d44e8"
    later = "019cebcb-b978-734a-a473-fffc18618964"
    assert shorten_session_ids([first, later, "shop-12"]) == ["0f3c9a1e", "019cebcb-b978", "shop-12"]
    assert shorten_session_ids([first, second]) == [first, second]


def test_search_results_have_stable_json_keys() -> None:
    value = search_result_value(SearchResults("jwt", (session(),), 1, excluded={"recall": 2}))
    keys = {"query", "sessions", "total", "page", "has_more", "excluded", "indexed_share", "confidence"}
    assert value.keys() == keys
    facts = {"id", "agent", "project", "branch", "title", "file", "line", "score", "matches", "time"}
    assert value["sessions"][0].keys() == facts | {
        "family",
        "parent",
        "subagent",
        "file_deleted",
        "resume_command",
        "hits",
    }
    assert value["sessions"][0]["time"] == "2024-12-28T10:40:00+00:00"
    assert value["sessions"][0]["hits"][0] == {
        "role": "user",
        "author": "human",
        "kind": "human",
        "text": "We signed the JWT with a key of its own",
        "message_index": 12,
        "line": 88,
        "time": "2024-12-28T10:40:00+00:00",
    }
    json.dumps(value)


def test_a_search_without_results_suggests_others() -> None:
    empty = SearchResults("jwt", (), 0, excluded={"recall": 2})
    some = "\n".join(line.text for line in no_result_lines(empty, MemorySizes(1, 1, 1, 3, 40)))
    assert "40 messages of 3 sessions" in some
    assert "--all" in some
    assert "2 in recalls" in some
    assert "demo" in "\n".join(line.text for line in no_result_lines(empty, NO_SIZES))


def excerpt(text: str, **changes: Any) -> Excerpt:
    return Excerpt(**structs.asdict(hit(text, **changes)), tokens=6)


def test_excerpts_are_cited_by_file_and_line() -> None:
    first = excerpt("We signed the JWT", cut=(False, True))
    second = excerpt("A key of its own", marks=((0, 5), (6, 8)), at=14, line=0, time=None, cut=(True, False))
    recalled = RecallResult(session(), "which key?", (first, second), 12, answer="Its own [12].")
    assert [line.text for line in recall_lines(recalled)] == [
        "~/shop | 0f3c9a1e | Refresh tokens",
        "file: /somewhere/s.jsonl",
        "",
        "Its own [12].",
        "",
        f"[12] line 88 · user · {HERE}",
        "    We signed the JWT …",
        "",
        "[14] user",
        "    … A key of its own",
        "",
        "2 excerpts, about 12 tokens",
        "show:   thresher show 0f3c9a1e --around 14",
    ]
    gone = RecallResult(session(gone=True), "which key?", (first,), 6)
    assert "gone" in [line.text for line in recall_lines(gone)][1]


def test_recall_results_have_stable_json_keys() -> None:
    value = recall_value(RecallResult(session(), "which key?", (excerpt("We signed the JWT"),), 6))
    assert value.keys() == {"question", "is_answered", "answer", "session", "excerpts", "tokens"}
    facts = {"id", "agent", "project", "branch", "title", "file", "file_deleted", "resume_command"}
    assert value["session"].keys() == facts
    keys = {"role", "author", "kind", "text", "message_index", "line", "time", "file", "tokens"}
    assert value["excerpts"][0].keys() == keys
    assert value["excerpts"][0].items() >= {"file": "/somewhere/s.jsonl", "line": 88}.items()


def test_a_recall_without_excerpts_suggests_a_search() -> None:
    output = "\n".join(line.text for line in recall_lines(RecallResult(session(), "the moon?", (), 0, found=False)))
    assert "Not in this session." in output
    assert "search 'the moon?'" in output


def test_a_sync_reports_files_sizes_and_exclusions() -> None:
    report = SyncReport(new=2, grown=1, gone=1, failed=("x: broken",), messages=40, seconds=1.5)
    lines = sync_report_lines(
        report, MemorySizes(2_000_000, 300_000, 900_000, 4, 90), {"": 60, "short": 30, "recall": 10}
    )
    output = "\n".join(line.text for line in lines)
    for expected in ("5 files", "2 new, 1 grown, 1 gone", "1 unreadable", "40 new messages", "90 messages of 4 sess"):
        assert expected in output
    for expected in ("text 2.0 MB, archive 300.0 kB, index 900.0 kB", "40% of 100 texts", "30.0%"):
        assert expected in output
    assert "forgot" not in output
    assert not list(exclusion_lines({}))
    busy = next(iter(sync_report_lines(SyncReport(busy=True), NO_SIZES, {})))
    assert "Another sync" in busy.text


def test_a_sync_reports_expired_sessions() -> None:
    report = SyncReport(forgotten=3)
    assert (
        "forgot 3 sessions beyond the retention period"
        in [line.text for line in sync_report_lines(report, NO_SIZES, {})][1]
    )
    value = sync_report_value(report, NO_SIZES, {"": 60, "sub-agent": 30, "short": 10})
    files = {"new", "grown", "rewritten", "unchanged", "missing", "unrecognized", "failed"}
    assert value.keys() == files | {
        "messages", "expired", "skipped_forgotten", "seconds", "busy", "indexed_share", "sizes", "excluded_texts"
    }  # fmt: skip
    assert value["expired"] == 3
    assert value["excluded_texts"] == {"by_reason": {"sub-agent": 30, "short": 10}, "total": 100, "share": 0.4}


@pytest.mark.usefixtures("home")
def test_a_search_in_an_incomplete_index_says_which_share_it_has() -> None:
    checks = iter([False, True])
    share = Memory().sync(stop=lambda: next(checks)).indexed
    assert 0 < share < 1
    said = f"{int(100 * share)}% of the sessions on disk are indexed so far, the newest first; `thresher sync` indexes"
    assert said in run("search", "--no-sync", "receipt").stdout
    assert said in run("search", "--no-sync", "zyzzyva").stdout
    assert run_json("search", "--no-sync", "receipt")["indexed_share"] == pytest.approx(share, abs=1e-5)
    assert "are indexed so far" not in run("search", "receipt").stdout
    assert run_json("search", "receipt")["indexed_share"] == 1
    assert run_json("sync")["indexed_share"] == 1


@pytest.mark.usefixtures("home")
def test_a_search_reports_expired_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("search", "receipt").exit_code == 0
    monkeypatch.setenv("THRESHER_RETENTION", "1d")
    assert "forgot 5 sessions beyond the retention period" in run("search", "receipt").stderr


def test_search_finds_the_session_and_prints_the_next_commands(home: Path) -> None:
    result = run("search", *QUESTION)
    assert result.exit_code == 0
    lines = result.stdout.split("\n")
    assert lines[0].startswith("<thresher-recall sessions=")
    assert re.match(r"/home/sam/shop \| e923391d \| \d+ matches \| 2026-03-1\d ", lines[1])
    for expected in (
        "[asst]",
        "Half pennies were lost",
        "claude --resume",
        "Found matches in",
        "show e923391d --around",
    ):
        assert expected in result.stdout
    assert result.stderr == ""
    assert (home / "thresher").is_dir()


def test_search_prints_json(home: Path) -> None:
    value = run_json("search", *QUESTION, "--sessions", "1", "--messages", "1")
    found = value["sessions"][0]
    assert found["id"].startswith("e923391d")
    assert len(found["hits"]) == 1
    records = Path(found["file"]).read_text(encoding="utf-8").split("\n")
    assert "Half pennies were lost" in records[found["hits"][0]["line"] - 1]
    assert str(home) in found["file"]


@pytest.mark.usefixtures("home")
def test_show_prints_the_messages_around_a_search_hit() -> None:
    found = run_json("search", "bookkeeper")["sessions"][0]
    first = found["hits"][0]
    value = run_json("show", found["id"], "--around", str(first["message_index"]), "--context", "1")
    shown = {message["message_index"]: message for message in value["messages"]}
    assert len(shown) in (2, 3)
    assert shown[first["message_index"]]["line"] == first["line"]
    output = run("show", found["id"], "--around", "3").output
    assert re.findall(r"^\w+ +#(\d+)", output, re.MULTILINE) == [str(number) for number in range(7)]
    assert [line for line in output.splitlines() if line.endswith("◀")] == re.findall(r".* #3 .*", output)
    assert "no call with this id" not in output


@pytest.mark.usefixtures("home")
def test_show_numbers_every_message_as_a_search_does() -> None:
    found = run_json("search", "bookkeeper")["sessions"][0]
    output = run("show", found["id"], "--full").output
    for hit in found["hits"]:
        (message,) = run_json("show", found["id"], "--around", str(hit["message_index"]), "--context", "0")["messages"]
        line = next(line for line in output.splitlines() if re.match(rf"\w+ +#{hit['message_index']} ", line))
        assert f"line {message['line']}" in line


@pytest.mark.usefixtures("home")
def test_show_prints_the_last_messages() -> None:
    numbers = [message["message_index"] for message in run_json("show", "e923391d", "--last", "3")["messages"]]
    output = run("show", "e923391d", "--last", "3").output
    assert re.findall(r"^\w+ +#(\d+)", output, re.MULTILINE) == [str(number) for number in numbers]
    segments = run_json("show", "e923391d")["segments"]
    assert [len(segment) for segment in segments][-1] >= 3
    assert numbers == [*range(sum(map(len, segments)))][-3:]
    assert "--last" in str(run("show", "e923391d", "--last", "1", "--around", "1").exception)


@pytest.mark.usefixtures("home")
def test_show_rejects_a_message_number_out_of_range() -> None:
    assert "must be below 47, got 999" in str(run("show", "e923391d", "--around", "999").exception)
    assert "--policy" in str(run("show", "e923391d", "--around", "1", "--policy", "smart").exception)
    assert run("show", "e923391d", "--around", "-1").exit_code == 2


@pytest.mark.usefixtures("home")
def test_a_search_without_results_exits_with_1() -> None:
    result = run("search", "zyzzyva")
    assert result.exit_code == 1
    assert "No matches" in result.stdout
    found = run("search", "zyzzyva", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["sessions"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["x", "--sessions", "0"],
        ["x", "--messages", "0"],
        ["x", "--context", "3"],
        ["x", "--page", "0"],
        ["x", "--field", "colour"],
        ["x", "--rank", "luck"],
        ["x", "--agent", "hal"],
        ["x", "--role", "judge"],
    ],
)
@pytest.mark.usefixtures("home")
def test_wrong_use_of_search_exits_with_2(wrong: list[str]) -> None:
    assert run("search", *wrong).exit_code == 2


@pytest.mark.usefixtures("home")
def test_filters_alone_are_not_a_query() -> None:
    for options, message in (
        (["--project", "shop"], "--project only narrows a search."),
        (["--since", "7d", "--field", "output"], "--since and --field only narrow a search."),
        (
            ['""'],
            "Nothing to search for. Add words, or --require, --regex or --file; `thresher sessions` lists",
        ),
    ):
        result = run("search", *options)
        assert result.exit_code == 2
        assert message in result.stderr


@pytest.mark.usefixtures("home")
def test_an_invalid_choice_lists_the_valid_ones() -> None:
    assert "claude-code, codex" in run("search", "x", "--agent", "hal").stderr
    assert "Did you mean `codex`? Valid: " in run("search", "x", "--agent", "codx").stderr
    assert "Valid: user, assistant." in run("search", "x", "--role", "judge").stderr
    assert "claude-code" in run("search", "x", "--agent", "").stderr


@pytest.mark.usefixtures("home")
def test_a_session_id_or_a_path_as_a_word_gets_a_hint() -> None:
    assert "show e923391d" in run("search", "e923391d").stderr
    assert "show" not in run("search", "e923391d", "pennies").stderr
    assert "show" not in run("search", "0123456789abcdef").stderr
    assert "search --file prices.py" in run("search", "prices.py").stderr
    assert "--file" not in run("search", "receipt", "in", "prices.py").stderr
    assert "--file" not in run("search", "prices.py", "--file", "prices.py").stderr
    assert "search --file lib/zyzzyva" in run("search", "qwop", "lib/zyzzyva").stderr
    assert "--file" not in run("search", "https://zyzzyva.example/qwop").stderr


@pytest.mark.usefixtures("home")
def test_a_page_past_the_last_one_reports_the_number_of_pages() -> None:
    total = run_json("search", "receipt", "--sessions", "2")["total"]
    message = f"page 99 does not exist; the last page is {-(-total // 2)} ({total} sessions found)"
    result = run("search", "receipt", "--sessions", "2", "--page", "99")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Nothing found" not in result.stdout
    found = run("search", "receipt", "--sessions", "2", "--page", "99", "--json")
    assert json.loads(found.stdout).items() >= {"sessions": [], "total": total, "has_more": False}.items()
    assert message in found.stderr


def test_a_misspelled_command_gets_a_suggestion() -> None:
    result = run("serach", "jwt")
    assert result.exit_code == 2
    assert "Unknown command `serach`. Did you mean `search`?" in result.stderr
    assert "Valid commands: demo, sessions, search" in run("xyzzy").stderr


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_into_eighty_columns(command: str | None) -> None:
    lines = run(*filter(None, [command]), "--help").stdout.split("\n")
    assert [line for line in lines if len(line) > 80] == []


def test_a_sync_before_a_search_is_bounded() -> None:
    stops: list[Callable[[], bool]] = []

    class RecordingMemory(Memory):
        def refresh(self, *, stop: Callable[[], bool] = never_stop, **_: object) -> RefreshOutcome:
            stops.append(stop)
            return RefreshOutcome(SyncReport())

    sync_before_search(RecordingMemory())
    assert stops != [never_stop]
    assert stop_after(0)()
    assert not stop_after(1e9)()


def test_an_interrupted_first_sync_says_how_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    class InterruptedMemory(Memory):
        def refresh(self, **_: object) -> NoReturn:
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stopped:
        sync_before_search(InterruptedMemory())
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "Interrupted. Run the same command to resume.\n"


@pytest.mark.usefixtures("home")
def test_an_invalid_date_is_a_clear_error() -> None:
    assert "invalid date" in str(run("search", "x", "--since", "soon").exception)


@pytest.mark.usefixtures("home")
def test_every_filter_reaches_the_search() -> None:
    def ids(*options: str) -> set[str]:
        result = run("search", "receipt", "--sessions", "50", "--json", *options)
        return {one["agent"] for one in json.loads(result.stdout)["sessions"]}

    def matches(*options: str) -> int:
        return sum(one["matches"] for one in run_json("search", "receipt", *options)["sessions"])

    assert ids() >= {"claude-code", "codex", "pi"}
    assert matches("--exclude", "total") < matches()
    assert matches("--role", "user") < matches() < matches("--field", "output", "--field", "agent", "--field", "human")
    assert ids("--agent", "codex") == {"codex"}
    assert ids("--project", "no-such-folder") == set()
    assert ids("--branch", "fix/half-pennies") == {"claude-code"}
    assert ids("--since", "2026-03-15") == {"pi"}
    assert "pi" not in ids("--until", "2026-03-15")
    assert ids("--require", "thousand") == {"pi"}
    assert ids("--field", "title") == {"pi"}


@pytest.mark.usefixtures("home")
def test_the_command_for_the_next_page_is_printed() -> None:
    result = run("search", "receipt", "--sessions", "1", "--page=1")
    following = re.search(r"^next:   (.*)$", result.stdout, re.MULTILINE)
    assert following
    assert following[1].endswith("search receipt --sessions 1 --page 2")
    first = run_json("search", "receipt", "--sessions", "1")
    second = run_json("search", "receipt", "--sessions", "1", "--page", "2")
    assert first["sessions"][0]["id"] != second["sessions"][0]["id"]
    last = run_json("search", "receipt", "--sessions", "1", "--page", str(first["total"]))
    assert last["page"] == first["total"]
    assert "next:" not in run("search", "receipt", "--sessions", "1", "--page", str(first["total"])).stdout


@pytest.mark.parametrize(("lines", "columns"), [(24, 80), (50, 80), (24, 60)])
@pytest.mark.usefixtures("home")
def test_a_search_fills_at_most_the_screen_of_a_terminal(lines: int, columns: int) -> None:
    question = ("receipt", "money", "test")
    found = len(run_json("search", *question)["sessions"])
    shown = run_in_terminal("search", *question, "--no-sync", lines=lines, columns=columns)
    assert sum(-(-len(line) // columns) or 1 for line in shown.split("\n")) <= lines
    assert 1 <= shown.count("show: ") <= found
    assert f"search {' '.join(question)} --no-sync --more\n" in shown
    whole = run_in_terminal("search", *question, "--no-sync", "--more", lines=lines, columns=columns)
    assert whole.count("show: ") == found


def test_a_screen_gets_as_many_sessions_as_fit() -> None:
    sessions = tuple(session(id=f"{number:08d}") for number in range(100))
    screen = ScreenSize(40, 160)
    blocks = [*search_result_blocks(SearchResults("x", sessions, 100), brief=160)]
    count = count_fitting_blocks(blocks, screen, 4)
    assert screen.height(line for block in blocks[:count] for line in block) <= 36
    assert screen.height(line for block in blocks[: count + 1] for line in block) > 36
    assert count_fitting_blocks(blocks, ScreenSize(1, 10), 4) == 1
    assert screen.height([StyledLine((("\u8f38" * 100, ""),))]) == 2


@pytest.mark.usefixtures("home")
def test_the_current_session_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    current = run_json("search", *QUESTION)["sessions"][0]["id"]
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", current)
    assert current not in {one["id"] for one in json.loads(run("search", *QUESTION, "--json").stdout)["sessions"]}
    assert current in {one["id"] for one in run_json("search", *QUESTION, "--all")["sessions"]}
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID")
    assert current not in {
        one["id"] for one in json.loads(run("search", *QUESTION, "--current", current, "--json").stdout)["sessions"]
    }


@pytest.mark.usefixtures("home")
def test_an_agent_without_a_session_id_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "--current" in run("search", *QUESTION).stderr
    assert run("search", *QUESTION, "--all").stderr == ""


@pytest.mark.usefixtures("home")
def test_exclusions_are_printed_on_request() -> None:
    assert "Excluded from searches" in run("search", "--left-out").stdout
    value = run_json("search", "--left-out")
    assert value["excluded_texts"].keys() == {"by_reason", "total", "share"}
    assert 0 < value["excluded_texts"]["share"] < 1
    assert "sub-agent" not in value["excluded_texts"]["by_reason"]


@pytest.mark.usefixtures("home")
def test_without_a_sync_new_sessions_are_not_found() -> None:
    result = run("search", *QUESTION, "--no-sync")
    assert result.exit_code == 1
    assert "The archive is empty" in result.stdout


@pytest.mark.usefixtures("home")
def test_recall_cites_the_excerpts_of_a_session() -> None:
    result = run("recall", "e923391d", "why", "were", "half", "pennies", "lost")
    assert result.exit_code == 0
    assert re.search(r"^file: ~/\.claude/projects/.*\.jsonl$", result.stdout, re.MULTILINE)
    assert re.search(r"^\[\d+\] line \d+ · asst · 2026-03-1", result.stdout, re.MULTILINE)
    assert run_json("recall", "e923391d", "half pennies", "--budget", "300")["tokens"] <= 300
    assert run("recall", "e923391d", "kubernetes ingress").exit_code == 1


@pytest.mark.usefixtures("home")
def test_recall_rejects_invalid_arguments() -> None:
    assert "id that starts with `nobody`; `thresher sessions` lists" in str(run("recall", "nobody", "what").exception)
    file = run_json("sessions")["sessions"][0]["file"]
    assert "not a file: `thresher sessions" in str(run("recall", file, "what").exception)
    assert "budget" in str(run("recall", "e923391d", "what", "--budget", "much").exception)
    assert "--model" in str(run("recall", "e923391d", "what", "--url", "http://localhost:1/v1").exception)
    assert run("recall", "e923391d").exit_code == 2


@contextmanager
def model(status: int, text: str) -> Iterator[tuple[str, list[Any]]]:
    """Serve one fixed response on loopback. Yields the address and the requests that arrive."""
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            response = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
            body = json.dumps(response if status == 200 else {"error": {"message": text}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print no log."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("home")
def test_a_model_answers_from_the_excerpts() -> None:
    question = ("recall", "e923391d", "why were half pennies lost", "--model", "tiny", "--url")
    with model(200, "Amounts were floats [23].") as (url, requests):
        assert "\nAmounts were floats [23].\n" in run(*question, url).stdout
        assert run_json(*question, url)["answer"] == "Amounts were floats [23]."
    assert requests[0]["model"] == "tiny"
    assert "why were half pennies lost" in requests[0]["messages"][-1]["content"]
    assert "Half pennies were lost" in requests[0]["messages"][-1]["content"]
    with model(200, "NOT IN THIS SESSION") as (url, _):
        result = run(*question, url)
        assert result.exit_code == 1
        assert "Not in this session." in result.stdout


@pytest.mark.usefixtures("home")
def test_a_model_that_cannot_be_reached_is_an_error_with_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    question = ("recall", "e923391d", "why were half pennies lost", "--model", "tiny")
    message = str(run(*question).exception)
    assert "set OPENAI_API_KEY" in message
    assert "--url" in message
    assert "http://localhost" in str(run(*question, "--url", "localhost").exception)
    with model(404, "no such model") as (url, _):
        message = str(run(*question, "--url", url).exception)
    assert "no such model" in message
    assert "omit --model" in message


def test_sync_reports_new_messages_once(home: Path) -> None:
    first = run_json("sync", "--source", str(home / "runs"))
    assert first["new"] == 5
    assert first["messages"] == first["sizes"]["messages"] > 100
    second = run_json("sync", "--source", str(home / "runs"))
    assert (second["new"], second["grown"], second["messages"]) == (0, 0, 0)
    assert "Archived: " in run("sync").stdout
    assert "memory" in run_json()
    assert "Archive: 6 sessions with" in run().output


def test_sync_names_files_that_cannot_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = home / "mini" / "last_mini_run.traj.json"
    broken.parent.mkdir()
    broken.write_text('{"messages": 5}')
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(broken.parent))
    result = run("sync", "--json")
    assert result.exit_code == 1
    assert broken.name in result.stderr
    assert len(json.loads(result.stdout)["failed"]) == 1
    assert run("search", *QUESTION).exit_code == 0


@pytest.mark.usefixtures("home")
def test_forget_confirms_lists_and_deletes() -> None:
    run("sync")
    assert run("forget").exit_code == 2
    assert run("forget", "e923391d", "--project", "shop").exit_code == 2
    assert "--yes" in str(run("forget", "e923391d").exception)
    assert "would be deleted" in run("forget", "e923391d", "--dry-run").stdout
    assert run_json("search", *QUESTION)["sessions"][0]["id"].startswith("e923391d")
    result = run("forget", "e923391d", "--yes", "--json")
    assert json.loads(result.stdout)["removed"] is True
    assert "rebuilding the index" in result.stderr
    again = json.loads(run("search", *QUESTION, "--json").stdout)["sessions"]
    assert not any(one["id"].startswith("e923391d") for one in again)
    assert "No session in the archive matches" in run("forget", "--project", "no-such-folder", "--yes").stdout
    assert run("forget", "--project", "no-such-folder", "--yes").exit_code == 1
    assert len(run_json("forget", "--before", "2026-03-15", "--yes")["sessions"]) == 2


def test_forget_store_deletes_removed_text() -> None:
    default_content_store().put([Text("something that was removed")])
    assert run("forget", "--store", "--project", "shop").exit_code == 2
    assert "--yes" in str(run("forget", "--store").exception)
    assert run_json("forget", "--store", "--before", "1d", "--yes")["parts"] == 0
    assert "1 removed part deleted" in run("forget", "--store", "--yes").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_forget_shows_the_progress_of_the_new_index(home: Path) -> None:
    run("sync")
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "thresher.cli", "forget", "e923391d", "--yes"]
    subprocess.run(command, stderr=terminal, stdout=subprocess.DEVNULL, check=True, env=os.environ | {"TERM": "xterm"})
    os.close(terminal)
    with os.fdopen(reader, "rb", buffering=0) as stream:
        assert b"building the index" in stream.read(65_536)
    assert home.is_dir()


@pytest.mark.parametrize(("percent", "expected"), [(True, "27%"), (False, "27000000/100000000")])
def test_a_progress_bar_starts_with_the_total(percent: bool, expected: str) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=120)
    with common.progress_bar("reading", percent=percent, console=console) as progress:
        assert progress is not None
        progress(27_000_000, 100_000_000)
    assert isinstance(console.file, StringIO)
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", console.file.getvalue())
    assert expected in shown
    assert "?" not in shown


def test_reading_commands_create_no_archive(home: Path) -> None:
    assert run_json()["memory"]["sessions"] == 0
    assert "claude-code" in run().stdout
    assert run("show", "nobody").exit_code == 1
    assert not (home / "thresher").exists()


def test_a_session_without_a_file_is_shown_from_the_archive(home: Path) -> None:
    file = next((home / ".claude").rglob("111fbf01*.jsonl"))
    file.write_text(file.read_text(encoding="utf-8").replace("The numbers start", f"Use {SECRET}. The numbers start"))
    run("sync")
    file.unlink()
    result = run("show", "111fbf01")
    assert result.exit_code == 0
    assert "from the archive: its file was deleted" in result.stderr
    assert "The numbers start at 20417." in result.stdout
    assert SECRET not in result.stdout
    assert "[redacted github-token]" in result.stdout
    assert SECRET in run("show", "111fbf01", "--reveal").stdout
    assert SECRET not in run("convert", "111fbf01", "--to", "anthropic").stdout
    found = run_json("search", "bookkeeper", "CSV")["sessions"][0]
    assert found["file_deleted"] is True
    assert "the file is gone" in run("search", "bookkeeper", "CSV").stdout


def test_secrets_are_redacted_in_every_part_of_a_session() -> None:
    extras = VendorExtras("anthropic", fields=json.dumps({"note": SECRET}))
    parts = (
        Text(f"use {SECRET}", extras),
        Thinking(f"it is {SECRET}", "signed"),
        ToolCall("1", "Bash", json.dumps({"command": f"export T={SECRET}"})),
        ToolResult("1", (Text(SECRET), Unknown("odd", json.dumps({"x": SECRET})))),
        Unknown("odd", json.dumps({"x": SECRET})),
        Thinking("nothing here", "signed"),
    )
    history = History((Message("assistant", parts, records=(SECRET.encode(),), pocket=extras),), SECRET, extras)
    child = Session("claude-code", "child", "f", (history,))
    clean = redact_session(Session("claude-code", "x", "f", (history,), children=(child,), title=SECRET))
    assert SECRET not in repr(clean)
    kept = clean.history[0].parts
    assert [type(part) for part in kept] == [Text, Thinking, ToolCall, ToolResult, Text, Thinking]
    assert [part.signature for part in kept if isinstance(part, Thinking)] == ["", "signed"]
    assert "export T=" in part_text(kept[2])


def test_the_demo_searches_the_samples_in_an_archive_of_their_own(home: Path) -> None:
    value = run_json("demo", "--to", str(home / "samples"))
    assert value["search"]["sessions"][0]["id"].startswith("e923391d")
    output = run("demo", "--to", str(home / "samples")).output
    assert "Half pennies were lost" in output
    command = next(line for line in output.split("\n") if "THRESHER_HOME=" in line)
    setting, _, *arguments = shlex.split(command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*setting.split("="))
        assert "Half pennies were lost" in run(*arguments).output
    assert run_json()["memory"]["sessions"] == 0
