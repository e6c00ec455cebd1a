"""Parse the edits in a model's answer to Aider, and their results.

Aider has no tools: a model writes edits into its answer, in a layout that Aider's prompt describes. Search/replace
blocks always count as edits. Whole files, diffs and patches count as edits only if Aider reports an applied edit to the
same file, since an answer can also show a file without editing it.
"""

import re
from bisect import bisect_right
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
    """An edit, and the range of lines that it has in the answer."""

    start: int
    stop: int
    anchor: int
    """Index of the line whose number is in the id of the call."""
    name: str
    arguments: dict[str, Any]


def find_applied_files(lines: Sequence[str]) -> frozenset[str]:
    """Return the files to which Aider reports an applied edit."""
    return frozenset(match[1] for line in lines if (match := _APPLIED_EDIT.fullmatch(line)))


def parse_aider_answer(lines: Sequence[str], first: int, edited_files: Collection[str]) -> tuple[Part, ...]:
    """Parse an answer into thinking, text and edits. `first` is the line number of the answer's first line."""
    parts: list[Part] = []
    index = 0
    if thinking := _THINKING_TAG.match("\n".join(lines)):
        parts.append(Thinking(thinking[2].strip()))
        index = thinking[0].count("\n")
        lines = [*lines[:index], "\n".join(lines)[thinking.end() :].partition("\n")[0], *lines[index + 1 :]]
    for edit in _find_edits(_AnswerLines(lines, edited_files), index):
        parts += _text_parts(lines[index : edit.start])
        parts.append(ToolCall(f"edit-{first + edit.anchor}", edit.name, dump_json(edit.arguments)))
        index = edit.stop
    return (*parts, *_text_parts(lines[index:]))


def _text_parts(lines: Sequence[str]) -> list[Text]:
    text = "\n".join(lines).strip("\n")
    return [Text(text)] if text.strip() else []


class _AnswerLines:
    """The lines of an answer, with an index of marks and fences."""

    def __init__(self, lines: Sequence[str], edited_files: Collection[str]) -> None:
        self.lines = lines
        self.edited_files = edited_files
        stripped = [line.strip() for line in lines]
        self.search_marks, self.divider_marks, self.replace_marks = (
            [index for index, line in enumerate(stripped) if mark.fullmatch(line)]
            for mark in (SEARCH_MARK, DIVIDER_MARK, REPLACE_MARK)
        )
        self.patch_ends = [index for index, line in enumerate(stripped) if line == PATCH_END]
        matches = (
            (index, _PATCH_FILE.fullmatch(line) or _DIFF_FILE.fullmatch(line))
            for index, line in enumerate(stripped if edited_files else ())
        )
        self.file_name_lines = [index for index, match in matches if match and match[1] in edited_files]
        """Lines of a patch or a diff that name an edited file."""
        self.fence_lines: dict[str, list[int]] = {}
        for index, line in enumerate(stripped):
            if FENCE.match(line) or line.startswith("</"):
                self.fence_lines.setdefault(line, []).append(index)

    def find_block_end(self, divider: int) -> int | None:
        """Return the index of the line that ends the replacement text, or None.

        This line is a mark. Some models write a second divider instead.
        """
        end, search, second_divider = (
            _next_after(indexes, divider) for indexes in (self.replace_marks, self.search_marks, self.divider_marks)
        )
        if end is not None and (search is None or end < search):
            return end
        is_closed = second_divider is not None and any(map(_is_fence, self.lines[second_divider + 1 :][:1]))
        return second_divider if is_closed else end

    def find_closing_fence(self, index: int) -> int | None:
        """Return the index of the fence that closes the code block opened at `index`."""
        opening = FENCE.match(self.lines[index])
        return _next_after(self.fence_lines.get(opening[1].replace("<", "</"), ()), index) if opening else None


def _is_fence(line: str) -> bool:
    return FENCE.match(line) is not None or line.strip().startswith("</")


def _next_after(indexes: Sequence[int], index: int) -> int | None:
    position = bisect_right(indexes, index)
    return indexes[position] if position < len(indexes) else None


