"""After any sequence of changes, each state is the true text or reports a gap."""

from hypothesis import given
from hypothesis import strategies as st
from talks import Talk

from thresher.timeline import Timeline

PATH = "/home/sam/shop/a.py"
LINES = st.lists(st.sampled_from(["x = 1", "y = 2", "", "def f():", "    return x", "# →", "é"]), max_size=8)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + ("\n" if lines and end else ""), LINES, st.booleans())


@st.composite
def works(draw: st.DrawFn, outside: bool) -> tuple[Talk, list[str | None], list[bool]]:
    """Build a session, the true text after each turn, and whether the turn showed or wrote the whole file."""
    talk = Talk()
    text: str | None = None
    truth: list[str | None] = []
    told: list[bool] = []
    for _ in range(draw(st.integers(1, 12))):
        if outside and text is not None and draw(st.booleans()):
            text = draw(TEXTS)
        text, is_told = done(draw, talk, text)
        truth.append(text)
        told.append(is_told)
    return talk, truth, told


def done(draw: st.DrawFn, talk: Talk, text: str | None) -> tuple[str | None, bool]:
    """Do one step; return the text after it, and whether it showed or wrote the whole file."""
    if text is None:
        return written(draw, talk)
    match draw(st.sampled_from(["write", "edit", "insert", "failed", "whole", "part", "delete"])):
        case "write":
            return written(draw, talk)
        case "edit":
            return edited(draw, talk, text), False
        case "insert":
            return inserted(draw, talk, text), False
        case "whole":
            talk.read(PATH, text)
            return text, bool(text)
        case "part":
            return part(draw, talk, text), False
        case "delete":
            talk.bash(f"rm {PATH}")
            return None, True
        case _:
            return failed(talk, text), False


def written(draw: st.DrawFn, talk: Talk) -> tuple[str, bool]:
    text = draw(TEXTS)
    talk.write(PATH, text)
    return text, True


def edited(draw: st.DrawFn, talk: Talk, text: str) -> str:
    start = draw(st.integers(0, len(text)))
    old = text[start : draw(st.integers(start, len(text)))]
    new = draw(TEXTS)
    count = text.count(old) if old else 0
    if not old or old == new:
        return failed(talk, text)
    if count > 1:
        talk.edit(PATH, old, new, replace_all=True)
        return text.replace(old, new)
    talk.edit(PATH, old, new)
    return text.replace(old, new)


def inserted(draw: st.DrawFn, talk: Talk, text: str) -> str:
    lines = text.splitlines(keepends=True)
    if not text.endswith("\n"):
        return failed(talk, text)
    after = draw(st.integers(0, len(lines)))
    talk.call("str_replace_editor", {"command": "insert", "path": PATH, "insert_line": after, "new_str": "new\n"})
    return "".join([*lines[:after], "new\n", *lines[after:]])


def failed(talk: Talk, text: str) -> str:
    talk.call("Edit", {"file_path": PATH, "old_string": "x", "new_string": "z"}, "not found", error=True)
    return text


def part(draw: st.DrawFn, talk: Talk, text: str) -> str:
    lines = text.split("\n")
    first = draw(st.integers(1, len(lines)))
    last = draw(st.integers(first, len(lines)))
    talk.read(PATH, "\n".join(lines[first - 1 : last]), first, offset=first, limit=last - first + 1)
    return text


@given(works(outside=False))
def test_every_state_of_a_recorded_file_is_true(work: tuple[Talk, list[str | None], list[bool]]) -> None:
    talk, truth, _ = work
    timeline = Timeline(talk.session())
    for turn, text in enumerate(truth, 1):
        state = timeline.file_state_at("a.py", turn=turn)
        assert state.exact, state
        assert state.text == text


@given(works(outside=True))
def test_file_with_outside_changes_is_right_after_each_read(
    work: tuple[Talk, list[str | None], list[bool]],
) -> None:
    talk, truth, told = work
    timeline = Timeline(talk.session())
    for turn, (text, is_told) in enumerate(zip(truth, told, strict=True), 1):
        state = timeline.file_state_at("a.py", turn=turn)
        assert state.exact or state.gaps
        if is_told and state.exact:
            # A read may omit empty lines at the end.
            assert state.text == text or (state.text or "").rstrip("\n") == (text or "").rstrip("\n")
        if not state.exact and is_told:
            assert any("outside the session" in gap for gap in state.gaps)


@given(works(outside=True))
def test_state_does_not_depend_on_earlier_queries(work: tuple[Talk, list[str | None], list[bool]]) -> None:
    talk, truth, _ = work
    one, other = Timeline(talk.session()), Timeline(talk.session())
    turns = range(len(truth) + 1)
    forward = [one.file_state_at("a.py", turn=turn) for turn in turns]
    assert forward == [other.file_state_at("a.py", turn=turn) for turn in reversed(turns)][::-1]
