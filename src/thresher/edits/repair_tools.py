"""Repairs of calls and results: answers for calls, words for answers without one, ids that every API takes."""

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from thresher.dialects.content import encode_call_arguments
from thresher.dialects.extras import get_extra_fields
from thresher.edits.legality import Violation
from thresher.edits.repair_bench import Bench, Draft, with_parts
from thresher.edits.rules_tools import SHELL, kind_of
from thresher.edits.rules_view import CHAT, RESPONSES, Facts
from thresher.model import Message, Place, Pocket
from thresher.model.jsontext import dump
from thresher.model.parts import Part, Text, Thinking, ToolCall, ToolResult, Unknown

INTERRUPTED = "Error: interrupted, no result was recorded"
"""Begins as the writers begin a failure where an API has no mark for it, so it weighs what will be sent."""
UNKNOWN_CALL = "[result of an unknown call]"
SECOND_RESULT = "[another result of a call answered before]"
LONGEST_NAME = 40
"""The shortest limit that an API sets to an id."""
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


def set_right(bench: Bench, violations: Sequence[Violation]) -> None:
    """Calls and results in messages of the wrong role: a result moves to its call, the rest becomes words."""
    facts = Facts(bench.history)
    new: dict[Place, tuple[Part, ...]] = {}
    calls: set[int] = set()
    for place in _places(violations):
        part = bench.part(place)
        if isinstance(part, ToolCall):
            new[place] = (Text(f"[call of {part.name}] {part.arguments}".rstrip()),)
        elif isinstance(part, Thinking):
            new[place] = ()
        elif isinstance(part, ToolResult) and place in facts.answered:
            calls.add(facts.answered[place].message)
        elif isinstance(part, ToolResult):
            new[place] = told(part, UNKNOWN_CALL)
    if not new:
        gather(bench, facts, calls)
        return
    bench.note_all([one for one in violations if _place(one) in new], "written as text: it cannot stand in this role")
    bench.replace_parts(new)


def tell_loose(bench: Bench, violations: Sequence[Violation]) -> None:
    """Results that answer no call, or one answered before, become words of the user's side."""
    repeats = {_place(one) for one in violations if one.rule == "repeated-result"}
    new: dict[Place, tuple[Part, ...]] = {}
    for place in _places(violations):
        part = bench.part(place)
        if isinstance(part, ToolResult):
            new[place] = told(part, SECOND_RESULT if place in repeats else UNKNOWN_CALL)
    bench.note_all(violations, "written as text: no open call asked for it")
    _leave_role(bench, new)
    bench.replace_parts(new)


def told(result: ToolResult, lead: str) -> tuple[Part, ...]:
    """A result as words, with its pictures behind."""
    others = [part for part in result.content if not isinstance(part, Text | Unknown)]
    return (Text(f"{lead} {result.text}".rstrip()), *others)


def _leave_role(bench: Bench, new: dict[Place, tuple[Part, ...]]) -> None:
    """A message that is not all results is the user's, and one of nothing but told results in nobody's dialect."""
    messages: dict[int, Message | None] = {}
    for index in {place.message for place in new}:
        message = bench.drafts[index].message
        role = "user" if message.role == "tool" else message.role
        whole = all(Place(index, part) in new for part in range(len(message.parts)))
        messages[index] = structs.replace(message, role=role, pocket=None if whole else message.pocket)
    bench.replace_messages(messages)


def answer(bench: Bench, violations: Sequence[Violation]) -> None:
    """Calls without a result get a marked one, results elsewhere come to their call's next message."""
    facts = Facts(bench.history)
    places = _places(violations)
    gather(bench, facts, {facts.answered.get(place, place).message for place in places})


def gather(bench: Bench, facts: Facts, calls: set[int]) -> None:
    """All results of a message's calls in one message right behind it, in the order of the calls."""
    results = {index: _results_of(facts, index) for index in sorted(calls)}
    taken = {place for places in results.values() for _, place in places if place is not None}
    for index, places in results.items():
        _tell_gathering(bench, index, places)
    drafts: list[Draft] = []
    for index, draft in enumerate(bench.drafts):
        kept = [pair for number, pair in enumerate(_pairs(draft)) if Place(index, number) not in taken]
        host = index - 1 if index - 1 in calls and _hosts(draft, index, results[index - 1]) else None
        if host is not None:
            drafts.append(with_parts(draft, [*_gathered(bench, host, results[host], draft.message.pocket), *kept]))
        elif len(kept) == len(draft.message.parts):
            drafts.append(draft)
        elif kept:
            drafts.append(with_parts(draft, kept))
        if index in calls and not _hosts_next(bench, index, results[index]):
            drafts.append(_made(bench, index, results[index]))
    bench.drafts = drafts


