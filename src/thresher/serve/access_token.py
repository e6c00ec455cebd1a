"""The token that clients of the HTTP server must send, in a file that only the user can read."""

import os
import secrets
from pathlib import Path
from typing import NamedTuple

from thresher.errors import OptionError
from thresher.store.home import create_private_folder

TOKEN_FILE = "mcp-token"
"""Name of the file in Thresher's data folder."""


class AccessToken(NamedTuple):
    """A token, its file, and True if this call created it."""

    text: str
    file: Path
    is_new: bool


def load_access_token(folder: Path) -> AccessToken:
    """Return the token in a data folder; create it if there is none."""
    file = folder / TOKEN_FILE
    create_private_folder(folder)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return AccessToken(_read_token(file), file, is_new=False)
    except OSError as error:
        raise _token_error(file, error) from error
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(f"{token}\n")
    return AccessToken(token, file, is_new=True)


def _read_token(file: Path) -> str:
    try:
        file.chmod(0o600)  # also if the user copied it with wider rights
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _token_error(file, error) from error
    if not token:
        raise OptionError(f"`{file}` is empty; delete it, and the server creates a new token")
    return token


def _token_error(file: Path, error: OSError | ValueError) -> OptionError:
    reason = (isinstance(error, OSError) and error.strerror) or error
    return OptionError(f"cannot use the token file `{file}`: {reason}; check its permissions, or pass a token")
