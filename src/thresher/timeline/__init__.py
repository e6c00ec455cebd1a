"""File history: the content of each file after any turn, the changes, and the reason for each.

The input is a session; the output is events, file states and changelogs. Paths are text from the transcript; this
package never opens a file.
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
"""The old name of `build_changelog`. Its use causes no warning, because a module has the same name."""

if not TYPE_CHECKING:  # a type checker must not accept unknown names
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Entry": "thresher.timeline:ChangelogEntry",
            "Event": "thresher.timeline:FileEvent",
            "FileChanges": "thresher.timeline:FileChangelog",
            "FileFacts": "thresher.timeline:FileActivity",
        },
    )
