"""The edits in the words of a model that Aider speaks with, and what became of them.

Aider calls no tools: a model writes its edits into its answer, in a layout that it was asked for. Blocks to search and
replace can be told by their marks, whatever came of them. Whole files, diffs and patches are taken for edits only
where Aider says that it applied one to that file: anyone may show a file.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from thresher.formats.aider_blocks import FENCE
from thresher.model import Text, Thinking, ToolCall, ToolResult
from thresher.model.jsontext import dump, load_fields
from thresher.model.parts import Part

HEAD = re.compile(r"<{5,9} (?:SEARCH|ORIGINAL)>?")
MIDDLE = re.compile(r"={5,9}")
END = re.compile(r">{5,9} (?:REPLACE|UPDATED)")
PATCH, PATCH_END = "*** Begin Patch", "*** End Patch"
LONGEST_NAME = 250

_THOUGHT = re.compile(r"\s*<(thinking-content-[0-9a-f]+|think|thinking)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_APPLIED = re.compile(r"Applied edit to (.+)")
_LEFT = re.compile(
    r"(?:Skipping edits to|Did not apply edit to|Unable to create) (.+?)"
    r"(?: \(--dry-run\)|, skipping edits\.| that matches .*)?"
)
_FAILED = re.compile(r"The LLM did not conform to the edit format|#* ?\d+ SEARCH/REPLACE blocks? failed to match")
_NO_MATCH = re.compile(r".*\bfailed to (?:exactly )?match lines in (.+)")
_OTHERS = re.compile(r".*\bother \d+ SEARCH/REPLACE blocks? (?:was|were) applied successfully")
_DIFFED = re.compile(r"\+\+\+ (?:b/)?([^\t]+).*")
_PATCHED = re.compile(r"\*\*\* (?:Update|Add|Delete) File: (.+)")


class Edit(NamedTuple):
    """One edit, and the lines that it takes up."""

    start: int
    stop: int
    at: int
    name: str
    arguments: dict[str, Any]


def applied(lines: Sequence[str]) -> frozenset[str]:
    """The files that Aider says it applied an edit to."""
    return frozenset(found[1] for line in lines if (found := _APPLIED.fullmatch(line)))


def parts_of(lines: Sequence[str], first: int, done: Collection[str]) -> tuple[Part, ...]:
    """An answer as words and edits, in order. `first` is the number of its first line, `done` the files edited."""
    parts: list[Part] = []
    place = 0
    if thought := _THOUGHT.match("\n".join(lines)):
        parts.append(Thinking(thought[2].strip()))
        place = thought[0].count("\n")
        lines = [*lines[:place], "\n".join(lines)[thought.end() :].partition("\n")[0], *lines[place + 1 :]]
    for edit in _edits(_Answer(lines, done), place):
        parts += _words(lines[place : edit.start])
        parts.append(ToolCall(f"edit-{first + edit.at}", edit.name, dump(edit.arguments)))
        place = edit.stop
    return (*parts, *_words(lines[place:]))


def _words(lines: Sequence[str]) -> list[Text]:
    text = "\n".join(lines).strip("\n")
    return [Text(text)] if text.strip() else []


class _Answer:
    """The lines of an answer, and where its marks stand."""

    def __init__(self, lines: Sequence[str], done: Collection[str]) -> None:
        self.lines = lines
        self.done = done
        """The files that were edited."""
        bare = [line.strip() for line in lines]
        self.heads, self.middles, self.ends = (
            [place for place, line in enumerate(bare) if mark.fullmatch(line)] for mark in (HEAD, MIDDLE, END)
        )
        self.patch_ends = [place for place, line in enumerate(bare) if line == PATCH_END]
        named = (
            (place, _PATCHED.fullmatch(line) or _DIFFED.fullmatch(line))
            for place, line in enumerate(bare if done else ())
        )
        self.named = [place for place, found in named if found and found[1] in done]
        """Where a patch or a diff names one of the files."""
        self.bare: dict[str, list[int]] = {}
        for place, line in enumerate(bare):
            if FENCE.match(line) or line.startswith("</"):
                self.bare.setdefault(line, []).append(place)

    def end_of_block(self, middle: int) -> int | None:
        """Where the text that replaces another ends; some models close it with its middle mark once more."""
        end, head, again = (_after(places, middle) for places in (self.ends, self.heads, self.middles))
        if end is not None and (head is None or end < head):
            return end
        is_closed = again is not None and again + 1 < len(self.lines) and _is_fence(self.lines[again + 1])
        return again if is_closed else end

    def closing(self, place: int) -> int | None:
        """Where the code that a line opens ends."""
        opened = FENCE.match(self.lines[place])
        return _after(self.bare.get(opened[1].replace("<", "</"), ()), place) if opened else None


def _is_fence(line: str) -> bool:
    return FENCE.match(line) is not None or line.strip().startswith("</")


def _after(places: Sequence[int], place: int) -> int | None:
    at = bisect_left(places, place + 1)
    return places[at] if at < len(places) else None


def _edits(answer: _Answer, place: int) -> Iterator[Edit]:
    free, path = place, ""  # the first line that no edit has, and the file of the one before
    while place < len(answer.lines):
        line = answer.lines[place].strip()
        found: Sequence[Edit] = ()
        if HEAD.fullmatch(line):
            found = _block(answer, place, free, path)
        elif answer.done and line == PATCH:
            found = _patch(answer, place, free)
        elif answer.done and FENCE.match(line):
            found = _diff(answer, place) or _whole(answer, place, free)
        if found:
            yield from found
            free = place = found[-1].stop
            path = found[-1].arguments.get("path", path)
        else:
            place += 1


# --- layouts ---------------------------------------------------------------------------------------------------------


def _block(answer: _Answer, place: int, free: int, path: str) -> Sequence[Edit]:
    """Text to search for, and what replaces it; the file is named before it, or is that of the block before."""
    middle = _after(answer.middles, place)
    end = answer.end_of_block(middle) if middle is not None else None
    if middle is None or end is None:
        return ()
    named, start = _named_before(answer, place, free)
    path = named or path or (next(iter(answer.done)) if len(answer.done) == 1 else "")
    if not path:
        return ()
    old, new = ("".join(f"{line}\n" for line in answer.lines[a + 1 : b]) for a, b in ((place, middle), (middle, end)))
    stop = _behind_fence(answer.lines, end + 1)
    return [Edit(start, stop, place, "search_replace", {"path": path, "search": old, "replace": new})]


def _named_before(answer: _Answer, place: int, free: int) -> tuple[str, int]:
    """The file that is named in the last three lines, behind nothing but fences; and where the edit begins."""
    lines, start, fences = answer.lines, place, 0
    for before in range(place - 1, max(free, place - 3) - 1, -1):
        is_fence = _is_fence(lines[before])
        name = file_name(lines[before], answer.done)
        if name:
            # The name may stand in code of its own, or in that of the edit.
            is_inside = before > free and (fences + is_fence) % 2 == 0 and FENCE.match(lines[before - 1]) is not None
            return name, before - is_inside
        if not is_fence:
            break
        start, fences = before, fences + 1
    return "", start


def file_name(line: str, done: Collection[str]) -> str:
    """The file that a line names, and nothing else."""
    name = line.strip()
    if FENCE.match(name):
        name = name.partition(">")[2] if name.startswith("<") else name.lstrip("`")
        return name if "." in name or "/" in name else ""
    name = name.rstrip(":").lstrip("#").strip().strip("`*")
    if name in done:
        return name
    is_one = 0 < len(name) <= LONGEST_NAME and name != "..." and not re.search(r"[\s<>{}]", name)
    return name if is_one else ""


def _behind_fence(lines: Sequence[str], place: int) -> int:
    is_fence = place < len(lines) and (lines[place].strip().startswith("</") or FENCE.fullmatch(lines[place].rstrip()))
    return place + 1 if is_fence else place


def _whole(answer: _Answer, place: int, free: int) -> Sequence[Edit]:
    """A file's whole text, below its name."""
    name = file_name(answer.lines[place - 1], answer.done) if place > free else ""
    end = answer.closing(place) if name in answer.done else None
    inside = _after(answer.heads, place)
    if end is None or (inside is not None and inside < end):
        return ()
    content = "".join(f"{line}\n" for line in answer.lines[place + 1 : end])
    return [Edit(place - 1, end + 1, place, "write_file", {"path": name, "content": content})]