def _find_edits(answer: _AnswerLines, index: int) -> Iterator[AiderEdit]:
    free, path = index, ""  # where the previous edit ends, and the file that it changes
    while index < len(answer.lines):
        line = answer.lines[index].strip()
        edits: Sequence[AiderEdit] = ()
        if SEARCH_MARK.fullmatch(line):
            edits = _parse_search_replace(answer, index, free, path)
        elif answer.edited_files and line == PATCH_START:
            edits = _parse_patch(answer, index, free)
        elif answer.edited_files and FENCE.match(line):
            edits = _parse_diff(answer, index) or _parse_whole_file(answer, index, free)
        if edits:
            yield from edits
            free = index = edits[-1].stop
            path = edits[-1].arguments.get("path", path)
        else:
            index += 1


# --- layouts ---------------------------------------------------------------------------------------------------------


def _parse_search_replace(answer: _AnswerLines, index: int, free: int, path: str) -> Sequence[AiderEdit]:
    """Parse a search/replace block.

    The name of the file is above the block. If the name is missing, the block changes the file of the previous edit,
    or the only edited file.
    """
    divider = _next_after(answer.divider_marks, index)
    end = answer.find_block_end(divider) if divider is not None else None
    if divider is None or end is None:
        return ()
    name, start = _find_name_before(answer, index, free)
    path = name or path or (next(iter(answer.edited_files)) if len(answer.edited_files) == 1 else "")
    if not path:
        return ()
    arguments = {
        "path": path,
        "search": _join_lines(answer.lines[index + 1 : divider]),
        "replace": _join_lines(answer.lines[divider + 1 : end]),
    }
    return [AiderEdit(start, _skip_closing_fence(answer.lines, end + 1), index, "search_replace", arguments)]


def _join_lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _find_name_before(answer: _AnswerLines, index: int, free: int) -> tuple[str, int]:
    """Return the file name above an edit, and the index of the first line that belongs to the edit.

    The name is at most three lines above the edit. Fences between the name and the edit are skipped.
    """
    lines, start, fence_count = answer.lines, index, 0
    for before in range(index - 1, max(free, index - 3) - 1, -1):
        is_fence = _is_fence(lines[before])
        if name := _parse_file_name(lines[before], answer.edited_files):
            # The name can be in a separate code block, or in the code block of the edit.
            is_inside = (
                before > free and (fence_count + is_fence) % 2 == 0 and FENCE.match(lines[before - 1]) is not None
            )
            return name, before - is_inside
        if not is_fence:
            break
        start, fence_count = before, fence_count + 1
    return "", start


def _parse_file_name(line: str, edited_files: Collection[str]) -> str:
    """Return the file name in a line that contains only a file name; empty for any other line."""
    name = line.strip()
    if FENCE.match(name):
        name = name.partition(">")[2] if name.startswith("<") else name.lstrip("`")
        return name if "." in name or "/" in name else ""
    name = name.rstrip(":").lstrip("#").strip().strip("`*")
    if name in edited_files:
        return name
    is_name = 0 < len(name) <= MAX_FILE_NAME_LENGTH and name != "..." and not re.search(r"[\s<>{}]", name)
    return name if is_name else ""


def _skip_closing_fence(lines: Sequence[str], index: int) -> int:
    is_fence = index < len(lines) and (lines[index].strip().startswith("</") or FENCE.fullmatch(lines[index].rstrip()))
    return index + 1 if is_fence else index


def _parse_whole_file(answer: _AnswerLines, index: int, free: int) -> Sequence[AiderEdit]:
    """Parse a code block that contains a whole file, below the name of the file."""
    name = _parse_file_name(answer.lines[index - 1], answer.edited_files) if index > free else ""
    end = answer.find_closing_fence(index) if name in answer.edited_files else None
    search = _next_after(answer.search_marks, index)
    if end is None or (search is not None and search < end):
        return ()
    arguments = {"path": name, "content": _join_lines(answer.lines[index + 1 : end])}
    return [AiderEdit(index - 1, end + 1, index, "write_file", arguments)]


def _parse_diff(answer: _AnswerLines, index: int) -> Sequence[AiderEdit]:
    """Parse a unified diff of one or several files."""
    end = answer.find_closing_fence(index) if answer.lines[index].strip().endswith("diff") else None
    file_line = _next_after(answer.file_name_lines, index)
    edits: list[AiderEdit] = []
    while end is not None and file_line is not None and file_line < end:
        following = _next_after(answer.file_name_lines, file_line)
        stop = end if following is None or following > end else following - 1
        path = _DIFF_FILE.sub(r"\1", answer.lines[file_line].strip())
        arguments = {"path": path, "edits": _parse_hunks(answer.lines[file_line + 1 : stop])}
        edits.append(AiderEdit(edits[-1].stop if edits else index, stop, file_line, "apply_diff", arguments))
        file_line = following
    return [*edits[:-1], edits[-1]._replace(stop=edits[-1].stop + 1)] if edits else ()


