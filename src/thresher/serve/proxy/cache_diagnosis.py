"""Ask the API why its cache did not serve a request, and separate Thresher's own misses from all others.

Each request of a conversation names the answer before it, and the API compares the two requests. Only ids of answers
are kept. An API that refuses the field is not asked again for this model, because support depends on the model.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from thresher.dialects.cache_comparison import CacheComparison, ComparisonResult
from thresher.dialects.request_bytes import InsertedField, RequestBody
from thresher.dialects.table import find_dialect
from thresher.serve.proxy.conversations import Conversation, digest_opening

MAX_ANSWERS = 200
"""Maximum number of answers that later requests can name."""
MAX_REFUSALS = 20
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
log = logging.getLogger("thresher.proxy")


class AnsweredRequest(NamedTuple):
    """The latest answer of a conversation."""

    id: str
    fell_back: bool
    """True if its request fell back, so that the next one may have other edits without a replan."""


class CacheQuestion(NamedTuple):
    """The question of a request to the API."""

    comparison: CacheComparison
    before: AnsweredRequest | None
    target: str
    """Host of the upstream and model."""
    keys: tuple[str, ...]

    @property
    def inserted(self) -> InsertedField | None:
        """Field to add to the request; None if the first request of a conversation needs none."""
        api = self.comparison
        if self.before is None and not api.begins_with_null:
            return None
        return InsertedField(api.field, api.id_field, self.before.id if self.before is not None else None)

    @property
    def answer_fields(self) -> tuple[str, ...]:
        """Fields to read from the answer."""
        return "id", self.comparison.answer_field


class CacheDiagnosis:
    """The latest answers of the conversations of a proxy, and the upstreams that refuse to compare requests."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._answers: OrderedDict[str, AnsweredRequest] = OrderedDict()
        self._refused_by: OrderedDict[str, None] = OrderedDict()

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"on": self._is_on, "refused_by": list(self._refused_by)}

    def ask(self, identity: Conversation, dialect: str, url: str, body: RequestBody) -> CacheQuestion | None:
        """Return what to ask with a request; None if nothing."""
        api = find_dialect(dialect).http_api
        comparison = api.cache_comparison if api is not None else None
        target = f"{urlsplit(url).hostname} {identity.model}"
        if not self._is_on or comparison is None or identity.kind != "turn" or target in self._refused_by:
            return None
        if not comparison.can_ask(body.value):
            return None
        try:
            keys = tuple(_list_keys(identity, dialect, target, body))
        except Exception as error:  # noqa: BLE001 - a question must not break a session
            log.warning("a request is not diagnosed: %s", type(error).__name__)
            return None
        before = next((self._answers[key] for key in keys if key in self._answers), None)
        return CacheQuestion(comparison, before, target, keys)

    def record_refusal(self, question: CacheQuestion) -> None:
        """Stop asking an upstream about a model."""
        log.warning("%s refuses cache diagnostics, so it is not asked again", question.target)
        self._refused_by[question.target] = None
        if len(self._refused_by) > MAX_REFUSALS:
            self._refused_by.popitem(last=False)

    def record_answer(
        self, question: CacheQuestion, fields: dict[str, Any], *, fell_back: bool
    ) -> ComparisonResult | None:
        """Remember an answer for the next request, and return the result of the comparison; None if there was none."""
        id_ = fields.get("id")
        if isinstance(id_, str) and _ID.fullmatch(id_):
            for key in question.keys:
                self._answers[key] = AnsweredRequest(id_, fell_back)
                self._answers.move_to_end(key)
            while len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
        return question.comparison.read_answer(fields) if question.before is not None else None


def _list_keys(identity: Conversation, dialect: str, target: str, body: RequestBody) -> Iterator[str]:
    """Yield the keys of a conversation.

    The first stays the same when the model, the tools or the system text change, the second when the agent compacts its
    history: all of these break a cache.
    """
    host = target.partition(" ")[0]
    yield f"{host} {digest_opening(identity, dialect, body.value[body.messages_field])}"
    yield f"{host} {identity.key}"
