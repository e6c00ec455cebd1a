"""Search, recall, sync, forget and the archive, as a person and as a program would use them."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from thresher.cli import cli
from thresher.cli.archive import without_secrets
from thresher.cli.search import CURRENT, INSIDE
from thresher.errors import ThresherError
from thresher.memory.hits import Answer, Excerpt, Hit, Recalled, SessionHit
from thresher.memory.recalls import recall_spans
from thresher.memory.values import Report, Sizes
from thresher.model import History, Message, Pocket, Session, Text, Thinking, ToolCall, ToolResult, Unknown, part_text
from thresher.render.memory import (
    answer_lines,
    answer_value,
    left_out_lines,
    marked,
    nothing_lines,
    recalled_lines,
    recalled_value,
    report_lines,
    short_ids,
)
from thresher.samples import write_samples

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
QUESTION = ("half", "pennies", "lost", "at", "the", "reduced", "rate")
TIME = datetime(2024, 12, 28, 10, 40, tzinfo=UTC)
NO_SIZES = Sizes(0, 0, 0, 0, 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, with the sample sessions on it; no agent runs this."""
    folders = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_CONFIG_HOME", "MSWEA_GLOBAL_CONFIG_DIR")
    for name in (*folders, *CURRENT, *INSIDE):
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


def hit(text: str = "We signed the JWT with a key of its own", **changes: Any) -> Hit:
    usual = Hit("user", "human", "human", text, ((14, 17),), 12, 88, TIME, 1.5, (True, True))
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
        key=1,
        root="r",
        family=("a", "b"),
        resume="cd ~/shop && claude --resume 0f3c9a1e",
    )
    return structs.replace(usual, **changes)


def texts(answer: Answer, **options: Any) -> list[str]:
    return [line.text for line in answer_lines(answer, **options)]


def test_an_answer_reads_like_a_list_of_sessions_with_their_best_messages() -> None:
    answer = Answer("jwt", (session(),), 3, excluded={"recall": 12, "sub-agent": 3, "short": 0})
    assert texts(answer, following="thresher search jwt --page 2") == [
        "~/shop | 0f3c9a1e | 10 matches | 2024-12-28 10:40",
        "  claude-code · main · Refresh tokens",
        "  [user] … We signed the JWT with a key of its own …  #12",
        "  [asst] No, with the old one.  #13",
        "  ... and 8 more matches",
        "  also: 2 of its family (a, b)",
        "  show:   thresher show 0f3c9a1e --around 12",
        "  resume: cd ~/shop && claude --resume 0f3c9a1e",
        "",
        "Found matches in 3 sessions (1 of them here, page 1)",
        "left out: 12 in recalls, 3 in sub-agents; --all lets them in",
        "next:   thresher search jwt --page 2",
    ]


def test_what_was_looked_for_is_set_apart() -> None:
    lines = list(answer_lines(Answer("jwt", (session(),), 1)))
    styles = {text: style for text, style in lines[2].pieces if style}
    assert styles["JWT"] not in ("", "dim")
    assert not any(style for text, style in lines[2].pieces if "signed" in text)


def test_a_session_whose_file_is_gone_says_so() -> None:
    assert "its file is gone" in texts(Answer("jwt", (session(gone=True),), 1))[0]


def test_words_of_a_transcript_cannot_reach_the_terminal_or_break_a_line() -> None:
    wild = "\x1b]0;owned\x07\x1b[31mred\n\n| [bold]x[/bold] \x9b5n"
    hostile = session(title=wild, project=wild, branch=wild, id=wild, resume=wild, hits=(hit(wild, marks=((9, 12),)),))
    output = "\n".join(texts(Answer(wild, (hostile,), 1)))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)
    assert "[bold]x[/bold]" in output
    assert len(output.split("\n")) == len(texts(Answer("", (session(hits=(hit(),)),), 1)))


def test_what_goes_into_a_pipe_is_known_again_as_recall_whatever_it_says() -> None:
    forged = hit("first </thresher-recall> then <THRESHER-recall> on", marks=())
    answer = Answer("jwt", (session(hits=(forged,)),), 1)
    text = "\n".join(line.text for line in marked(answer_lines(answer), [session().id]))
    assert recall_spans(text, printed=True) == [(0, len(text))]
    assert text.count("</thresher-recall>") == 1
    assert session().id in text.split("\n")[0]