def _diff(answer: _Answer, place: int) -> Sequence[Edit]:
    """A unified diff, of one file or several."""
    end = answer.closing(place) if answer.lines[place].strip().endswith("diff") else None
    at = _after(answer.named, place)
    edits: list[Edit] = []
    while end is not None and at is not None and at < end:
        following = _after(answer.named, at)
        stop = end if following is None or following > end else following - 1
        path = _DIFFED.sub(r"\1", answer.lines[at].strip())
        arguments = {"path": path, "edits": _hunks(answer.lines[at + 1 : stop])}
        edits.append(Edit(edits[-1].stop if edits else place, stop, at, "apply_diff", arguments))
        at = following
    return [*edits[:-1], edits[-1]._replace(stop=edits[-1].stop + 1)] if edits else ()


def _hunks(lines: Sequence[str]) -> list[dict[str, str]]:
    """Each hunk as a text to search for and what replaces it: models make up line numbers."""
    hunks: list[tuple[list[str], list[str]]] = [([], [])]
    for line in lines:
        if line.startswith("@@"):
            hunks.append(([], []))
            continue
        old, new = hunks[-1]
        if line[:1] not in ("+", "\\"):
            old.append(f"{line[1:]}\n")
        if line[:1] not in ("-", "\\"):
            new.append(f"{line[1:]}\n")
    return [{"search": "".join(old), "replace": "".join(new)} for old, new in hunks if old != new]


