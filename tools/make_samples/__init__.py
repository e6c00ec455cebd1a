"""Generate the sample sessions: `cd tools && python -m make_samples` writes the archive that the package ships.

Four agents work on one web shop. Each module writes the files of one agent in that agent's format, into a folder laid
out like a home directory, so that discovery finds them. The bytes are the same on every machine: they depend only on
this code.
"""

from pathlib import Path

from make_samples import codex, mini_swe, pi
from make_samples.claude_code import Transcript
from make_samples.claude_export import export_session
from make_samples.claude_rounding import rounding_session
from make_samples.seeds import Record, line_of

__all__ = ["generate_samples"]


def generate_samples(folder: Path) -> list[Path]:
    """Write every sample session under a folder; return the files in the order they were written."""
    return [*write_claude_code(folder), *codex.write(folder), *pi.write(folder), *mini_swe.write(folder)]


def write_claude_code(folder: Path) -> list[Path]:
    """Write both Claude Code sessions and the sub-agent's files."""
    project = folder / ".claude" / "projects" / "-home-sam-shop"
    main, agent, spawned = rounding_session()
    export = export_session()
    agents = project / main.session / "subagents"
    facts = {"agentType": "Explore", "description": "Find money kept as float", "toolUseId": spawned}
    return [
        write_transcript(project / f"{main.session}.jsonl", main),
        write_transcript(agents / f"agent-{agent.agent}.jsonl", agent),
        write_record(agents / f"agent-{agent.agent}.meta.json", facts),
        write_transcript(project / f"{export.session}.jsonl", export),
    ]


def write_transcript(path: Path, transcript: Transcript) -> Path:
    """Write a session file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(line_of, transcript.records)))
    return path


def write_record(path: Path, record: Record) -> Path:
    """Write a metadata record next to a session file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(line_of(record).rstrip())
    return path
