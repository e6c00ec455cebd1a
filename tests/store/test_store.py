"""Every kind of store restores its content without loss."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies import parts
from thresher.model import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown, VendorExtras, content_id
from thresher.store import (
    AmbiguousIdError,
    ContentStore,
    InMemoryContentStore,
    NotStoredError,
    SqliteContentStore,
    StoreError,
    compute_summary_id,
    default_content_store,
    exact_id,
    get_data_folder,
    get_restorable_text,
    short_id,
)
from thresher.store.part_codec import strip_vendor_extras

NOWHERE = "t1:" + "0" * 32
ODD = ("", "\ud83d", "\ud83d\ude00", "\ude00\ud83d", "\x00", "\u2028\u2029\x7f\x85", "a\r\nb\r", "\ufeff", "é e\u0301")
"""Hard texts: lone surrogates, also adjacent ones, NUL, unusual line ends."""


def in_memory(folder: Path) -> ContentStore:
    del folder
    return InMemoryContentStore()


def in_file(folder: Path) -> ContentStore:
    return SqliteContentStore(folder / "new" / "store.sqlite3")


MAKERS: list[Callable[[Path], ContentStore]] = [in_memory, in_file]


@pytest.fixture(params=MAKERS, ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ContentStore:
    made: ContentStore = request.param(tmp_path)
    return made


def fresh() -> Iterator[ContentStore]:
    """Create one store of each kind, for a property test."""
    with tempfile.TemporaryDirectory() as folder:
        for make in MAKERS:
            yield make(Path(folder))


def same(found: object, part: Part) -> bool:
    """Compare parts without vendor extras, call ids and tool names."""
    wanted = strip_vendor_extras(part)
    if isinstance(found, ToolCall) and isinstance(wanted, ToolCall):
        return (found.name, found.arguments) == (wanted.name, wanted.arguments)
    if isinstance(found, ToolResult) and isinstance(wanted, ToolResult):
        return (found.content, found.is_error) == (wanted.content, wanted.is_error)
    return found == wanted


@given(st.lists(parts, max_size=6))
@example([Text(text) for text in ODD])
@example([ToolCall("", "Read", '{"a":1}'), ToolCall("", "Read", '{"a": 1}'), ToolCall("", "Read", '{ "a":1}')])
@example([ToolResult("", (Unknown("x", "[1, 2]"),)), ToolResult("", (Unknown("x", "[1,2]"),))])
def test_every_part_is_restored_by_its_exact_id(given_parts: list[Part]) -> None:
    for store in fresh():
        store.put(given_parts)
        for part in given_parts:
            id = exact_id(part)
            assert same(store.get(id), part)
            assert store.text(short_id(id)) == get_restorable_text(part)
            assert store.has([id, short_id(id), content_id(part)]) == {id, short_id(id), content_id(part)}


@given(parts, parts)
def test_equal_exact_ids_mean_equal_parts(one: Part, other: Part) -> None:
    if exact_id(one) == exact_id(other):
        assert same(strip_vendor_extras(one), other)
    else:
        assert not same(strip_vendor_extras(one), other)


@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
def test_storing_again_changes_nothing(first: list[Part], second: list[Part]) -> None:
    for store in fresh():
        store.put(first)
        before = [(store.get(exact_id(part)), store.get(content_id(part))) for part in first]
        store.put([*second, *first])
        assert [(store.get(exact_id(part)), store.get(content_id(part))) for part in first] == before


def test_a_part_is_found_by_its_content_id_too_and_the_first_one_wins(store: ContentStore) -> None:
    tight, wide = ToolCall("1", "Read", '{"a":1}'), ToolCall("2", "Read", '{ "a": 1 }')
    assert content_id(tight) == content_id(wide)
    store.put([wide])
    store.put([tight])
    assert store.text(content_id(tight)) == '{ "a": 1 }'
    assert store.text(exact_id(tight)) == '{"a":1}'


def test_vendor_extras_are_not_stored(store: ContentStore) -> None:
    pocket = VendorExtras("anthropic", '{"x":1}')
    part = ToolResult("1", (Text("a", pocket),), pocket=pocket)
    store.put([part])
    assert store.get(exact_id(part)) == ToolResult("1", (Text("a"),))


def test_a_very_long_text_is_restored_whole(store: ContentStore) -> None:
    text = "".join(f"{number} ☃ \x00\ud83d\n" for number in range(900_000))
    assert len(text) > 10_000_000
    store.put([Text(text)])
    assert store.text(exact_id(Text(text))) == text


ID = exact_id(Text("hello"))


@pytest.mark.parametrize(
    "asked",
    [
        ID, ID[:19], ID[:11], ID[3:], ID[3:19], ID[3:11], ID.upper(), f"[{ID[:19]}]", f'"{ID[:19]}"', f"`{ID[3:19]}`",
        f" {ID}\n", f"[Result of Read deadbeef0.py left out; restore {ID[:19]}]", f"({ID[:19]}).",
    ],
)  # fmt: skip
def test_an_id_is_found_in_every_copied_form(store: ContentStore, asked: str) -> None:
    store.put([Text("hello"), Text("other")])
    assert store.text(asked) == "hello"
    assert store.has([asked, NOWHERE]) == {asked}


@pytest.mark.parametrize("asked", ["", "t1:", ID[:10], ID[3:10], "hello", "t1:xyzxyzxy", ID + "0", "x" + ID[3:], "☃"])
def test_the_error_for_an_invalid_id_describes_a_valid_one(store: ContentStore, asked: str) -> None:
    store.put([Text("hello")])
    assert store.get(asked) is None
    assert store.has([asked]) == set()
    with pytest.raises(NotStoredError, match="8 to 32"):
        store.text(asked)


def test_the_error_for_a_missing_id_names_what_to_check(store: ContentStore) -> None:
    with pytest.raises(NotStoredError, match=f"{NOWHERE}.*THRESHER_HOME"):
        store.text(NOWHERE)


def test_the_error_for_an_ambiguous_prefix_asks_for_more_digits(store: ContentStore) -> None:
    one, other = "t1:12345678" + "a" * 24, "t1:12345678" + "b" * 24
    store.put((), {one: []})
    store.put((), {other: [ID]})
    for ask in (store.get, store.text):
        with pytest.raises(AmbiguousIdError, match="more of its 32 digits"):
            ask("t1:12345678")
    assert store.has(["12345678"]) == {"12345678"}
    assert store.get("12345678b") == (ID,)


def test_a_summary_restores_its_members_in_order(store: ContentStore) -> None:
    members: list[Part] = [
        Text("what\nnow"), Thinking("hm"), ToolCall("1", "Read", '{"path": "a"}'), ToolResult("1", (Text("…"),)),
        ToolResult("2", is_error=True), Image("image/png", "QUJD"), Summary("before"), Unknown("odd\nkind", "{}"),
    ]  # fmt: skip
    ids = [exact_id(part) for part in members]
    id = compute_summary_id([*ids, NOWHERE])
    store.put(members)
    store.put((), {id: [*ids, NOWHERE]})
    assert store.get(short_id(id)) == (*ids, NOWHERE)
    short = [short_id(one) for one in ids]
    assert store.text(short_id(id)) == "\n".join(
        (
            f"--- {short[0]}, text, 8 characters ---\nwhat\nnow",
            f"--- {short[1]}, thinking, 2 characters ---\nhm",
            f'--- {short[2]}, call of Read, 13 characters ---\n{{"path": "a"}}',
            f"--- {short[3]}, result, 1 characters ---\n…",
            f"--- {short[4]}, failed result, 0 characters ---\n",
            f"--- {short[5]}, image/png, 0 characters ---\n",
            f"--- {short[6]}, summary, 6 characters ---\nbefore",
            f"--- {short[7]}, odd kind, 2 characters ---\n{{}}",
            f"--- {short_id(NOWHERE)}, not in this store ---",
        )
    )


def test_a_nested_summary_is_restored_and_a_cycle_ends(store: ContentStore) -> None:
    store.put([Text("a")])
    inner, outer = compute_summary_id(["in"]), compute_summary_id(["out"])
    store.put((), {inner: [exact_id(Text("a")), outer]})
    store.put((), {outer: [inner]})
    told = store.text(outer).splitlines()
    assert told[0] == f"--- {short_id(inner)}, a summary of 2 ---"
    assert told[2:] == ["a", f"--- {short_id(outer)}, the summary itself ---"]


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_summaries_of_different_members_have_different_ids(one: list[str], other: list[str]) -> None:
    assert (compute_summary_id(one) == compute_summary_id(other)) == (one == other)


def test_ids_have_one_form() -> None:
    call = ToolCall("1", "Read", "{}")
    assert [len(exact_id(call)), len(short_id(exact_id(call))), len(compute_summary_id([]))] == [35, 19, 35]
    assert exact_id(Text("a")) == content_id(Text("a"))
    assert exact_id(call) != content_id(call)


# --- the file ------------------------------------------------------------------------------------------------


def test_reading_creates_nothing(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "new" / "store.sqlite3")
    assert store.get(ID) is None
    assert store.has([ID]) == set()
    with pytest.raises(NotStoredError):
        store.text(ID)
    store.put([])
    assert list(tmp_path.iterdir()) == []


def test_reading_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    store.put([Text("hello")])
    before = sorted(tmp_path.iterdir())
    assert store.text(ID) == "hello"
    assert sorted(tmp_path.iterdir()) == before == [store.path]


def test_the_store_has_a_write_ahead_log_and_one_table(tmp_path: Path) -> None:
    SqliteContentStore(tmp_path / "store.sqlite3").put([Text("hello")])
    with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("kept",)]


def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").touch()
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    assert store.has([ID]) == set()
    store.put([Text("hello")])
    assert store.text(ID) == "hello"


def test_the_error_for_an_unwritable_folder_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    store = SqliteContentStore(tmp_path / "file" / "store.sqlite3")
    with pytest.raises(StoreError, match=r"store\.sqlite3: cannot be written"):
        store.put([Text("hello")])
    with pytest.raises(StoreError, match=r"store\.sqlite3: cannot be written"):
        store.put((), {NOWHERE: []})


def test_the_error_for_another_kind_of_file_names_it_and_does_not_change_it(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    path.write_bytes(b"a letter to a friend" * 100)
    for ask in (SqliteContentStore(path).get, lambda _: SqliteContentStore(path).put([Text("hello")])):
        with pytest.raises(StoreError, match=r"store\.sqlite3"):
            ask(ID)
    assert path.read_bytes() == b"a letter to a friend" * 100


def test_a_damaged_part_raises_another_error_than_a_missing_one(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    store.put([Text("hello" * 1000)])
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("UPDATE kept SET body = x'00'")
        connection.commit()
    with pytest.raises(StoreError, match="damaged"):
        store.text(exact_id(Text("hello" * 1000)))


RUN = (
    "import sys; from thresher.store import *; from thresher.model import Text; "
    "store = SqliteContentStore(sys.argv[1]); "
)


def run(path: Path, code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUN + code, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    code = "[store.put([Text(f'{sys.argv[2]} {n}'), Text(f'both {n}')]) for n in range(40)]"
    writers = [run(path, code, name) for name in ("one", "other")]
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    wanted = {exact_id(Text(f"{name} {n}")) for name in ("one", "other", "both") for n in range(40)}
    assert SqliteContentStore(path).has(wanted) == wanted


def test_threads_may_share_one_store(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: store.put([Text(str(n))]), range(20)))
        assert list(threads.map(lambda n: store.text(exact_id(Text(str(n)))), range(20))) == [str(n) for n in range(20)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_an_error_and_keeps_stored_content(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    SqliteContentStore(path).put([Text("hello")])
    code = (
        "import os, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "try:\n    store.put([Text('small'), Text(os.urandom(200_000).hex())])\n"
        "except StoreError as error:\n    print(error)"
    )
    output, errors = run(path, code).communicate()
    assert (output.startswith(f"{path}: cannot be written ("), errors) == (True, "")
    store = SqliteContentStore(path)
    assert store.has([ID, exact_id(Text("small"))]) == {ID}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users and permissions")
def test_a_read_only_home_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    store = SqliteContentStore(folder / "store.sqlite3")
    store.put([Text("hello")])
    store.path.chmod(0o444)
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        assert store.text(ID) == "hello"
        store.put([Text("hello")])
        with pytest.raises(StoreError, match="cannot be written"):
            store.put([Text("new")])
    finally:
        folder.chmod(0o755)


def test_the_default_store_is_in_the_configured_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "one"))
    one = default_content_store()
    assert one.path == get_data_folder() / "store.sqlite3" == tmp_path / "one" / "store.sqlite3"
    assert default_content_store() is one
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "other"))
    assert default_content_store().path == tmp_path / "other" / "store.sqlite3"
    monkeypatch.delenv("THRESHER_HOME")
    assert get_data_folder().name == "thresher"


def test_importing_the_store_does_not_import_sqlite() -> None:
    script = "import sys, thresher.store; print('sqlite3' in sys.modules, 'platformdirs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
