"""An index with damaged files is rebuilt, and the next search is right."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from chats import chat, name, places, synced, talk

from thresher.memory import Memory
from thresher.memory.index.integrity import META_FILE, digest_contents, is_segment_damaged, read_file_stamps
from thresher.memory.index.tantivy_index import STATE_FILE, TantivyIndex
from thresher.memory.session_store import SessionStore
from thresher.store.errors import StoreError

WORDS = ("topic3", "topic69", "one more")
FLIPS = 60 if os.environ.get("THRESHER_TEST_PROFILE") == "thorough" else 6
"""Number of changed bytes that are tried in each file; of numbers in a JSON file, the same again."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a home with an index of two segments, one of which has deleted documents."""
    home = tmp_path_factory.mktemp("home")
    files = home / "files"
    files.mkdir()
    (files / f"{name(1)}.jsonl").write_bytes(talk(name(1), 70))
    store = SessionStore(home / "memory")
    synced(store, files)
    (files / f"{name(1)}.jsonl").write_bytes(talk(name(1), 90))
    (files / f"{name(2)}.jsonl").write_bytes(chat(name(2), ["and one more session of topic69"]))
    synced(store, files)
    assert len([*(home / "memory" / "index").glob("*.idx")]) > 1
    assert [*(home / "memory" / "index").glob("*.del")]
    return home


def _damages(data: bytes, random: Random) -> Iterator[tuple[str, bytes | None]]:
    yield "deleted", None
    for size in (0, 1, len(data) // 2, max(len(data) - 1, 0)):
        yield f"truncated to {size}", data[:size]
    yield "longer", data + b"\0"
    yield "zeros", bytes(len(data))
    yield "garbage", random.randbytes(len(data))
    spread = [random.randrange(len(data)) for _ in range(FLIPS)] if data else []
    digits = [at for at, byte in enumerate(data) if chr(byte).isdigit()] if data.startswith((b"{", b"[")) else []
    for at in chain(spread, random.sample(digits, min(FLIPS, len(digits)))):
        yield f"byte {at} changed", _flip(data, at, 1 << random.randrange(4))


def _flip(data: bytes, at: int, bits: int = 0xFF) -> bytes:
    return data[:at] + bytes((data[at] ^ bits,)) + data[at + 1 :]


def _found(home: Path, files: Path) -> list[list[tuple[str, int]]]:
    memory = Memory(home=home, sources=[files], discover=False)
    memory.sync()
    return [places(memory.store, word) for word in WORDS]


def _overwrite(path: Path, data: bytes | None, *, keep_time: bool = False) -> None:
    stat = path.stat()
    if data is None:
        path.unlink()
        return
    path.write_bytes(data)
    times = (stat.st_atime_ns, stat.st_mtime_ns + (0 if keep_time else 1))
    os.utime(path, ns=times)  # two writes within one tick of the clock have the same time


FILES = (
    "meta.json",
    "thresher.state",
    ".managed.json",
    "lock",
    "idx",
    "pos",
    "term",
    "fast",
    "fieldnorm",
    "store",
    "del",
)


@pytest.mark.parametrize("kind", FILES)
def test_every_damage_heals_to_the_right_results(healthy: Path, tmp_path: Path, kind: str) -> None:
    expected = _found(healthy, healthy / "files")
    assert all(expected)
    random = Random(kind)
    names = sorted(path.name for path in (healthy / "memory" / "index").iterdir() if path.name.endswith(kind))
    assert names
    for file in names:
        for label, damaged in _damages((healthy / "memory" / "index" / file).read_bytes(), random):
            home = tmp_path / "home"
            shutil.copytree(healthy, home)
            _overwrite(home / "memory" / "index" / file, damaged)
            try:
                assert _found(home, healthy / "files") == expected
            except BaseException as error:
                error.add_note(f"{file} {label}")
                raise
            assert _found(home, healthy / "files") == expected, f"{file} {label}, second time"
            shutil.rmtree(home)


@pytest.mark.parametrize("kind", ["idx", "term", "fast", "fieldnorm", "pos"])
def test_a_panic_is_an_error_and_the_next_search_is_right(healthy: Path, tmp_path: Path, kind: str) -> None:
    """A changed byte in a file with its old size and time is not noticed until tantivy stumbles over it."""
    random = Random(kind)
    home = tmp_path / "home"
    for number in range(3 * FLIPS):
        shutil.copytree(healthy, home)
        path = random.choice(sorted((home / "memory" / "index").glob(f"*.{kind}")))
        body = path.stat().st_size - 100
        at = random.randrange(body) if number else body // 2
        _overwrite(path, _flip(path.read_bytes(), at), keep_time=True)
        memory = Memory(home=home, sources=[healthy / "files"], discover=False)
        with suppress(StoreError):
            memory.search("topic3 topic69", sync=False)
        if not memory.store.open_index():
            assert _found(home, healthy / "files") == _found(healthy, healthy / "files"), at
        shutil.rmtree(home)


def test_an_intact_index_is_not_rebuilt(healthy: Path, tmp_path: Path) -> None:
    shutil.copytree(healthy, tmp_path / "home")
    index = tmp_path / "home" / "memory" / "index"
    before = (index / META_FILE).stat()
    for path in index.iterdir():
        os.utime(path, ns=(1, 1))  # so every file is verified
    assert _found(tmp_path / "home", healthy / "files")
    after = (index / META_FILE).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, 1)


def test_only_files_with_another_stamp_are_verified(healthy: Path, tmp_path: Path) -> None:
    shutil.copytree(healthy / "memory" / "index", tmp_path / "index")
    stamps = read_file_stamps(tmp_path / "index")
    (path,) = (tmp_path / "index" / file for file in stamps if file == max(stamps))
    _overwrite(path, _flip(path.read_bytes(), 0), keep_time=True)
    assert not is_segment_damaged(tmp_path / "index", stamps)
    assert is_segment_damaged(tmp_path / "index", {})


def test_merges_do_not_change_the_digest_of_the_contents(healthy: Path, tmp_path: Path) -> None:
    shutil.copytree(healthy, tmp_path / "home")
    home, files = tmp_path / "home", tmp_path / "home" / "files"
    for number in range(3, 14):  # the default policy merges eight segments
        (files / f"{name(number)}.jsonl").write_bytes(chat(name(number), [f"session {number} of topic69"]))
        _found(home, files)
    index = home / "memory" / "index"
    assert len([*index.glob("*.idx")]) < 10
    store = SessionStore(home / "memory")
    opened = store.open_index()
    assert isinstance(opened, TantivyIndex)
    assert opened.read_state().contents == digest_contents(index)
    assert not opened.is_damaged()
    (index / STATE_FILE).write_bytes((index / STATE_FILE).read_bytes().replace(b'"last_block":', b'"last_block":1'))
    assert SessionStore(home / "memory").open_index() is None
