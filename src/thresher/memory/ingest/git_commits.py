"""Extract the subjects of commits from the output of git commands."""

import re
from collections.abc import Iterable
from itertools import islice

from thresher.memory.index.documents import CommitSubjects
from thresher.memory.index.tokenizer import separate_unspaced_scripts
from thresher.memory.ingest.redaction import redact

MAX_COMMITS = 200
"""Maximum number of commits to extract from one output."""
MAX_SUBJECT_LENGTH = 200

_GRAPH = r"[*|\\/ ]{0,20}"
_REFS = r"\((?=[^()\n]{0,200}(?:HEAD|tag: |/|main|master))[^()\n]{1,200}\) "
_ONE_LINE = rf"{_GRAPH}(?P<hash>[0-9a-f]{{7,40}}) (?:{_REFS})?(?P<line>\S[^\n]{{2,400}})"
_AT_LENGTH = (
    rf"{_GRAPH}commit [0-9a-f]{{40}}[^\n]{{0,200}}\n(?:{_GRAPH}[A-Z]\w{{2,12}}:[^\n]{{0,200}}\n){{1,6}}"
    rf"{_GRAPH}\n{_GRAPH}(?P<first>\S[^\n]{{2,400}})"
)
_MADE = r"\[[^\[\]\n]{1,200} (?=[0-9]{0,39}[a-f])[0-9a-f]{7,40}\] (?P<made>\S[^\n]{2,400})"
_COMMIT_LINE = re.compile(rf"\n(?:{_ONE_LINE}|{_AT_LENGTH}|{_MADE})")
_NUMBER = re.compile(r" ?\(#\d+\)$")


def normalize_subject(text: str) -> str:
    """Normalize a commit subject for comparison: lower case, without a pull request number."""
    words = separate_unspaced_scripts(text[: 2 * MAX_SUBJECT_LENGTH]).lower().split()
    return _NUMBER.sub("", " ".join(words))[:MAX_SUBJECT_LENGTH]


def extract_commit_subjects(output: str) -> CommitSubjects:
    """Extract commit subjects from an output, except those that contain a secret."""
    lines = [*islice(_COMMIT_LINE.finditer(f"\n{output}"), MAX_COMMITS)]
    # A number without letters is rarely a hash.
    is_log = any(line["first"] or (line["hash"] and not line["hash"].isdigit()) for line in lines)
    logged = [line["line"] or line["first"] for line in lines] if is_log else []
    return CommitSubjects(_subjects(line["made"] for line in lines), _subjects(logged)) if lines else CommitSubjects()


def _subjects(lines: Iterable[str | None]) -> tuple[str, ...]:
    subjects = dict.fromkeys(normalize_subject(line) for line in lines if line and redact(line) == line)
    return tuple(subject for subject in subjects if subject)