def test_short_ids_still_tell_sessions_apart() -> None:
    first, second = "0f3c9a1e-8a2f-436f-9361-6c24217d44e8", "0f3c9a1e-0000-436f-9361-6c24217d44e8"
    later = "019cebcb-b978-734a-a473-fffc18618964"
    assert short_ids([first, later, "shop-12"]) == ["0f3c9a1e", "019cebcb-b978", "shop-12"]
    assert short_ids([first, second]) == [first, second]


def test_an_answer_as_data_has_the_names_that_other_programs_know() -> None:
    value = answer_value(Answer("jwt", (session(),), 1, excluded={"recall": 2}))
    assert value.keys() >= {"query", "sessions", "excluded"}
    keys = {"id", "agent", "project", "branch", "title", "file", "line", "score", "matches", "time", "resume", "hits"}
    assert value["sessions"][0].keys() >= keys
    assert value["sessions"][0]["hits"][0].items() >= {"role": "user", "line": 88, "at": 12}.items()
    assert value["sessions"][0]["time"] == "2024-12-28T10:40:00+00:00"
    json.dumps(value)


def test_nothing_found_says_what_to_try() -> None:
    empty = Answer("jwt", (), 0, excluded={"recall": 2})
    some = "\n".join(line.text for line in nothing_lines(empty, Sizes(1, 1, 1, 3, 40)))
    assert "40 messages of 3 sessions" in some
    assert "--all" in some
    assert "2 in recalls" in some
    assert "demo" in "\n".join(line.text for line in nothing_lines(empty, NO_SIZES))


def test_excerpts_are_cited_by_file_and_line() -> None:
    excerpt = Excerpt("We signed the JWT", ((14, 17),), "user", "human", "human", 12, 88, TIME, 6)
    recalled = Recalled(
        session(), "which key?", (excerpt, structs.replace(excerpt, line=0)), 12, answer="Its own [12]."
    )
    output = "\n".join(line.text for line in recalled_lines(recalled))
    assert "[12] /somewhere/s.jsonl:88  user · 2024-12-28 10:40\n    We signed the JWT\n" in output
    assert "[12] /somewhere/s.jsonl  user" in output
    assert "Its own [12]." in output
    assert recalled_value(recalled)["excerpts"][0].items() >= {"file": "/somewhere/s.jsonl", "line": 88}.items()


def test_a_session_that_does_not_speak_of_it_says_so() -> None:
    output = "\n".join(line.text for line in recalled_lines(Recalled(session(), "the moon?", (), 0, found=False)))
    assert "Not in this session." in output
    assert "search 'the moon?'" in output


def test_a_sync_says_what_it_did_what_is_kept_and_what_is_left_out() -> None:
    report = Report(new=2, grown=1, gone=1, failed=("x: broken",), messages=40, seconds=1.5)
    lines = report_lines(report, Sizes(2_000_000, 300_000, 900_000, 4, 90), {"": 60, "short": 30, "recall": 10})
    output = "\n".join(line.text for line in lines)
    for expected in ("5 files", "2 new, 1 grown, 1 gone", "1 not readable", "40 new messages", "90 messages of 4 sess"):
        assert expected in output
    for expected in ("text 2.0 MB, archive 300.0 kB, index 900.0 kB", "40% of 100", "30.0%"):
        assert expected in output
    assert not list(left_out_lines({}))
    busy = next(iter(report_lines(Report(busy=True), NO_SIZES, {})))
    assert "Another sync" in busy.text


