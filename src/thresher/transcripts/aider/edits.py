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

from thresher.model.jsontext import dump_json, load_json_object
from thresher.model.parts import Part, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.aider.blocks import FENCE

SEARCH_MARK = re.compile(r"<{5,9} (?:SEARCH|ORIGINAL)>?")
DIVIDER_MARK = re.compile(r"={5,9}")
REPLACE_MARK = re.compile(r">{5,9} (?:REPLACE|UPDATED)")
PATCH_START, PATCH_END = "*** Begin Patch", "*** End Patch"
MAX_FILE_NAME_LENGTH = 250

_THINKING_TAG = re.compile(r"\s*<(thinking-content-[0-9a-f]+|think|thinking)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_APPLIED_EDIT = re.compile(r"Applied edit to (.+)")
_SKIPPED_EDIT = re.compile(
    r"(?:Skipping edits to|Did not apply edit to|Unable to create) (.+?)"
    r"(?: \(--dry-run\)|, skipping edits\.| that matches .*)?"
)
_FAILED_EDITS = re.compile(r"The LLM did not conform to the edit format|#* ?\d+ SEARCH/REPLACE blocks? failed to match")
_NO_MATCH = re.compile(r".*\bfailed to (?:exactly )?match lines in (.+)")
_OTHERS_APPLIED = re.compile(r".*\bother \d+ SEARCH/REPLACE blocks? (?:was|were) applied successfully")
_DIFF_FILE = re.compile(r"\+\+\+ (?:b/)?([^\t]+).*")
_PATCH_FILE = re.compile(r"\*\*\* (?:Update|Add|Delete) File: (.+)")


class AiderEdit(NamedTuple):
    """One edit, and the lines that it takes up."""

    start: int
    stop: int
    anchor: int
    name: str
    arguments: dict[str, Any]


def find_applied_files(lines: Sequence[str]) -> frozenset[str]:
    """The files that Aider says it applied an edit to."""
    return frozenset(found[1] for line in lines if (found := _APPLIED_EDIT.fullmatch(line)))


def parse_aider_answer(lines: Sequence[str], first: int, done: Collection[str]) -> tuple[Part, ...]:
    """An answer as words and edits, in order. `first` is the number of its first line, `done` the files edited."""
    parts: list[Part] = []
    place = 0
    if thought := _THINKING_TAG.match("\n".join(lines)):
        parts.append(Thinking(thought[2].strip()))
        place = thought[0].count("\n")
        lines = [*lines[:place], "\n".join(lines)[thought.end() :].partition("\n")[0], *lines[place + 1 :]]
    for edit in _find_edits(_AnswerLines(lines, done), place):
        parts += _text_parts(lines[place : edit.start])
        parts.append(ToolCall(f"edit-{first + edit.anchor}", edit.name, dump_json(edit.arguments)))
        place = edit.stop
    return (*parts, *_text_parts(lines[place:]))


def _text_parts(lines: Sequence[str]) -> list[Text]:
    text = "\n".join(lines).strip("\n")
    return [Text(text)] if text.strip() else []


class _AnswerLines:
    """The lines of an answer, and where its marks stand."""

    def __init__(self, lines: Sequence[str], done: Collection[str]) -> None:
        self.lines = lines
        self.edited_files = done
        """The files that were edited."""
        bare = [line.strip() for line in lines]
        self.search_marks, self.divider_marks, self.replace_marks = (
            [place for place, line in enumerate(bare) if mark.fullmatch(line)]
            for mark in (SEARCH_MARK, DIVIDER_MARK, REPLACE_MARK)
        )
        self.patch_ends = [place for place, line in enumerate(bare) if line == PATCH_END]
        named = (
            (place, _PATCH_FILE.fullmatch(line) or _DIFF_FILE.fullmatch(line))
            for place, line in enumerate(bare if done else ())
        )
        self.file_name_lines = [place for place, found in named if found and found[1] in done]
        """Where a patch or a diff names one of the files."""
        self.fence_lines: dict[str, list[int]] = {}
        for place, line in enumerate(bare):
            if FENCE.match(line) or line.startswith("</"):
                self.fence_lines.setdefault(line, []).append(place)

    def find_block_end(self, middle: int) -> int | None:
        """Where the text that replaces another ends; some models close it with its middle mark once more."""
        end, head, again = (
            _next_position(places, middle) for places in (self.replace_marks, self.search_marks, self.divider_marks)
        )
        if end is not None and (head is None or end < head):
            return end
        is_closed = again is not None and again + 1 < len(self.lines) and _is_fence(self.lines[again + 1])
        return again if is_closed else end

    def find_closing_fence(self, place: int) -> int | None:
        """Where the code that a line opens ends."""
        opened = FENCE.match(self.lines[place])
        return _next_position(self.fence_lines.get(opened[1].replace("<", "</"), ()), place) if opened else None


def _is_fence(line: str) -> bool:
    return FENCE.match(line) is not None or line.strip().startswith("</")


def _next_position(places: Sequence[int], place: int) -> int | None:
    at = bisect_left(places, place + 1)
    return places[at] if at < len(places) else None


def _find_edits(answer: _AnswerLines, place: int) -> Iterator[AiderEdit]:
    free, path = place, ""  # the first line that no edit has, and the file of the one before
    while place < len(answer.lines):
        line = answer.lines[place].strip()
        found: Sequence[AiderEdit] = ()
        if SEARCH_MARK.fullmatch(line):
            found = _parse_search_replace(answer, place, free, path)
        elif answer.edited_files and line == PATCH_START:
            found = _parse_patch(answer, place, free)
        elif answer.edited_files and FENCE.match(line):
            found = _parse_diff(answer, place) or _parse_whole_file(answer, place, free)
        if found:
            yield from found
            free = place = found[-1].stop
            path = found[-1].arguments.get("path", path)
        else:
            place += 1


# --- layouts ---------------------------------------------------------------------------------------------------------


def _parse_search_replace(answer: _AnswerLines, place: int, free: int, path: str) -> Sequence[AiderEdit]:
    """Text to search for, and what replaces it; the file is named before it, or is that of the block before."""
    middle = _next_position(answer.divider_marks, place)
    end = answer.find_block_end(middle) if middle is not None else None
    if middle is None or end is None:
        return ()
    named, start = _find_name_before(answer, place, free)
    path = named or path or (next(iter(answer.edited_files)) if len(answer.edited_files) == 1 else "")
    if not path:
        return ()
    old, new = ("".join(f"{line}\n" for line in answer.lines[a + 1 : b]) for a, b in ((place, middle), (middle, end)))
    stop = _skip_closing_fence(answer.lines, end + 1)
    return [AiderEdit(start, stop, place, "search_replace", {"path": path, "search": old, "replace": new})]


def _find_name_before(answer: _AnswerLines, place: int, free: int) -> tuple[str, int]:
    """The file that is named in the last three lines, behind nothing but fences; and where the edit begins."""
    lines, start, fences = answer.lines, place, 0
    for before in range(place - 1, max(free, place - 3) - 1, -1):
        is_fence = _is_fence(lines[before])
        name = _parse_file_name(lines[before], answer.edited_files)
        if name:
            # The name may stand in code of its own, or in that of the edit.
            is_inside = before > free and (fences + is_fence) % 2 == 0 and FENCE.match(lines[before - 1]) is not None
            return name, before - is_inside
        if not is_fence:
            break
        start, fences = before, fences + 1
    return "", start


def _parse_file_name(line: str, done: Collection[str]) -> str:
    """The file that a line names, and nothing else."""
    name = line.strip()
    if FENCE.match(name):
        name = name.partition(">")[2] if name.startswith("<") else name.lstrip("`")
        return name if "." in name or "/" in name else ""
    name = name.rstrip(":").lstrip("#").strip().strip("`*")
    if name in done:
        return name
    is_one = 0 < len(name) <= MAX_FILE_NAME_LENGTH and name != "..." and not re.search(r"[\s<>{}]", name)
    return name if is_one else ""


def _skip_closing_fence(lines: Sequence[str], place: int) -> int:
    is_fence = place < len(lines) and (lines[place].strip().startswith("</") or FENCE.fullmatch(lines[place].rstrip()))
    return place + 1 if is_fence else place


def _parse_whole_file(answer: _AnswerLines, place: int, free: int) -> Sequence[AiderEdit]:
    """A file's whole text, below its name."""
    name = _parse_file_name(answer.lines[place - 1], answer.edited_files) if place > free else ""
    end = answer.find_closing_fence(place) if name in answer.edited_files else None
    inside = _next_position(answer.search_marks, place)
    if end is None or (inside is not None and inside < end):
        return ()
    content = "".join(f"{line}\n" for line in answer.lines[place + 1 : end])
    return [AiderEdit(place - 1, end + 1, place, "write_file", {"path": name, "content": content})]


def _parse_diff(answer: _AnswerLines, place: int) -> Sequence[AiderEdit]:
    """A unified diff, of one file or several."""
    end = answer.find_closing_fence(place) if answer.lines[place].strip().endswith("diff") else None
    at = _next_position(answer.file_name_lines, place)
    edits: list[AiderEdit] = []
    while end is not None and at is not None and at < end:
        following = _next_position(answer.file_name_lines, at)
        stop = end if following is None or following > end else following - 1
        path = _DIFF_FILE.sub(r"\1", answer.lines[at].strip())
        arguments = {"path": path, "edits": _parse_hunks(answer.lines[at + 1 : stop])}
        edits.append(AiderEdit(edits[-1].stop if edits else place, stop, at, "apply_diff", arguments))
        at = following
    return [*edits[:-1], edits[-1]._replace(stop=edits[-1].stop + 1)] if edits else ()


def _parse_hunks(lines: Sequence[str]) -> list[dict[str, str]]:
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


def _parse_patch(answer: _AnswerLines, place: int, free: int) -> Sequence[AiderEdit]:
    """A patch of several files, between its own marks."""
    end, named = _next_position(answer.patch_ends, place), _next_position(answer.file_name_lines, place)
    if end is None or named is None or named > end:
        return ()
    start = place - (place > free and FENCE.fullmatch(answer.lines[place - 1].rstrip()) is not None)
    text = "\n".join(answer.lines[place : end + 1])
    return [AiderEdit(start, _skip_closing_fence(answer.lines, end + 1), place, "apply_patch", {"input": text})]


# --- what became of them ---------------------------------------------------------------------------------------------


def match_edit_results(calls: Sequence[ToolCall], lines: Sequence[str]) -> tuple[tuple[ToolResult, ...], list[str]]:
    """What Aider said about each edit, and the lines that say something else."""
    failed = next((place for place, line in enumerate(lines) if _FAILED_EDITS.match(line)), len(lines))
    told = {found[1]: line for line in lines[:failed] if (found := _APPLIED_EDIT.fullmatch(line))}
    left = {found[1]: line for line in lines[:failed] if (found := _SKIPPED_EDIT.fullmatch(line))}
    refusal = "\n".join(lines[failed:]).strip()
    others = next((line for line in lines[failed:] if _OTHERS_APPLIED.match(line)), "")
    refused = _find_refused_calls(calls, lines[failed:]) if refusal else set()
    results: list[ToolResult] = []
    for call in calls:
        paths = _edited_paths(call)
        if call.id in refused:
            results.append(ToolResult(call.id, (Text(refusal),), is_error=True, name=call.name))
        elif said := next((told[path] for path in paths if path in told), others):
            results.append(ToolResult(call.id, (Text(said),), name=call.name))
        elif said := next((left[path] for path in paths if path in left), ""):
            results.append(ToolResult(call.id, (Text(said),), is_error=True, name=call.name))
    used = {result.text for result in results} | ({*lines[failed:]} if refused else set())
    return tuple(results), [line for line in lines if line not in used]


def _edited_paths(call: ToolCall) -> list[str]:
    fields = load_json_object(call.arguments)
    if "path" in fields:
        return [fields["path"]]
    return [found[1] for found in _PATCH_FILE.finditer(fields.get("input", ""))]


def _find_refused_calls(calls: Sequence[ToolCall], lines: Sequence[str]) -> set[str]:
    """The edits that Aider could not apply: those that it shows again, or all where it understood none."""
    named = Counter(found[1] for line in lines if (found := _NO_MATCH.fullmatch(line)))
    if not named:
        return {call.id for call in calls}
    again = _AnswerLines(lines, ())
    blocks = (
        (head, _next_position(again.divider_marks, head), _next_position(again.search_marks, head))
        for head in again.search_marks
    )
    whole = ((head, end) for head, end, other in blocks if end and not (other and other < end))
    shown = {_strip_whitespace("".join(lines[head + 1 : end])) for head, end in whole}
    of_file = Counter(path for call in calls for path in _edited_paths(call))
    return {
        call.id
        for call in calls
        for path in _edited_paths(call)
        if path in named
        and (
            named[path] >= of_file[path]
            or _strip_whitespace(load_json_object(call.arguments).get("search", "")) in shown
        )
    }


def _strip_whitespace(text: str) -> str:
    """A text without its white space: what Aider quotes has lost some."""
    return "".join(text.split())