def _results_of(facts: Facts, index: int) -> list[tuple[Place, Place | None]]:
    return [
        (piece.place, facts.answers.get(piece.place))
        for piece in facts.pieces[index]
        if isinstance(piece.part, ToolCall)
    ]


def _pairs(draft: Draft) -> list[tuple[Part, Place]]:
    return list(zip(draft.message.parts, draft.places, strict=True))


def _hosts(draft: Draft, index: int, results: list[tuple[Place, Place | None]]) -> bool:
    """Whether a message behind the call holds some of its results already, so that the others can join them."""
    here = any(place is not None and place.message == index for _, place in results)
    return here and draft.message.role in ("user", "tool")


def _hosts_next(bench: Bench, index: int, results: list[tuple[Place, Place | None]]) -> bool:
    return index + 1 < len(bench.drafts) and _hosts(bench.drafts[index + 1], index + 1, results)


def _tell_gathering(bench: Bench, index: int, results: list[tuple[Place, Place | None]]) -> None:
    hosted = _hosts_next(bench, index, results)
    for call, result in results:
        if result is None:
            bench.note("unanswered-call", *call, "given a marked result: none was recorded")
        elif not hosted or result.message != index + 1:
            bench.note("result-place", *result, "moved to right behind its call")


def _gathered(
    bench: Bench, index: int, results: list[tuple[Place, Place | None]], pocket: Pocket | None
) -> list[tuple[Part, Place]]:
    draft = bench.drafts[index]
    gathered: list[tuple[Part, Place]] = []
    for call, result in results:
        asked = bench.part(call)
        if result is not None:
            source = bench.drafts[result.message]
            gathered.append((_at_home(bench.part(result), source.message.pocket, pocket), source.places[result.part]))
        elif isinstance(asked, ToolCall):
            made = ToolResult(asked.id, (Text(INTERRUPTED),), is_error=True, name=asked.name)
            gathered.append((made, draft.places[call.part]))
    return gathered


def _at_home(part: Part, source: Pocket | None, target: Pocket | None) -> Part:
    """A result for a message of another format: pieces that only its own understands stay behind."""
    same = (source.format if source else None) == (target.format if target else None)
    if same or not isinstance(part, ToolResult) or not any(isinstance(one, Unknown) for one in part.content):
        return part
    return structs.replace(part, content=tuple([one for one in part.content if not isinstance(one, Unknown)]))


def _made(bench: Bench, index: int, results: list[tuple[Place, Place | None]]) -> Draft:
    """A message for the results: the very one that held them all and nothing else, or a new one."""
    sources = {place.message for _, place in results if place is not None}
    if len(sources) == 1 and all(place is not None for _, place in results):
        (source,) = sources
        draft = bench.drafts[source]
        if len(draft.message.parts) == len(results) and draft.message.role in ("user", "tool"):
            return draft
    calling = bench.drafts[index]
    native = calling.message.pocket
    pocket = None if native is None or native.format == CHAT else Pocket(native.format)
    parts, places = zip(*_gathered(bench, index, results, pocket), strict=True)
    time = next((bench.drafts[one].message.time for one in sorted(sources)), None)
    return Draft(Message("tool", parts, author="tool", time=time, pocket=pocket), calling.origin, places)


def match_kinds(bench: Bench, violations: Sequence[Violation]) -> None:
    """A result takes the kind of its call where its message can say it; else the call takes that of the result."""
    facts = Facts(bench.history)
    new: dict[Place, tuple[Part, ...]] = {}
    messages: dict[int, Message | None] = {}
    for one in violations:
        place = _place(one)
        call = facts.answered[place]
        asked, given = bench.part(call), bench.part(place)
        message = messages.get(place.message) or bench.drafts[place.message].message
        if not isinstance(asked, ToolCall) or not isinstance(given, ToolResult):
            continue
        if one.dialect == RESPONSES and _speaks_responses(message):
            kind = kind_of(asked, native=_format(bench.drafts[call.message].message) == RESPONSES)
            new[place] = (_of_kind(given, kind),)
            messages[place.message] = message if message.pocket else structs.replace(message, pocket=Pocket(RESPONSES))
        else:
            new[call] = (ToolCall(asked.id, asked.name, encode_call_arguments(asked)),)
    bench.note_all(violations, "call and result made of one kind")
    bench.replace_parts(new)
    for index, message_ in messages.items():
        if message_ is not None and message_.pocket is not bench.drafts[index].message.pocket:
            changed = structs.replace(bench.drafts[index].message, pocket=message_.pocket)
            bench.drafts[index] = bench.drafts[index]._replace(message=changed)


