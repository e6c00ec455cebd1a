"""Session folders of Cline and its forks."""

import sys
from collections.abc import Mapping
from pathlib import Path

from thresher.transcripts.base import SessionFolder
from thresher.transcripts.cline.sidecars import TASK_FILES

HOSTS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
SERVERS = (".vscode-server", ".vscode-server-insiders", ".vscode-remote", ".cursor-server", ".windsurf-server")


def find_cline_homes(environment: Mapping[str, str], home: Path, platform: str = "") -> list[SessionFolder]:
    """Return the session folders of all supported editors, local and remote, and of the CLIs."""
    if (platform or sys.platform) == "darwin":
        root = home / "Library" / "Application Support"
    elif (platform or sys.platform) == "win32":
        root = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        root = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    users = [*(root / host / "User" for host in HOSTS), *(home / server / "data" / "User" for server in SERVERS)]
    data = Path(environment.get("CLINE_DATA_DIR") or Path(environment.get("CLINE_DIR") or home / ".cline") / "data")
    sessions = Path(environment.get("CLINE_SESSION_DATA_DIR") or data / "sessions")
    return [
        *(SessionFolder(user / "globalStorage", f"*/tasks/*/{TASK_FILES[0]}") for user in users),
        SessionFolder(data / "tasks", f"*/{TASK_FILES[0]}"),
        SessionFolder(home / ".kilocode" / "cli" / "global" / "tasks", f"*/{TASK_FILES[0]}"),
        SessionFolder(sessions, "*/*.messages.json"),
    ]