def _parse_hunks(lines: Sequence[str]) -> list[dict[str, str]]:
    """Parse hunks as search/replace pairs, since the line numbers that models write are often wrong."""
    hunks: list[tuple[list[str], list[str]]] = [([], [])]
    for line in lines:
        if line.startswith("@@"):
            hunks.append(([], []))
            continue
        old, new = hunks[-1]
        if line[:1] not in ("+", "\\"):
            old.append(line[1:])
        if line[:1] not in ("-", "\\"):
            new.append(line[1:])
    return [{"search": _join_lines(old), "replace": _join_lines(new)} for old, new in hunks if old != new]


def _parse_patch(answer: _AnswerLines, index: int, free: int) -> Sequence[AiderEdit]:
    """Parse a patch of one or several files, from `PATCH_START` to `PATCH_END`."""
    end, file_line = _next_after(answer.patch_ends, index), _next_after(answer.file_name_lines, index)
    if end is None or file_line is None or file_line > end:
        return ()
    start = index - (index > free and FENCE.fullmatch(answer.lines[index - 1].rstrip()) is not None)
    text = "\n".join(answer.lines[index : end + 1])
    return [AiderEdit(start, _skip_closing_fence(answer.lines, end + 1), index, "apply_patch", {"input": text})]


# --- results ---------------------------------------------------------------------------------------------------------


def match_edit_results(calls: Sequence[ToolCall], lines: Sequence[str]) -> tuple[tuple[ToolResult, ...], list[str]]:
    """Find the results of edits in Aider's output. Return the results, and the lines that are not results."""
    failed = next((index for index, line in enumerate(lines) if _FAILED_EDITS.match(line)), len(lines))
    applied = {match[1]: line for line in lines[:failed] if (match := _APPLIED_EDIT.fullmatch(line))}
    skipped = {match[1]: line for line in lines[:failed] if (match := _SKIPPED_EDIT.fullmatch(line))}
    refusal = "\n".join(lines[failed:]).strip()
    others_applied = next((line for line in lines[failed:] if _OTHERS_APPLIED.match(line)), "")
    refused = _find_refused_calls(calls, lines[failed:]) if refusal else set()
    results: list[ToolResult] = []
    for call in calls:
        paths = _edited_paths(call)
        success = next((applied[path] for path in paths if path in applied), others_applied)
        failure = refusal if call.id in refused else next((skipped[path] for path in paths if path in skipped), "")
        is_error = call.id in refused or not success
        if text := failure if is_error else success:
            results.append(ToolResult(call.id, (Text(text),), is_error=is_error, name=call.name))
    used = {result.text for result in results} | ({*lines[failed:]} if refused else set())
    return tuple(results), [line for line in lines if line not in used]


def _edited_paths(call: ToolCall) -> list[str]:
    fields = load_json_object(call.arguments)
    if "path" in fields:
        return [fields["path"]]
    return [match[1] for match in _PATCH_FILE.finditer(fields.get("input", ""))]


def _find_refused_calls(calls: Sequence[ToolCall], lines: Sequence[str]) -> set[str]:
    """Return the ids of the calls whose edits failed, as Aider reports. If Aider names no file, all edits failed."""
    refused_per_file = Counter(match[1] for line in lines if (match := _NO_MATCH.fullmatch(line)))
    if not refused_per_file:
        return {call.id for call in calls}
    repeated = _AnswerLines(lines, ())
    refused_searches: set[str] = set()
    for start in repeated.search_marks:
        end, following = _next_after(repeated.divider_marks, start), _next_after(repeated.search_marks, start)
        if end and not (following and following < end):
            refused_searches.add(_strip_whitespace("".join(lines[start + 1 : end])))
    edits_per_file = Counter(path for call in calls for path in _edited_paths(call))
    refused: set[str] = set()
    for call in calls:
        search = _strip_whitespace(load_json_object(call.arguments).get("search", ""))
        for path in _edited_paths(call):
            is_named = path in refused_per_file
            if is_named and (refused_per_file[path] >= edits_per_file[path] or search in refused_searches):
                refused.add(call.id)
    return refused


def _strip_whitespace(text: str) -> str:
    """Return a text without whitespace, since the whitespace in Aider's quotes can differ from the model's text."""
    return "".join(text.split())