def _patch(answer: _Answer, place: int, free: int) -> Sequence[Edit]:
    """A patch of several files, between its own marks."""
    end, named = _after(answer.patch_ends, place), _after(answer.named, place)
    if end is None or named is None or named > end:
        return ()
    start = place - (place > free and FENCE.fullmatch(answer.lines[place - 1].rstrip()) is not None)
    text = "\n".join(answer.lines[place : end + 1])
    return [Edit(start, _behind_fence(answer.lines, end + 1), place, "apply_patch", {"input": text})]


# --- what became of them ---------------------------------------------------------------------------------------------


def answers(calls: Sequence[ToolCall], lines: Sequence[str]) -> tuple[tuple[ToolResult, ...], list[str]]:
    """What Aider said about each edit, and the lines that say something else."""
    failed = next((place for place, line in enumerate(lines) if _FAILED.match(line)), len(lines))
    told = {found[1]: line for line in lines[:failed] if (found := _APPLIED.fullmatch(line))}
    left = {found[1]: line for line in lines[:failed] if (found := _LEFT.fullmatch(line))}
    refusal = "\n".join(lines[failed:]).strip()
    others = next((line for line in lines[failed:] if _OTHERS.match(line)), "")
    refused = _refused(calls, lines[failed:]) if refusal else set()
    results: list[ToolResult] = []
    for call in calls:
        paths = _paths(call)
        if call.id in refused:
            results.append(ToolResult(call.id, (Text(refusal),), is_error=True, name=call.name))
        elif said := next((told[path] for path in paths if path in told), others):
            results.append(ToolResult(call.id, (Text(said),), name=call.name))
        elif said := next((left[path] for path in paths if path in left), ""):
            results.append(ToolResult(call.id, (Text(said),), is_error=True, name=call.name))
    used = {result.text for result in results} | ({*lines[failed:]} if refused else set())
    return tuple(results), [line for line in lines if line not in used]


def _paths(call: ToolCall) -> list[str]:
    fields = load_fields(call.arguments)
    return [fields["path"]] if "path" in fields else [found[1] for found in _PATCHED.finditer(fields.get("input", ""))]


def _refused(calls: Sequence[ToolCall], lines: Sequence[str]) -> set[str]:
    """The edits that Aider could not apply: those that it shows again, or all where it understood none."""
    named = Counter(found[1] for line in lines if (found := _NO_MATCH.fullmatch(line)))
    if not named:
        return {call.id for call in calls}
    again = _Answer(lines, ())
    blocks = ((head, _after(again.middles, head), _after(again.heads, head)) for head in again.heads)
    shown = {
        _solid("".join(lines[head + 1 : end])) for head, end, other in blocks if end and not (other and other < end)
    }
    of_file = Counter(path for call in calls for path in _paths(call))
    return {
        call.id
        for call in calls
        for path in _paths(call)
        if path in named
        and (named[path] >= of_file[path] or _solid(load_fields(call.arguments).get("search", "")) in shown)
    }


def _solid(text: str) -> str:
    """A text without its white space: what Aider quotes has lost some."""
    return "".join(text.split())
