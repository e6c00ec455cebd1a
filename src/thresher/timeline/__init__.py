"""What happened to files: their text after any turn, what changed them, and why.

In: a session. Out: events, states and changelogs, as values. Paths in a session are text; none is ever opened.
"""

from typing import TYPE_CHECKING

from thresher.deprecation import ForwardedNames
from thresher.timeline.changelog import build_changelog
from thresher.timeline.records import Changelog, ChangelogEntry, FileActivity, FileChangelog, FileEvent, FileState
from thresher.timeline.timeline import Timeline

__all__ = [
    "Changelog",
    "ChangelogEntry",
    "FileActivity",
    "FileChangelog",
    "FileEvent",
    "FileState",
    "Timeline",
    "build_changelog",
]

changelog = build_changelog
"""The name that `build_changelog` had; a module of that name is here, too, so no warning can be given."""

if not TYPE_CHECKING:  # a type checker shall not take every name for one that is here
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Entry": "thresher.timeline:ChangelogEntry",
            "Event": "thresher.timeline:FileEvent",
            "FileChanges": "thresher.timeline:FileChangelog",
            "FileFacts": "thresher.timeline:FileActivity",
        },
    )
