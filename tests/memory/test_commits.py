"""Tests of commit attribution: parsing git output, and its effect on queries with a commit subject."""

from pathlib import Path
from typing import Any

import pytest
from echoes import SHOP, Talk

from thresher.memory import Memory
from thresher.memory.index.documents import CommitSubjects
from thresher.memory.ingest.git_commits import MAX_COMMITS, extract_commit_subjects, normalize_subject
from thresher.memory.results import SearchResults
from thresher.memory.search.commit_attribution import find_repository_name

SUBJECT = "round the half pennies up"
LOG = f"4f2a91c {SUBJECT}\n81bd03e (origin/main) add a cart"


def remembered(tmp_path: Path, *talks: Talk) -> Memory:
    for talk in talks:
        talk.write(tmp_path / "sessions")
    return Memory(home=tmp_path / "home", sources=[tmp_path / "sessions"], discover=False)


def numbers(answer: SearchResults) -> list[int]:
    return [int(session.id.replace("-", ""), 16) for session in answer.sessions]


def dates(answer: SearchResults) -> list[str]:
    return [note for note in answer.notes if "first listed" in note]


def worked(number: int, day: int, *, project: str = SHOP, edits: int = 2) -> Talk:
    """Write a session that changes files and mentions pennies in the same words as all others."""
    talk = Talk(number, day=day, project=project).user("Look at how pennies are counted in the cart, please.")
    for _ in range(edits):
        talk.does("Edit", "done", file_path="cart.py", old_string="a = 1", new_string="a = 2")
    return talk.says("Now the cart counts pennies another way.")


def looked(number: int, day: int, log: str = LOG) -> Talk:
    return Talk(number, day=day).user("What was done last?").runs("git log --oneline", log)


# Git output.


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (LOG, CommitSubjects((), (SUBJECT, "add a cart"))),
        (f"* 4f2a91c {SUBJECT}\n|\\  \n| * 81bd03e add a cart", CommitSubjects((), (SUBJECT, "add a cart"))),
        (f"4f2a91c Round the  half pennies up (#12)\n9f2a91c {SUBJECT}", CommitSubjects((), (SUBJECT,))),
        (f"[main 4f2a91c] {SUBJECT}\n 1 file changed", CommitSubjects((SUBJECT,), ())),
        (f"[main (root-commit) 4f2a91c] {SUBJECT}", CommitSubjects((SUBJECT,), ())),
        (
            f"commit {'4f2a91c0' * 5} (HEAD -> main)\nAuthor: Sam <s@shop.test>\nDate:  2026-02-02\n\n    {SUBJECT}\n",
            CommitSubjects((), (SUBJECT,)),
        ),
        (f"4f2a91c (HEAD -> main, origin/main) {SUBJECT}", CommitSubjects((), (SUBJECT,))),
        (f"4f2a91c (cart) {SUBJECT}", CommitSubjects((), (f"(cart) {SUBJECT}",))),
        (f"1234567 {SUBJECT}\n81bd03e add a cart", CommitSubjects((), (SUBJECT, "add a cart"))),
        ("1234567 total\n[INFO 1234567] server started", CommitSubjects()),
        ("4f2a91c (#12)", CommitSubjects()),
        ("[main 4f2a91c] 修复购物车", CommitSubjects(("修 复 购 物 车",), ())),
        ("[main 4f2a91c] key ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", CommitSubjects()),
        ("the deadbeef 4f2a91c stands in a sentence", CommitSubjects()),
        ("12345 too short\n[x] a list\nplain words", CommitSubjects()),
        ("", CommitSubjects()),
    ],
)
def test_git_output_is_parsed(output: str, found: CommitSubjects) -> None:
    assert extract_commit_subjects(output) == found


def test_a_long_log_is_truncated() -> None:
    assert (
        len(
            extract_commit_subjects(
                "\n".join(f"{number:07x} change {number}" for number in range(10 * MAX_COMMITS))
            ).logged
        )
        == MAX_COMMITS
    )


def test_subjects_match_without_case_spaces_and_number() -> None:
    assert normalize_subject("  Round the half\tpennies up (#341)") == SUBJECT
    assert normalize_subject("fix (#12) for good") == "fix (#12) for good"


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("/home/sam/shop", "shop"),
        ("/home/sam/shop/.worktrees/fix/pennies", "shop"),
        ("C:\\work\\shop\\worktrees\\3", "shop"),
        ("/home/sam/shop/.claude/worktrees/fix", "shop"),
        ("/home/sam/.codex/worktrees/a1b2/shop", "shop"),
        ("/home/sam/.cursor/worktrees/shop/x1", "shop"),
        ("/home/sam/.dotfiles", ".dotfiles"),
        ("/.hidden", ".hidden"),
        ("/worktrees", "worktrees"),
        ("", ""),
    ],
)
def test_worktrees_belong_to_one_repository(project: str, name: str) -> None:
    assert find_repository_name(project) == name


# Commit makers.


def test_the_maker_of_a_commit_ranks_before_a_mention(tmp_path: Path) -> None:
    made = worked(1, 1).runs("git commit -F message", f"[main 4f2a91c] {SUBJECT}")
    spoke = Talk(2, day=2).user("What is open?").says(f"We should {SUBJECT}. To {SUBJECT} is right.")
    memory = remembered(tmp_path, made, spoke)
    assert numbers(memory.search(SUBJECT))[0] == 1
    assert numbers(memory.search(f"should we {SUBJECT}"))[0] == 2


