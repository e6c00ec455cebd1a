"""A copy of the rows that a window sent, to send them again without the window.

A caller that cannot wait for the window, or whose window failed, appends the new rows to these. So the prefix stays the
same, and the provider's prompt cache serves it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from thresher.window.conversation import EncodedRow
from thresher.window.request import read_request

BodyChange = Callable[[Any], Any]


class SentRows(Struct, frozen=True):
    """The rows of the latest request: each is an encoded row, or the index of a row that was sent unchanged."""

    dialect: str
    prompt_digest: bytes
    row_digests: Sequence[bytes]
    slots: Sequence[Any]
    changed_fields: dict[str, Any]
    """Fields before the rows that a repair changed."""
    finish: BodyChange | None = None
    """Function that changes the other fields of a body, if the edits require it."""

    def extend_to(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return a request body that starts with these rows, with its new rows unchanged; None if it does not."""
        request = read_request(body, self.dialect)
        count = len(self.row_digests)
        if request.prompt_digest != self.prompt_digest or request.row_digests[:count] != list(self.row_digests):
            return None
        if self.is_unchanged:
            return body
        edited = [slot.row if isinstance(slot, EncodedRow) else request.rows[slot] for slot in self.slots]
        rows = [*edited, *request.rows[count:]]
        sent = {**body, **self.changed_fields, request.dialect.messages_field: rows}
        return self.finish(sent) if self.finish is not None else sent

    @property
    def is_unchanged(self) -> bool:
        """True if the request was sent as the agent passed it in."""
        return not self.changed_fields and list(self.slots) == list(range(len(self.row_digests)))
