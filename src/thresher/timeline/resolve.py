"""Resolve the steps of a session to actions on single files: which paths, and whether the action happened.

A failed call changes nothing. A call without a result and a command that failed may have changed files, so their
changes are uncertain.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from itertools import chain
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

_FOLDER_KEYS = ("workdir", "cwd", "dir_path", "directory")
LONGEST_COMMAND = 80
MAX_REFUSAL_CHARS = 1000
MAX_SEARCHED_OUTPUT = 20_000
"""Maximum length of the beginning of a command's output in which formatter messages are found, in characters."""
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
        """Start without known paths. `text_of` returns the current text of a file, if known, to inspect scripts."""
        self.paths = PathIndex()
        self._text_of = text_of

    def resolve_step(self, step: ToolStep) -> Iterator[ResolvedAction]:
        """Yield the actions of a step, in order."""
        is_command = step.link.use.command and not step.link.use.operation
        for resolved in self._resolve_command(step) if is_command else self._resolve_tool_call(step):
            for path in (getattr(resolved.action, "path", ""), getattr(resolved.action, "to", "")):
                if path and not (resolved.failed or isinstance(resolved.action, UncertainChange)):
                    self.paths.add(path)
            yield resolved

    def _resolve_tool_call(self, step: ToolStep) -> Iterator[ResolvedAction]:
        failed = _is_failed_action(step.link)
        for action in parse_file_actions(step.link):
            if isinstance(action, TreeInvalidation | UncertainChange):
                continue
            path = self.paths.resolve_path(action.path, step.folder)
            if isinstance(action, FileMoveAction | FileCopyAction):
                action = action._replace(to=self.paths.resolve_path(action.to, step.folder))  # noqa: PLW2901
                if not action.to:
                    yield ResolvedAction(UncertainChange(path, "moved to an unknown path"))
                    continue
            if not path:
                continue
            if step.link.result is None and not isinstance(action, FileReadAction):
                yield ResolvedAction(UncertainChange(path, "a change without a result"))
            else:
                yield ResolvedAction(action._replace(path=path), failed)

    def _resolve_command(self, step: ToolStep) -> Iterator[ResolvedAction]:
        link = step.link
        fields = load_json_object(link.call.arguments)
        folders = (fields[key] for key in _FOLDER_KEYS if isinstance(fields.get(key), str))
        folder = normalize_path(next(folders, "") or step.folder, step.folder)
        command = f"`{clip(to_printable_line(link.use.command), LONGEST_COMMAND)}`"
        outcome = parse_tool_outcome(link.result, is_command=True)
        is_done = outcome.is_known and not outcome.failed
        for effect, runs in parse_shell_effects(link.use.command, folder):
            output = outcome.output[:MAX_SEARCHED_OUTPUT]
            if isinstance(effect, OutputDependentEffect) and not is_rewrite_reported(output):
                continue
            for action in self._resolve_effect(effect, command, step.folder, is_certain=runs and is_done):
                yield ResolvedAction(action)

    def _resolve_effect(
        self, effect: ShellEffect, command: str, project: str, *, is_certain: bool
    ) -> Iterator[FileAction]:
        def uncertain(*paths: str) -> Iterator[FileAction]:
            return (UncertainChange(path, f"{command} may have changed it") for path in paths)

        match effect:
            case WriteEffect():
                path = self.paths.resolve_path(effect.target.path, project)
                yield from [FileWriteAction(path, effect.text, effect.append)] if is_certain else uncertain(path)
            case ModifyEffect():
                paths = self._find_or_named(effect.target)
                yield from (FileEditAction(path, ()) for path in paths) if is_certain else uncertain(*paths)
            case DeleteEffect():
                paths = self._find_removed(effect.target)
                yield from map(FileDeleteAction, paths) if is_certain else uncertain(*paths)
            case MoveEffect():
                make = FileCopyAction if effect.is_copy else FileMoveAction
                for path, to in self._resolve_moves(effect):
                    yield from [make(path, to)] if is_certain else uncertain(path, to)
            case UncertainEffect():
                paths = self.paths.find_targets(effect.target)
                yield from uncertain(*paths)
                if not paths and effect.or_any_file:
                    yield TreeInvalidation(project, command)
            case MentionEffect():
                yield from uncertain(*self.paths.find_mentioned(effect.text))
            case ScriptEffect():
                yield from uncertain(*self._find_script_files(effect))
            case AnyFileEffect() | OutputDependentEffect():
                yield TreeInvalidation(project, command)
            case _:
                assert_never(effect)

    def _find_or_named(self, target: CommandTarget) -> list[str]:
        """Return the known files of a target. Without any, return its path, because that file must exist."""
        return self.paths.find_targets(target) or ([] if target.is_pattern else [target.path])

    def _find_removed(self, target: CommandTarget) -> list[str]:
        """Return the known files of a target. Without any, return its path if the file name has an extension."""
        is_file = "." in posixpath.basename(target.path) and not target.is_pattern
        return self.paths.find_targets(target) or ([target.path] if is_file else [])

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
        mentioned = (self.paths.find_mentioned(source) for source in (effect.arguments, text or ""))
        return list(dict.fromkeys(chain.from_iterable(mentioned)))


def _is_failed_action(link: ToolUse) -> bool:
    has_exit_code = link.result is not None and "Exit code:" in link.result.text[:40]
    outcome = parse_tool_outcome(link.result, is_command=bool(link.use.command) or has_exit_code)
    output = outcome.output.strip().removeprefix("<tool_use_error>")
    is_refused = len(outcome.output) < MAX_REFUSAL_CHARS and _REFUSAL.match(output) is not None
    return outcome.failed or (link.use.operation != "read" and is_refused)