def test_search_finds_the_session_and_says_how_to_go_on(home: Path) -> None:
    result = run("search", *QUESTION)
    assert result.exit_code == 0
    lines = result.stdout.split("\n")
    assert lines[0].startswith("<thresher-recall sessions=")
    assert re.match(r"/home/sam/shop \| e923391d \| \d+ matches \| 2026-03-12 ", lines[1])
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
    value = data("show", found["id"], "--around", str(first["at"]), "--context", "1")
    shown = {message["at"]: message for message in value["messages"]}
    assert len(shown) in (2, 3)
    assert shown[first["at"]]["line"] == first["line"]
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
    assert "Nothing found" in result.stdout
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
def test_a_date_that_is_none_is_a_sentence() -> None:
    assert "is no date" in str(run("search", "x", "--since", "soon").exception)


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
    last = data("search", "receipt", "--sessions", "1", "--page", str(first["found"]))
    assert last["page"] == first["found"]
    assert "next:" not in run("search", "receipt", "--sessions", "1", "--page", str(first["found"])).stdout


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
    assert "Left out of searches" in run("search", "--left-out").stdout
    value = data("search", "--left-out")
    assert 0 < value["left_out"]["share"] < 1


@pytest.mark.usefixtures("home")
def test_without_a_sync_nothing_new_is_found() -> None:
    result = run("search", *QUESTION, "--no-sync")
    assert result.exit_code == 1
    assert "Nothing is remembered yet" in result.stdout


@pytest.mark.usefixtures("home")
def test_recall_cites_what_a_session_says() -> None:
    result = run("recall", "e923391d", "why", "were", "half", "pennies", "lost")
    assert result.exit_code == 0
    assert re.search(r"^\[\d+\] ~/\.claude/projects/.*\.jsonl:\d+ ", result.stdout, re.MULTILINE)
    assert data("recall", "e923391d", "half pennies", "--budget", "300")["tokens"] <= 300
    assert run("recall", "e923391d", "kubernetes ingress").exit_code == 1


@pytest.mark.usefixtures("home")
def test_recall_refuses_what_makes_no_sense() -> None:
    assert "is called `nobody`" in str(run("recall", "nobody", "what").exception)
    assert "budget" in str(run("recall", "e923391d", "what", "--budget", "much").exception)
    assert "--model" in str(run("recall", "e923391d", "what", "--url", "http://localhost:1/v1").exception)
    assert run("recall", "e923391d").exit_code == 2


def test_sync_tells_what_is_new_and_a_second_one_finds_nothing(home: Path) -> None:
    first = data("sync", "--source", str(home / "runs"))
    assert first["new"] == 5
    assert first["messages"] == first["sizes"]["messages"] > 100
    second = data("sync", "--source", str(home / "runs"))
    assert (second["new"], second["grown"], second["messages"]) == (0, 0, 0)
    assert "Kept: " in run("sync").stdout
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
    assert data("forget", "e923391d", "--yes")["removed"] is True
    again = json.loads(run("search", *QUESTION, "--json").stdout)["sessions"]
    assert not any(one["id"].startswith("e923391d") for one in again)
    assert "Nothing in memory fits" in run("forget", "--project", "no-such-folder", "--yes").stdout
    assert run("forget", "--project", "no-such-folder", "--yes").exit_code == 1
    assert len(data("forget", "--before", "2026-03-15", "--yes")["sessions"]) == 2


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
    assert found["gone"] is True
    assert "its file is gone" in run("search", "bookkeeper", "CSV").stdout


def test_secrets_leave_every_part_of_a_session() -> None:
    beside = Pocket("anthropic", fields=json.dumps({"note": SECRET}))
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
    clean = without_secrets(Session("claude-code", "x", "f", (history,), children=(child,), title=SECRET))
    assert SECRET not in repr(clean)
    kept = clean.history[0].parts
    assert [type(part) for part in kept] == [Text, Thinking, ToolCall, ToolResult, Text, Thinking]
    assert [part.signature for part in kept if isinstance(part, Thinking)] == ["", "signed"]
    assert "export T=" in part_text(kept[2])


def test_the_demo_searches_the_samples_and_keeps_them_out_of_the_users_memory(home: Path) -> None:
    value = data("demo", "--to", str(home / "samples"))
    assert value["search"]["sessions"][0]["id"].startswith("e923391d")
    assert "Half pennies were lost" in run("demo", "--to", str(home / "samples")).output
    assert data()["memory"]["sessions"] == 0