def test_git_output_alone_identifies_the_maker(tmp_path: Path) -> None:
    made = Talk(1).user("Please go on.").runs("git commit -F -", f"[main 4f2a91c] {SUBJECT}").says("That is that.")
    memory = remembered(tmp_path, made, worked(2, 2))
    assert numbers(memory.search(SUBJECT))[0] == 1
    assert numbers(memory.search(SUBJECT, project="garden")) == []
    assert 1 not in numbers(memory.search(SUBJECT, current=made.id))


@pytest.mark.parametrize(
    "words", ['Revert "round the pennies up"', "修复购物车的金额舍入", "Wait… then retry", "Glob src/* once"]
)
def test_every_subject_identifies_its_maker(tmp_path: Path, words: str) -> None:
    hooks = "checked\n" * 1000
    made = Talk(1).user("Please go on.").runs("git commit -F -", f"{hooks}[main 4f2a91c] {words}\n{hooks}")
    memory = remembered(tmp_path, made, worked(2, 2))
    answer = memory.search(words)
    assert numbers(answer)[0] == 1
    assert f"{made.id} made a commit" in answer.notes[0]


def test_the_maker_does_not_count_as_asking(tmp_path: Path) -> None:
    made = Talk(1).user("Round the half pennies up")
    for number in range(8):
        made.does("Read", "text", file_path=f"{number}.py")
    made.does("Edit", "done", file_path="a.py", old_string="a", new_string="b")
    made.runs("git commit -F -", f"[main 4f2a91c] {SUBJECT}")
    other = Talk(2, day=2).user("What do we do here?").says("we round half pennies up here")
    assert numbers(remembered(tmp_path, made, other).search(SUBJECT))[0] == 1


def test_an_excluded_maker_is_not_replaced_by_a_guess(tmp_path: Path) -> None:
    made = worked(1, 1).runs("git commit -F -", f"[main 4f2a91c] {SUBJECT}")
    memory = remembered(tmp_path, made, worked(2, 5), looked(3, 10))
    assert not dates(memory.search(SUBJECT, current=made.id))


def test_a_commit_by_a_sub_agent_counts_for_its_parent(tmp_path: Path) -> None:
    parent = (
        Talk(1).user("Let someone look at the pennies.").does("Agent", "Done.", description="Pennies", prompt="Go.")
    )
    below = Talk(1, day=1).user("Go.").runs("git commit -F -", f"[main 4f2a91c] {SUBJECT}")
    path = tmp_path / "sessions" / parent.id / "subagents" / "agent-a1b2c3.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        b"".join(below.lines()).replace(b'{"type": "', b'{"isSidechain": true, "agentId": "a1b2c3", "type": "')
    )
    memory = remembered(tmp_path, parent, worked(2, 5), looked(3, 10))
    answer = memory.search(SUBJECT)
    assert numbers(answer)[0] == 1
    assert not dates(answer)


def test_a_log_of_another_repository_has_no_effect(tmp_path: Path) -> None:
    memory = remembered(tmp_path, worked(1, 2, project="/home/sam/garden"), looked(2, 10))
    assert not dates(memory.search(SUBJECT, project="garden"))


def test_the_last_session_before_a_log_lists_the_commit_ranks_first(tmp_path: Path) -> None:
    talks = [worked(number, day) for number, day in ((1, 2), (2, 5), (3, 9), (4, 20))]
    memory = remembered(tmp_path, *talks, looked(5, 10))
    answer = memory.search(SUBJECT)
    assert numbers(answer)[:3] == [3, 2, 1]
    assert "on 2026-02-10" in dates(answer)[0]
    assert not dates(memory.search(f"{SUBJECT} again"))


def test_sessions_without_edits_or_in_other_repositories_are_not_makers(tmp_path: Path) -> None:
    elsewhere = worked(2, 8, project="/home/sam/garden")
    memory = remembered(tmp_path, worked(1, 2), elsewhere, worked(3, 9, edits=1), looked(4, 10))
    assert numbers(memory.search(SUBJECT))[0] == 1


def test_without_edit_tools_every_session_may_be_the_maker(tmp_path: Path) -> None:
    memory = remembered(tmp_path, worked(1, 9, edits=0), worked(2, 2, edits=0), looked(3, 10))
    assert numbers(memory.search(SUBJECT))[:2] == [1, 2]


def test_a_recalled_log_has_no_effect(tmp_path: Path) -> None:
    recalled = Talk(3, day=4).user("What was done?").runs("thresher search pennies", LOG)
    memory = remembered(tmp_path, worked(1, 2), worked(2, 9), recalled)
    assert not dates(memory.search(SUBJECT))


@pytest.mark.parametrize("options", [{"rank": "matches"}, {"require": "cart"}, {"role": "assistant"}])
def test_a_query_with_message_conditions_ignores_commits(tmp_path: Path, options: dict[str, Any]) -> None:
    memory = remembered(tmp_path, worked(1, 2), worked(2, 9), looked(3, 10))
    assert not dates(memory.search(SUBJECT, **options))


def test_a_forgotten_log_has_no_effect(tmp_path: Path) -> None:
    log = looked(2, 10)
    memory = remembered(tmp_path, worked(1, 2), log)
    assert dates(memory.search(SUBJECT))
    memory.forget(ids=[log.id])
    assert not dates(memory.search(SUBJECT))
