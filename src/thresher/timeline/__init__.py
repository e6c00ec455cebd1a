"""What happened to files: their text after any turn, what changed them, and why.

In: a session. Out: events, states and changelogs, as values. Paths in a session are text; none is ever opened.
"""

from thresher.timeline.changelog import changelog
from thresher.timeline.timeline import Timeline
from thresher.timeline.values import Changelog, Entry, Event, FileChanges, FileFacts, FileState

__all__ = ["Changelog", "Entry", "Event", "FileChanges", "FileFacts", "FileState", "Timeline", "changelog"]
