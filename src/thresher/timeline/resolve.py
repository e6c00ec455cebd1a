"""Resolve the steps of a session to actions on single files: which paths, and whether the action happened.

A failed call changes nothing. A call without a result and a command that failed may have changed files, so their
changes are uncertain.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, assert_never

from thresher.model.jsontext import load_json_object
from thresher.model.paths import normalize_path
from thresher.model.text import clip, to_printable_line
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_outcomes import parse_tool_outcome
from thresher.timeline.actions import (
    FileAction,
    FileCopyAction,
    FileDeleteAction,
    FileEditAction,
    FileMoveAction,
    FileReadAction,
    FileWriteAction,
    TreeInvalidation,
    UncertainChange,
    parse_file_actions,
)
from thresher.timeline.path_index import PathIndex
from thresher.timeline.programs import WRITING_CODE, is_rewrite_reported
from thresher.timeline.shell_effects import (
    AnyFileEffect,
    CommandTarget,
    DeleteEffect,
    MentionEffect,
    ModifyEffect,
    MoveEffect,
    OutputDependentEffect,
    ScriptEffect,
    ShellEffect,
    UncertainEffect,
    WriteEffect,
    parse_shell_effects,
)
from thresher.timeline.tool_steps import ToolStep

LONGEST_COMMAND = 80
MAX_REFUSAL_CHARS = 1000
MAX_SEARCHED_OUTPUT = 20_000
"""Number of characters of a command's output to search for formatter messages."""
_REFUSAL = re.compile(
    r"(?:apply_patch )?verification failed|failed to (?:find|apply)|could not find|no changes (?:made|were)"
    r"|string to replace not|old_(?:string|str|text)\b.{0,40}not found|claude requested permissions"
    r"|the user doesn't want to proceed|invalid (?:context|patch)",
    re.IGNORECASE | re.DOTALL,
)
"""Prefixes of tool results that report a refused or failed edit without an error flag."""


class ResolvedAction(NamedTuple):
    """One action of a step."""

    action: FileAction
    failed: bool = False


