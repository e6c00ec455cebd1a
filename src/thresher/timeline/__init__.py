"""What happened to files: their text after any turn, what changed them, and why.

In: a session. Out: events, states and changelogs, as values. Paths in a session are text; none is ever opened.
"""

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
