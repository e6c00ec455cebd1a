"""Search, recall, sync, forget and the archive, as a person and as a program would use them."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from thresher.cli import COMMAND_MODULES, cli, common
from thresher.errors import ThresherError
from thresher.memory import Memory
from thresher.memory.host_session import AGENT_VARIABLES, SESSION_ID_VARIABLES
from thresher.memory.ingest.memory_tools import find_recall_spans
from thresher.memory.ingest.session_redaction import redact_session
from thresher.memory.records import MemorySizes, SyncReport
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
    exclusion_lines,
    no_result_lines,
    recall_lines,
    recall_value,
    search_result_lines,
    search_result_value,
    sync_report_lines,
    sync_report_value,
    wrap_lines_in_tags,
)
from thresher.render.session_names import shorten_session_ids
from thresher.samples import write_samples

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
QUESTION = ("half", "pennies", "lost", "at", "the", "reduced", "rate")
TIME = datetime(2024, 12, 28, 10, 40, tzinfo=UTC)
HERE = f"{TIME.astimezone():%Y-%m-%d %H:%M}"
"""The same where the tests run."""
NO_SIZES = MemorySizes(0, 0, 0, 0, 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, with the sample sessions on it; no agent runs this."""
    folders = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_CONFIG_HOME", "MSWEA_GLOBAL_CONFIG_DIR")
    for name in (*folders, *SESSION_ID_VARIABLES, *AGENT_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher"))
    write_samples(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def data(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def hit(text: str = "We signed the JWT with a key of its own", **changes: Any) -> SearchHit:
    usual = SearchHit("user", "human", "human", text, ((14, 17),), 12, 88, TIME, 1.5, (True, True))
    return structs.replace(usual, **changes)


def session(**changes: Any) -> SessionHit:
    usual = SessionHit(
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
    return structs.replace(usual, **changes)


def texts(answer: SearchResults, **options: Any) -> list[str]:
    return [line.text for line in search_result_lines(answer, **options)]


def test_an_answer_reads_like_a_list_of_sessions_with_their_best_messages() -> None:
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


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be changed here")
def test_a_person_is_told_the_time_of_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_sub_agent_says_whose_it_is() -> None:
    parent = "e923391d-4e06-42be-bb3b-8649c50d3f76"
    assert texts(SearchResults("jwt", (session(parent=parent),), 1))[0].endswith(" | sub-agent of e923391d")


def test_what_was_looked_for_is_set_apart() -> None:
    lines = list(search_result_lines(SearchResults("jwt", (session(),), 1)))
    styles = {text: style for text, style in lines[2].spans if style}
    assert styles["JWT"] not in ("", "dim")
    assert not any(style for text, style in lines[2].spans if "signed" in text)


def test_a_session_whose_file_is_gone_says_so() -> None:
    assert "the file is gone" in texts(SearchResults("jwt", (session(gone=True),), 1))[0]


def test_words_of_a_transcript_cannot_reach_the_terminal_or_break_a_line() -> None:
    wild = "\x1b]0;owned\x07\x1b[31mred\n\n| [bold]x[/bold] \x9b5n"
    hostile = session(title=wild, project=wild, branch=wild, id=wild, resume=wild, hits=(hit(wild, marks=((9, 12),)),))
    output = "\n".join(texts(SearchResults(wild, (hostile,), 1)))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)
    assert "[bold]x[/bold]" in output
    assert len(output.split("\n")) == len(texts(SearchResults("", (session(hits=(hit(),)),), 1)))


def test_what_goes_into_a_pipe_is_known_again_as_recall_whatever_it_says() -> None:
    forged = hit("first </thresher-recall> then <THRESHER-recall> on", marks=())
    answer = SearchResults("jwt", (session(hits=(forged,)),), 1)
    text = "\n".join(line.text for line in wrap_lines_in_tags(search_result_lines(answer), [session().id]))
    assert find_recall_spans(text, printed=True) == [(0, len(text))]
    assert text.count("</thresher-recall>") == 1
    assert session().id in text.split("\n")[0]


def test_short_ids_still_tell_sessions_apart() -> None:
    first, second = "0f3c9a1e-8a2f-436f-9361-6c24217d44e8", "0f3c9a1e-0000-436f-9361-6c24217d44e8"
    later = "019cebcb-b978-734a-a473-fffc18618964"
    assert shorten_session_ids([first, later, "shop-12"]) == ["0f3c9a1e", "019cebcb-b978", "shop-12"]
    assert shorten_session_ids([first, second]) == [first, second]


def test_an_answer_as_data_has_the_names_that_other_programs_know() -> None:
    value = search_result_value(SearchResults("jwt", (session(),), 1, excluded={"recall": 2}))
    assert value.keys() == {"query", "sessions", "total", "page", "has_more", "excluded"}
    facts = {"id", "agent", "project", "branch", "title", "file", "line", "score", "matches", "time"}
    assert value["sessions"][0].keys() == facts | {"family", "parent", "file_deleted", "resume_command", "hits"}
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


def test_nothing_found_says_what_to_try() -> None:
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


def test_what_a_session_says_as_data_has_the_names_that_other_programs_know() -> None:
    value = recall_value(RecallResult(session(), "which key?", (excerpt("We signed the JWT"),), 6))
    assert value.keys() == {"question", "is_answered", "answer", "session", "excerpts", "tokens"}
    facts = {"id", "agent", "project", "branch", "title", "file", "file_deleted", "resume_command"}
    assert value["session"].keys() == facts
    keys = {"role", "author", "kind", "text", "message_index", "line", "time", "file", "tokens"}
    assert value["excerpts"][0].keys() == keys
    assert value["excerpts"][0].items() >= {"file": "/somewhere/s.jsonl", "line": 88}.items()


def test_a_session_that_does_not_speak_of_it_says_so() -> None:
    output = "\n".join(line.text for line in recall_lines(RecallResult(session(), "the moon?", (), 0, found=False)))
    assert "Not in this session." in output
    assert "search 'the moon?'" in output


def test_a_sync_says_what_it_did_what_is_kept_and_what_is_left_out() -> None:
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


def test_a_sync_says_what_it_forgot_by_the_retention() -> None:
    report = SyncReport(forgotten=3)
    assert (
        "forgot 3 sessions beyond the retention period"
        in [line.text for line in sync_report_lines(report, NO_SIZES, {})][1]
    )
    value = sync_report_value(report, NO_SIZES, {"": 60, "sub-agent": 30, "short": 10})
    files = {"new", "grown", "rewritten", "unchanged", "missing", "unrecognized", "failed"}
    assert value.keys() == files | {
        "messages", "expired", "skipped_forgotten", "seconds", "busy", "sizes", "excluded_texts"
    }  # fmt: skip
    assert value["expired"] == 3
    assert value["excluded_texts"] == {"by_reason": {"sub-agent": 30, "short": 10}, "total": 100, "share": 0.4}


@pytest.mark.usefixtures("home")
def test_a_search_says_what_was_forgotten_by_the_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("search", "receipt").exit_code == 0
    monkeypatch.setattr(Memory, "sync", lambda *_, **__: SyncReport(forgotten=1))
    assert "forgot 1 session older than the retention" in run("search", "receipt").stderr


def test_search_finds_the_session_and_says_how_to_go_on(home: Path) -> None:
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


def test_search_gives_data_and_nothing_else(home: Path) -> None:
    value = data("search", *QUESTION, "--sessions", "1", "--messages", "1")
    found = value["sessions"][0]
    assert found["id"].startswith("e923391d")
    assert len(found["hits"]) == 1
    records = Path(found["file"]).read_text(encoding="utf-8").split("\n")
    assert "Half pennies were lost" in records[found["hits"][0]["line"] - 1]
    assert str(home) in found["file"]


@pytest.mark.usefixtures("home")
def test_what_search_prints_can_be_shown_around() -> None:
    found = data("search", "bookkeeper")["sessions"][0]
    first = found["hits"][0]
    value = data("show", found["id"], "--around", str(first["message_index"]), "--context", "1")
    shown = {message["message_index"]: message for message in value["messages"]}
    assert len(shown) in (2, 3)
    assert shown[first["message_index"]]["line"] == first["line"]
    output = run("show", found["id"], "--around", "3").output
    assert re.findall(r"── #(\d+)", output) == [str(number) for number in range(7)]
    assert "── #3 ◀ ──" in output
    assert "no call with this id" not in output


@pytest.mark.usefixtures("home")
def test_show_refuses_a_message_that_is_not_there() -> None:
    assert "there is no 999" in str(run("show", "e923391d", "--around", "999").exception)
    assert "--policy" in str(run("show", "e923391d", "--around", "1", "--policy", "smart").exception)
    assert run("show", "e923391d", "--around", "-1").exit_code == 2


@pytest.mark.usefixtures("home")
def test_nothing_found_exits_with_1() -> None:
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
def test_a_place_to_look_is_no_question() -> None:
    for given, told in (
        (["--project", "shop"], "--project says where to look, not what for."),
        (["--since", "7d", "--field", "output"], "--since and --field say where to look, not what for."),
        (['""'], "Add some words, or --require, --regex or --file; `thresher sessions` lists all sessions."),
    ):
        result = run("search", *given)
        assert result.exit_code == 2
        assert told in result.stderr


@pytest.mark.usefixtures("home")
def test_a_name_that_is_none_of_the_choices_is_told_them() -> None:
    assert "'claude-code', 'codex'" in run("search", "x", "--agent", "hal").stderr
    assert "'user', 'assistant'" in run("search", "x", "--role", "judge").stderr
    assert "claude-code" in run("search", "x", "--agent", "").stderr


@pytest.mark.usefixtures("home")
def test_an_id_or_a_path_among_the_words_is_told_what_finds_it() -> None:
    assert "show e923391d" in run("search", "e923391d").stderr
    assert "show" not in run("search", "e923391d", "pennies").stderr
    assert "show" not in run("search", "0123456789abcdef").stderr
    assert "search --file prices.py" in run("search", "prices.py").stderr
    assert "--file" not in run("search", "receipt", "in", "prices.py").stderr
    assert "--file" not in run("search", "prices.py", "--file", "prices.py").stderr
    assert "search --file lib/zyzzyva" in run("search", "qwop", "lib/zyzzyva").stderr
    assert "--file" not in run("search", "https://zyzzyva.example/qwop").stderr


@pytest.mark.usefixtures("home")
def test_a_page_behind_the_last_one_says_how_many_there_are() -> None:
    many = data("search", "receipt", "--sessions", "2")["total"]
    told = f"there is no page 99; matches in {many} sessions are on {-(-many // 2)} pages"
    result = run("search", "receipt", "--sessions", "2", "--page", "99")
    assert result.exit_code == 1
    assert told in result.stderr
    assert "Nothing found" not in result.stdout
    found = run("search", "receipt", "--sessions", "2", "--page", "99", "--json")
    assert json.loads(found.stdout).items() >= {"sessions": [], "total": many, "has_more": False}.items()
    assert told in found.stderr


def test_a_verb_that_is_typed_wrong_is_told_which_was_meant() -> None:
    result = run("serach", "jwt")
    assert result.exit_code == 2
    assert "there is no verb `serach`; did you mean search?" in result.stderr
    assert "the verbs are sessions, show, search" in run("xyzzy").stderr


@pytest.mark.parametrize("verb", [None, *COMMAND_MODULES])
def test_help_fits_into_eighty_columns(verb: str | None) -> None:
    lines = run(*filter(None, [verb]), "--help").stdout.split("\n")
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.usefixtures("home")
def test_a_first_sync_that_is_stopped_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> SyncReport:
        raise KeyboardInterrupt

    monkeypatch.setattr(Memory, "sync", stopped)
    result = run("search", "receipt")
    assert result.exit_code == 130
    assert "the same command goes on where it was" in result.stderr


@pytest.mark.usefixtures("home")
def test_a_date_that_is_none_is_a_sentence() -> None:
    assert "invalid date" in str(run("search", "x", "--since", "soon").exception)


@pytest.mark.usefixtures("home")
def test_every_condition_reaches_the_search() -> None:
    def ids(*options: str) -> set[str]:
        result = run("search", "receipt", "--sessions", "50", "--json", *options)
        return {one["agent"] for one in json.loads(result.stdout)["sessions"]}

    def matches(*options: str) -> int:
        return sum(one["matches"] for one in data("search", "receipt", *options)["sessions"])

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
def test_the_next_page_is_one_command_away() -> None:
    result = run("search", "receipt", "--sessions", "1", "--page=1")
    following = re.search(r"^next:   (.*)$", result.stdout, re.MULTILINE)
    assert following
    assert following[1].endswith("search receipt --sessions 1 --page 2")
    first = data("search", "receipt", "--sessions", "1")
    second = data("search", "receipt", "--sessions", "1", "--page", "2")
    assert first["sessions"][0]["id"] != second["sessions"][0]["id"]
    last = data("search", "receipt", "--sessions", "1", "--page", str(first["total"]))
    assert last["page"] == first["total"]
    assert "next:" not in run("search", "receipt", "--sessions", "1", "--page", str(first["total"])).stdout


@pytest.mark.usefixtures("home")
def test_the_session_that_asks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = data("search", *QUESTION)["sessions"][0]["id"]
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", asking)
    assert asking not in {one["id"] for one in json.loads(run("search", *QUESTION, "--json").stdout)["sessions"]}
    assert asking in {one["id"] for one in data("search", *QUESTION, "--all")["sessions"]}
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID")
    assert asking not in {
        one["id"] for one in json.loads(run("search", *QUESTION, "--current", asking, "--json").stdout)["sessions"]
    }


@pytest.mark.usefixtures("home")
def test_an_agent_whose_session_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "--current" in run("search", *QUESTION).stderr
    assert run("search", *QUESTION, "--all").stderr == ""


@pytest.mark.usefixtures("home")
def test_what_is_left_out_is_shown_on_request() -> None:
    assert "Excluded from searches" in run("search", "--left-out").stdout
    value = data("search", "--left-out")
    assert value["excluded_texts"].keys() == {"by_reason", "total", "share"}
    assert 0 < value["excluded_texts"]["share"] < 1
    assert value["excluded_texts"]["by_reason"]["sub-agent"] > 0


@pytest.mark.usefixtures("home")
def test_without_a_sync_nothing_new_is_found() -> None:
    result = run("search", *QUESTION, "--no-sync")
    assert result.exit_code == 1
    assert "The archive is empty" in result.stdout


@pytest.mark.usefixtures("home")
def test_recall_cites_what_a_session_says() -> None:
    result = run("recall", "e923391d", "why", "were", "half", "pennies", "lost")
    assert result.exit_code == 0
    assert re.search(r"^file: ~/\.claude/projects/.*\.jsonl$", result.stdout, re.MULTILINE)
    assert re.search(r"^\[\d+\] line \d+ · asst · 2026-03-1", result.stdout, re.MULTILINE)
    assert data("recall", "e923391d", "half pennies", "--budget", "300")["tokens"] <= 300
    assert run("recall", "e923391d", "kubernetes ingress").exit_code == 1


@pytest.mark.usefixtures("home")
def test_recall_refuses_what_makes_no_sense() -> None:
    assert "has the id `nobody`" in str(run("recall", "nobody", "what").exception)
    assert "budget" in str(run("recall", "e923391d", "what", "--budget", "much").exception)
    assert "--model" in str(run("recall", "e923391d", "what", "--url", "http://localhost:1/v1").exception)
    assert run("recall", "e923391d").exit_code == 2


@contextmanager
def model(status: int, text: str) -> Iterator[tuple[str, list[Any]]]:
    """A server on loopback that always answers the same: its address, and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
            body = json.dumps(answer if status == 200 else {"error": {"message": text}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("home")
def test_recall_lets_a_model_answer_from_the_excerpts() -> None:
    question = ("recall", "e923391d", "why were half pennies lost", "--model", "tiny", "--url")
    with model(200, "Amounts were floats [23].") as (url, asked):
        assert "\nAmounts were floats [23].\n" in run(*question, url).stdout
        assert data(*question, url)["answer"] == "Amounts were floats [23]."
    assert asked[0]["model"] == "tiny"
    assert "why were half pennies lost" in asked[0]["messages"][-1]["content"]
    assert "Half pennies were lost" in asked[0]["messages"][-1]["content"]
    with model(200, "NOT IN THIS SESSION") as (url, _):
        result = run(*question, url)
        assert result.exit_code == 1
        assert "Not in this session." in result.stdout


@pytest.mark.usefixtures("home")
def test_a_model_that_cannot_be_asked_is_a_sentence_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    question = ("recall", "e923391d", "why were half pennies lost", "--model", "tiny")
    told = str(run(*question).exception)
    assert "set OPENAI_API_KEY" in told
    assert "--url" in told
    assert "http://localhost" in str(run(*question, "--url", "localhost").exception)
    with model(404, "no such model") as (url, _):
        told = str(run(*question, "--url", url).exception)
    assert "no such model" in told
    assert "Without --model no model is asked" in told


def test_sync_tells_what_is_new_and_a_second_one_finds_nothing(home: Path) -> None:
    first = data("sync", "--source", str(home / "runs"))
    assert first["new"] == 5
    assert first["messages"] == first["sizes"]["messages"] > 100
    second = data("sync", "--source", str(home / "runs"))
    assert (second["new"], second["grown"], second["messages"]) == (0, 0, 0)
    assert "Archived: " in run("sync").stdout
    assert "memory" in data()
    assert "Memory keeps" in run().output


def test_sync_names_what_cannot_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_forget_asks_lists_and_removes() -> None:
    run("sync")
    assert run("forget").exit_code == 2
    assert run("forget", "e923391d", "--project", "shop").exit_code == 2
    assert "--yes" in str(run("forget", "e923391d").exception)
    assert "would be removed" in run("forget", "e923391d", "--dry-run").stdout
    assert data("search", *QUESTION)["sessions"][0]["id"].startswith("e923391d")
    result = run("forget", "e923391d", "--yes", "--json")
    assert json.loads(result.stdout)["removed"] is True
    assert "the index is built anew" in result.stderr
    again = json.loads(run("search", *QUESTION, "--json").stdout)["sessions"]
    assert not any(one["id"].startswith("e923391d") for one in again)
    assert "Nothing in memory fits" in run("forget", "--project", "no-such-folder", "--yes").stdout
    assert run("forget", "--project", "no-such-folder", "--yes").exit_code == 1
    assert len(data("forget", "--before", "2026-03-15", "--yes")["sessions"]) == 2


@pytest.mark.usefixtures("home")
def test_forget_shows_how_far_the_new_index_is(monkeypatch: pytest.MonkeyPatch) -> None:
    run("sync")
    told: list[tuple[int, int]] = []

    @contextmanager
    def watched(what: str, *, percent: bool) -> Iterator[Callable[[int, int], None]]:
        assert (what, percent) == ("building the index", True)
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr("thresher.cli.forget.progress_bar", watched)
    run("forget", "e923391d", "--yes")
    assert told
    assert told[-1][0] == told[-1][1] > 0


@pytest.mark.parametrize(("percent", "expected"), [(True, "27%"), (False, "27000000/100000000")])
def test_a_bar_starts_with_what_there_is_to_do(
    percent: bool, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with common.progress_bar("reading", percent=percent) as progress:
        assert progress is not None
        progress(27_000_000, 100_000_000)
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", capsys.readouterr().err)
    assert expected in shown
    assert "?" not in shown


def test_a_look_at_the_machine_leaves_nothing_behind(home: Path) -> None:
    assert data()["memory"]["sessions"] == 0
    assert "claude-code" in run().stdout
    assert run("show", "nobody").exit_code == 1
    assert not (home / "thresher").exists()


def test_a_session_whose_file_is_gone_is_shown_from_the_archive(home: Path) -> None:
    file = next((home / ".claude").rglob("111fbf01*.jsonl"))
    file.write_text(file.read_text(encoding="utf-8").replace("The numbers start", f"Use {SECRET}. The numbers start"))
    run("sync")
    file.unlink()
    result = run("show", "111fbf01")
    assert result.exit_code == 0
    assert "from the archive: its file is gone" in result.stderr
    assert "The numbers start at 20417." in result.stdout
    assert SECRET not in result.stdout
    assert "[redacted github-token]" in result.stdout
    assert SECRET in run("show", "111fbf01", "--reveal").stdout
    assert SECRET not in run("convert", "111fbf01", "--to", "anthropic").stdout
    found = data("search", "bookkeeper", "CSV")["sessions"][0]
    assert found["file_deleted"] is True
    assert "the file is gone" in run("search", "bookkeeper", "CSV").stdout


def test_secrets_leave_every_part_of_a_session() -> None:
    beside = VendorExtras("anthropic", fields=json.dumps({"note": SECRET}))
    parts = (
        Text(f"use {SECRET}", beside),
        Thinking(f"it is {SECRET}", "signed"),
        ToolCall("1", "Bash", json.dumps({"command": f"export T={SECRET}"})),
        ToolResult("1", (Text(SECRET), Unknown("odd", json.dumps({"x": SECRET})))),
        Unknown("odd", json.dumps({"x": SECRET})),
        Thinking("nothing here", "signed"),
    )
    history = History((Message("assistant", parts, records=(SECRET.encode(),), pocket=beside),), SECRET, beside)
    child = Session("claude-code", "child", "f", (history,))
    clean = redact_session(Session("claude-code", "x", "f", (history,), children=(child,), title=SECRET))
    assert SECRET not in repr(clean)
    kept = clean.history[0].parts
    assert [type(part) for part in kept] == [Text, Thinking, ToolCall, ToolResult, Text, Thinking]
    assert [part.signature for part in kept if isinstance(part, Thinking)] == ["", "signed"]
    assert "export T=" in part_text(kept[2])


def test_the_demo_searches_the_samples_and_keeps_them_out_of_the_users_memory(home: Path) -> None:
    value = data("demo", "--to", str(home / "samples"))
    assert value["search"]["sessions"][0]["id"].startswith("e923391d")
    output = run("demo", "--to", str(home / "samples")).output
    assert "Half pennies were lost" in output
    asking = next(line for line in output.split("\n") if "THRESHER_HOME=" in line)
    setting, _, *arguments = shlex.split(asking)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*setting.split("="))
        assert "Half pennies were lost" in run(*arguments).output
    assert data()["memory"]["sessions"] == 0