class ActionResolver:
    """Resolve steps to actions, with an index of the files named so far."""

    def __init__(self, text_of: Callable[[str], str | None]) -> None:
        """`text_of` returns the current text of a file if known; it is used to inspect scripts that run."""
        self.paths = PathIndex()
        self._text_of = text_of

    def resolve_step(self, step: ToolStep) -> Iterator[ResolvedAction]:
        """Yield the actions of a step, in order."""
        is_command = step.link.use.command and not step.link.use.operation
        found = self._resolve_command(step) if is_command else self._resolve_tool_call(step)
        for one in found:
            for path in (getattr(one.action, "path", ""), getattr(one.action, "to", "")):
                if path and not (one.failed or isinstance(one.action, UncertainChange)):
                    self.paths.add(path)
            yield one

    def _resolve_tool_call(self, step: ToolStep) -> Iterator[ResolvedAction]:
        failed = _is_failed_action(step.link)
        for action in parse_file_actions(step.link):
            if isinstance(action, TreeInvalidation | UncertainChange):
                continue
            path = self.paths.resolve_path(action.path, step.folder)
            if isinstance(action, FileMoveAction | FileCopyAction):
                action = action._replace(to=self.paths.resolve_path(action.to, step.folder))  # noqa: PLW2901
                if not action.to:
                    yield ResolvedAction(UncertainChange(path, "moved, and it is not told where to"))
                    continue
            if not path:
                continue
            if step.link.result is None and not isinstance(action, FileReadAction):
                yield ResolvedAction(
                    UncertainChange(path, "a change of it was begun, and it is not told how that ended")
                )
            else:
                yield ResolvedAction(action._replace(path=path), failed)

    def _resolve_command(self, step: ToolStep) -> Iterator[ResolvedAction]:
        link = step.link
        fields = load_json_object(link.call.arguments)
        said = next(
            (fields[key] for key in ("workdir", "cwd", "dir_path", "directory") if isinstance(fields.get(key), str)), ""
        )
        folder = normalize_path(said, step.folder) if said else step.folder
        what = f"`{clip(to_printable_line(link.use.command), LONGEST_COMMAND)}`"
        end = parse_tool_outcome(link.result, is_command=True)
        for effect, sure in parse_shell_effects(link.use.command, folder):
            if isinstance(effect, OutputDependentEffect):
                effect = AnyFileEffect()  # noqa: PLW2901
                if not is_rewrite_reported(end.output[:MAX_SEARCHED_OUTPUT]):
                    continue
            yield from self._resolve_effect(effect, what, step.folder, sure=sure and end.is_known and not end.failed)

    def _resolve_effect(self, effect: ShellEffect, what: str, project: str, *, sure: bool) -> Iterator[ResolvedAction]:
        may = f"{what} may have changed it"
        match effect:
            case WriteEffect():
                path = self.paths.resolve_path(effect.target.path, project)
                certain = FileWriteAction(path, effect.text, effect.append) if sure else UncertainChange(path, may)
                yield ResolvedAction(certain)
            case ModifyEffect():
                yield from (
                    ResolvedAction(FileEditAction(path, ()) if sure else UncertainChange(path, may))
                    for path in self._find_or_named(effect.target)
                )
            case DeleteEffect():
                yield from (
                    ResolvedAction(FileDeleteAction(path) if sure else UncertainChange(path, may))
                    for path in self._find_removed(effect.target)
                )
            case MoveEffect():
                for path, to in self._resolve_moves(effect):
                    action = FileCopyAction(path, to) if effect.is_copy else FileMoveAction(path, to)
                    yield from (
                        [ResolvedAction(action)]
                        if sure
                        else [ResolvedAction(UncertainChange(path, may)), ResolvedAction(UncertainChange(to, may))]
                    )
            case UncertainEffect():
                found = self.paths.find_targets(effect.target)
                yield from (ResolvedAction(UncertainChange(path, may)) for path in found)
                if not found and effect.or_any_file:
                    yield ResolvedAction(TreeInvalidation(project, what))
            case MentionEffect():
                yield from (
                    ResolvedAction(UncertainChange(path, may)) for path in self.paths.find_mentioned(effect.text)
                )
            case ScriptEffect():
                yield from (ResolvedAction(UncertainChange(path, may)) for path in self._find_script_files(effect))
            case AnyFileEffect() | OutputDependentEffect():
                yield ResolvedAction(TreeInvalidation(project, what))
            case _:
                assert_never(effect)

    def _find_or_named(self, target: CommandTarget) -> list[str]:
        """Return the known files, or else the path as written, since a file with that path must exist."""
        return self.paths.find_targets(target) or ([] if target.is_pattern else [target.path])

    def _find_removed(self, target: CommandTarget) -> list[str]:
        """Like `_find_or_named`, but a name without an extension is taken for an unknown folder."""
        found = self.paths.find_targets(target)
        return found or ([target.path] if "." in posixpath.basename(target.path) and not target.is_pattern else [])

    def _resolve_moves(self, effect: MoveEffect) -> Iterator[tuple[str, str]]:
        into = effect.into_folder or bool(self.paths.find_below(effect.to.path))
        for target in effect.targets:
            for path in self._find_or_named(target):
                inside = path[len(target.path) :] if path.startswith(f"{target.path}/") else ""
                name = posixpath.basename(path if target.is_pattern else target.path)
                yield path, normalize_path(f"{effect.to.path}/{name}{inside}" if into else effect.to.path + inside)

    def _find_script_files(self, effect: ScriptEffect) -> list[str]:
        scripts = self.paths.find_targets(effect.target)
        text = self._text_of(scripts[0]) if len(scripts) == 1 else None
        if text is not None and not WRITING_CODE.search(text):
            return []
        named = self.paths.find_mentioned(effect.arguments)
        return list(dict.fromkeys([*named, *(self.paths.find_mentioned(text) if text is not None else ())]))


def _is_failed_action(link: ToolUse) -> bool:
    end = parse_tool_outcome(
        link.result, is_command=bool(link.use.command) or "Exit code:" in (link.result.text[:40] if link.result else "")
    )
    refused = len(end.output) < MAX_REFUSAL_CHARS and _REFUSAL.match(
        end.output.strip().removeprefix("<tool_use_error>")
    )
    return end.failed or (link.use.operation != "read" and bool(refused))
