"""A short run of `benchmarks/soak_memory.py`: kills, full disks, concurrent syncs and hostile sources."""

import argparse
import shutil
import sys
from pathlib import Path

import pytest
from chats import name, places, synced, talk

from thresher.memory import Memory
from thresher.memory.archive.placement import forget_sessions
from thresher.memory.session_store import SessionStore

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import soak_memory as soak

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills and limits as Unix has them")


def _few(folder: Path) -> list[str]:
    for number in range(1, 9):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 30 * number))
    return [f"topic{number}" for number in range(0, 240, 20)]


@pytest.fixture
def world(tmp_path: Path) -> soak.World:
    return soak.World(tmp_path / "world", 1, _few)


def test_after_kills_a_sync_equals_a_fresh_build(tmp_path: Path, world: soak.World) -> None:
    counts = soak.kills(tmp_path, world, argparse.Namespace(kills=4))
    assert counts["equal to a fresh build"] == 1


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    """The writer died between deleting documents and saving its state; the next one reuses its file name."""
    folder, killed = tmp_path / "files", SessionStore(tmp_path / "killed")
    folder.mkdir()
    _few(folder)
    synced(SessionStore(tmp_path / "whole"), folder)
    shutil.copytree(tmp_path / "whole", killed.folder)
    (folder / f"{name(8)}.jsonl").write_bytes(talk(name(8), 250))
    synced(SessionStore(tmp_path / "whole"), folder)
    written = [path for path in (tmp_path / "whole" / "index").iterdir() if path.suffix in (".del", ".json")]
    left = [path for path in written if path.name != "meta.json"]
    assert any(path.suffix == ".del" for path in left)
    for path in left:
        shutil.copy(path, killed.folder / "index")
    assert synced(killed, folder).grown == 1
    assert places(killed, "topic230") == [(name(8), 230)]
    assert places(killed, "topic245") == [(name(8), 245)]


def test_an_interrupted_forget_leaves_no_usable_index(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "memory")
    (tmp_path / "files").mkdir()
    _few(tmp_path / "files")
    synced(store, tmp_path / "files")
    (facts,) = store.find_sessions(id=name(8))
    with store.write_lease(), store.archive.transaction():
        forget_sessions(store.archive, [facts.key], for_good=True)
    again = SessionStore(store.folder)
    assert again.open_index() is None
    synced(again, tmp_path / "files")
    assert {id for id, _ in places(again, "topic20")} == {name(number) for number in range(1, 8)}


def test_a_full_disk_is_reported_and_the_next_sync_continues(tmp_path: Path, world: soak.World) -> None:
    home, fresh = tmp_path / "home", tmp_path / "fresh"
    assert soak.without_room(home, world, 60_000).startswith("no room")
    soak.check_kept(home, world)
    soak.synced(home, world)
    Memory(home=fresh, sources=[world.folder], discover=False).sync()
    soak.check_equal(home, fresh, world)


def test_hostile_sources_do_no_harm(tmp_path: Path) -> None:
    for make in (soak.loop, soak.pipe):
        soak.check_source(tmp_path, make)


def test_queries_are_answered_or_refused(tmp_path: Path, world: soak.World) -> None:
    memory = Memory(home=tmp_path / "home", sources=[world.folder], discover=False)
    memory.sync()
    told = {soak.ask(tmp_path / "home", "words", query) for query in (*soak.spoken(), *soak.UNSPEAKABLE)}
    assert told <= {"found", "nothing", "refused"}