def _speaks_responses(message: Message) -> bool:
    only_results = all(isinstance(part, ToolResult) for part in message.parts)
    return _format(message) == RESPONSES or (message.pocket is None and only_results)


def _format(message: Message) -> str:
    return message.pocket.format if message.pocket else ""


def _of_kind(result: ToolResult, kind: str) -> ToolResult:
    pocket = result.pocket if result.pocket and result.pocket.format == RESPONSES else Pocket(RESPONSES)
    words = [word for word in pocket.shape.split() if word not in ("custom", SHELL, "by-id")]
    shape = " ".join(words if kind == "function" else [kind, *words])
    return structs.replace(result, pocket=structs.replace(pocket, shape=shape))


def rename(bench: Bench, violations: Sequence[Violation]) -> None:
    """Ids that are missing, repeated or of the wrong form: a new one for the call and its result."""
    facts = Facts(bench.history)
    names = _Names(bench)
    new: dict[Place, tuple[Part, ...]] = {}
    messages: dict[int, Message | None] = {}
    rules: dict[Place, set[str]] = {}
    for one in violations:
        rules.setdefault(_place(one), set()).add(one.rule)
    for place, broken in rules.items():
        part = bench.part(place)
        if isinstance(part, ToolResult):
            messages[place.message] = structs.replace(bench.drafts[place.message].message, pocket=None)
            bench.note("missing-id", *place, "written with the id of its call")
        elif isinstance(part, ToolCall):
            keep = broken == {"missing-id"} and bool(part.id)
            call_id = part.id if keep else names.new(part.id or part.name)
            new[place] = (ToolCall(call_id, part.name, part.arguments, _with_id(part.pocket)),)
            bench.note(min(broken), *place, f"the call has the id `{call_id}` now")
            result = facts.answers.get(place)
            if result is not None and not keep:
                new[result] = (structs.replace(bench.part(result), call_id=call_id),)
                bench.note(min(broken), *result, f"answers the call `{call_id}` now")
    bench.replace_messages(messages)
    bench.replace_parts(new)


class _Names:
    """Ids that no call has and every API takes."""

    def __init__(self, bench: Bench) -> None:
        ids = (part for draft in bench.drafts for part in draft.message.parts if isinstance(part, ToolCall))
        self._taken = {part.id for part in ids}
        self._counts: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        stem = _UNSAFE.sub("_", wanted)[:LONGEST_NAME] or "call"
        name = stem
        while name in self._taken:
            self._counts[stem] = count = self._counts.get(stem, 1) + 1
            name = f"{stem[: LONGEST_NAME - len(str(count)) - 1]}-{count}"
        self._taken.add(name)
        return name


def _with_id(pocket: Pocket | None) -> Pocket | None:
    """A pocket without the note that the id was not written."""
    if pocket is None:
        return None
    shape = " ".join(word for word in pocket.shape.split() if word not in ("no-id", "nameless"))
    return pocket if shape == pocket.shape else structs.replace(pocket, shape=shape)


def forget_items(bench: Bench, violations: Sequence[Violation]) -> None:
    """Item ids that repeat are left out: an item does without."""
    new: dict[Place, tuple[Part, ...]] = {}
    messages: dict[int, Message | None] = {}
    for one in violations:
        if one.part is None:
            message = bench.drafts[one.message].message
            messages[one.message] = structs.replace(message, pocket=_without_id(message))
        else:
            part = bench.part(_place(one))
            new[_place(one)] = (structs.replace(part, pocket=_without_id(part)),)
    bench.note_all(violations, "item id left out")
    bench.replace_messages(messages)
    bench.replace_parts(new)


def _without_id(owner: Part | Message) -> Pocket | None:
    rest = {key: value for key, value in get_extra_fields(owner, RESPONSES).items() if key != "id"}
    return owner.pocket and structs.replace(owner.pocket, fields=dump(rest) if rest else "")


def _place(one: Violation) -> Place:
    return Place(one.message, -1 if one.part is None else one.part)


def _places(violations: Iterable[Violation]) -> list[Place]:
    return list(dict.fromkeys(_place(one) for one in violations))
