"""Steps of a session as actions on single files: whose path, and whether it came to that at all.

A call that failed changes nothing. One without a result may have been carried out or not, and so may a command that
ended badly: what they would have changed is in doubt.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, assert_never

from thresher.model.jsontext import load_fields
from thresher.model.tools import Link
from thresher.policies.files import normal_path
from thresher.summarise.outcomes import outcome
from thresher.summarise.words import clip, line
from thresher.timeline.actions import Action, Copy, Delete, Doubt, Edit, Move, Read, Sweep, Write, actions
from thresher.timeline.commands import (
    Alters,
    Doubts,
    Effect,
    Mentions,
    Moves,
    Puts,
    Removes,
    Runs,
    Sweeps,
    Target,
    Tells,
    effects,
)
from thresher.timeline.names import Names
from thresher.timeline.programs import WRITES, rewrote
from thresher.timeline.steps import Step

LONGEST_COMMAND = 80
SHORT_ANSWER = 1000
SEARCHED = 20_000
"""How much of what a command printed is searched for words of formatters."""
_REFUSED = re.compile(
    r"(?:apply_patch )?verification failed|failed to (?:find|apply)|could not find|no changes (?:made|were)"
    r"|string to replace not|old_(?:string|str|text)\b.{0,40}not found|claude requested permissions"
    r"|the user doesn't want to proceed|invalid (?:context|patch)",
    re.IGNORECASE | re.DOTALL,
)
"""How tools begin that did not do what they were asked to, and set no flag for it."""


class Taken(NamedTuple):
    """One action of a step."""

    action: Action
    failed: bool = False


class Resolver:
    """Turns steps into actions; knows the files that were named so far."""

    def __init__(self, text_of: Callable[[str], str | None]) -> None:
        """`text_of` tells the text of a file that is known just now: scripts that run are looked into."""
        self.names = Names()
        self._text_of = text_of

    def taken(self, step: Step) -> Iterator[Taken]:
        """The actions of a step, in order."""
        is_command = step.link.use.command and not step.link.use.operation
        found = self._of_command(step) if is_command else self._of_tool(step)
        for one in found:
            for path in (getattr(one.action, "path", ""), getattr(one.action, "to", "")):
                if path and not (one.failed or isinstance(one.action, Doubt)):
                    self.names.add(path)
            yield one

    def _of_tool(self, step: Step) -> Iterator[Taken]:
        failed = _failed(step.link)
        for action in actions(step.link):
            if isinstance(action, Sweep | Doubt):
                continue
            path = self.names.full(action.path, step.folder)
            if isinstance(action, Move | Copy):
                action = action._replace(to=self.names.full(action.to, step.folder))  # noqa: PLW2901
                if not action.to:
                    yield Taken(Doubt(path, "moved, and it is not told where to"))
                    continue
            if not path:
                continue
            if step.link.result is None and not isinstance(action, Read):
                yield Taken(Doubt(path, "a change of it was begun, and it is not told how that ended"))
            else:
                yield Taken(action._replace(path=path), failed)

    def _of_command(self, step: Step) -> Iterator[Taken]:
        link = step.link
        fields = load_fields(link.call.arguments)
        said = next(
            (fields[key] for key in ("workdir", "cwd", "dir_path", "directory") if isinstance(fields.get(key), str)), ""
        )
        folder = normal_path(said, step.folder) if said else step.folder
        what = f"`{clip(line(link.use.command), LONGEST_COMMAND)}`"
        end = outcome(link.result, is_command=True)
        for effect, sure in effects(link.use.command, folder):
            if isinstance(effect, Tells):
                effect = Sweeps()  # noqa: PLW2901
                if not rewrote(end.output[:SEARCHED]):
                    continue
            yield from self._of_effect(effect, what, step.folder, sure=sure and end.known and not end.failed)

    def _of_effect(self, effect: Effect, what: str, project: str, *, sure: bool) -> Iterator[Taken]:
        may = f"{what} may have changed it"
        match effect:
            case Puts():
                path = self.names.full(effect.target.path, project)
                certain = Write(path, effect.text, effect.append) if sure else Doubt(path, may)
                yield Taken(certain)
            case Alters():
                yield from (Taken(Edit(path, ()) if sure else Doubt(path, may)) for path in self._meant(effect.target))
            case Removes():
                yield from (Taken(Delete(path) if sure else Doubt(path, may)) for path in self._removed(effect.target))
            case Moves():
                for path, to in self._moved(effect):
                    action = Copy(path, to) if effect.copies else Move(path, to)
                    yield from [Taken(action)] if sure else [Taken(Doubt(path, may)), Taken(Doubt(to, may))]
            case Doubts():
                found = self.names.meant(effect.target)
                yield from (Taken(Doubt(path, may)) for path in found)
                if not found and effect.else_all:
                    yield Taken(Sweep(project, what))
            case Mentions():
                yield from (Taken(Doubt(path, may)) for path in self.names.mentioned(effect.text))
            case Runs():
                yield from (Taken(Doubt(path, may)) for path in self._run(effect))
            case Sweeps() | Tells():
                yield Taken(Sweep(project, what))
            case _:
                assert_never(effect)

    def _meant(self, target: Target) -> list[str]:
        """Known files, or else the one that is named: something happened to it, too."""
        return self.names.meant(target) or ([] if target.pattern else [target.path])

    def _removed(self, target: Target) -> list[str]:
        """As above; a name without an ending is a folder of which nothing is known, and none of its files."""
        found = self.names.meant(target)
        return found or ([target.path] if "." in posixpath.basename(target.path) and not target.pattern else [])

    def _moved(self, effect: Moves) -> Iterator[tuple[str, str]]:
        into = effect.into or bool(self.names.below(effect.to.path))
        for target in effect.targets:
            for path in self._meant(target):
                inside = path[len(target.path) :] if path.startswith(f"{target.path}/") else ""
                name = posixpath.basename(path if target.pattern else target.path)
                yield path, normal_path(f"{effect.to.path}/{name}{inside}" if into else effect.to.path + inside)

    def _run(self, effect: Runs) -> list[str]:
        scripts = self.names.meant(effect.target)
        text = self._text_of(scripts[0]) if len(scripts) == 1 else None
        if text is not None and not WRITES.search(text):
            return []
        named = self.names.mentioned(effect.told)
        return list(dict.fromkeys([*named, *(self.names.mentioned(text) if text is not None else ())]))


def _failed(link: Link) -> bool:
    end = outcome(
        link.result, is_command=bool(link.use.command) or "Exit code:" in (link.result.text[:40] if link.result else "")
    )
    refused = len(end.output) < SHORT_ANSWER and _REFUSED.match(end.output.strip().removeprefix("<tool_use_error>"))
    return end.failed or (link.use.operation != "read" and bool(refused))
