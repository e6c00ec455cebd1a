"""The status of a proxy, and the report of a run behind one, as text for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thresher.render.text import format_count, format_token_count, plural

SHOWN_CONVERSATIONS = 10


def format_proxy_status(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a status, as `/thresher/status` returns it under `proxy`."""
    total, latency = status["total"], status["added_latency_ms"]
    mode = (
        "off: all requests pass through"
        if status["bypass"]
        else "observe: nothing is changed"
        if status["observe"]
        else ""
    )
    yield from [f"mode           {mode}"] if mode else []
    conversations = plural(status["conversation_count"], "conversation")
    yield f"requests       {format_count(status['requests'])}, {total['changed']} changed, {conversations}"
    yield from _format_tokens(total["tokens"])
    yield from _format_cost(total["cost"])
    yield f"replans        {_format_counts(total['replans'])}; {plural(total['removed_parts'], 'part')} removed"
    yield from [f"problems       {_format_counts(total['problems'])}"] if total["problems"] else []
    yield f"unchanged      {_format_counts({**status['passed_through'], **total['unchanged']})}"
    yield f"fallbacks      {_format_counts(total['fallbacks'])}"
    yield f"refused        {_format_counts(total['refusals'])}"
    yield from _format_diagnosis(status)
    warm = status["keep_warm"]
    if warm["limit"]:
        yield f"keep warm      {plural(warm['requests'], 'request')}, ${warm['cost']:.2f} of ${warm['limit']:.2f}"
    if latency["p50"] is not None:
        yield f"added latency  {latency['p50']} ms median, {latency['p99']} ms p99"
    yield from _format_conversations(status["conversations"])


def format_run_report(status: Mapping[str, Any], problems: Sequence[str], program: str) -> Iterator[str]:
    """Yield the lines of the report at the end of `thresher run`.

    `problems` are the warnings of the proxy; `program` is the command in examples.
    """
    total = status["total"]
    if not status["requests"]:
        yield "no request went through the proxy: the agent made none, or it has another base URL in its own settings"
    else:
        conversations = plural(status["conversation_count"], "conversation")
        yield f"requests       {format_count(status['requests'])}, {total['changed']} changed, {conversations}"
        yield from _format_tokens(total["tokens"])
        yield from _format_cost(total["cost"])
        yield from _format_removed(status, program)
    if total["fallbacks"]:
        yield f"fallbacks      {_format_counts(total['fallbacks'])}"
    if total["refusals"]:
        yield f"refused        {_format_counts(total['refusals'])}"
    yield from _format_diagnosis(status)
    for problem in dict.fromkeys(problems):
        yield f"problem        {problem}"


def _format_removed(status: Mapping[str, Any], program: str) -> Iterator[str]:
    ids = [
        one for talk in status["conversations"] for replan in talk["latest_replans"] for one in replan["removed_ids"]
    ]
    if status["observe"]:
        yield "removed        nothing, because of --observe"
    elif ids:
        parts = plural(status["total"]["removed_parts"], "part")
        yield f"removed        {parts}; to print one: {program} restore {ids[-1]}"
    else:
        yield "removed        nothing: every request was within the budget"


def _format_tokens(tokens: Mapping[str, Any]) -> Iterator[str]:
    sent, original = tokens["sent"], tokens["original"]
    saved = f" ({1 - sent / original:.0%} less)" if original else ""
    yield f"tokens         {format_token_count(sent)} sent, {format_token_count(original)} without Thresher{saved}"
    rate = tokens["cache_hit_rate"]
    if rate is not None:
        read, written = format_token_count(tokens["cache_read"]), format_token_count(tokens["cache_write"])
        yield f"cache          {read} read, {written} written, {rate:.0%} of the prompt tokens were cached"


def _format_cost(cost: Mapping[str, Any]) -> Iterator[str]:
    if cost["priced_requests"]:
        without = f"${cost['without_thresher']:.2f} without Thresher (estimate)"
        yield f"cost           ${cost['with_thresher']:.2f}, {without}"


def _format_diagnosis(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of `--diagnose-cache`."""
    state, found = status["diagnose_cache"], status["total"]["cache_diagnostics"]
    if not state["on"]:
        return
    own, other = _format_counts(found["thresher_misses"]), _format_counts(found["other_misses"])
    compared = f"{plural(found['compared'], 'request')} compared"
    yield f"cache misses   of Thresher: {own}; of others: {other}; {compared}"
    if found["inconclusive"]:
        yield f"not diagnosed  {_format_counts(found['inconclusive'])}"
    if state["refused_by"]:
        yield f"not diagnosed  refused by {', '.join(state['refused_by'])}"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none"


def _format_conversations(conversations: list[Mapping[str, Any]]) -> Iterator[str]:
    for one in conversations[:SHOWN_CONVERSATIONS]:
        tokens = one["tokens"]
        agent = f" {one['agent']}" if one["agent"] else ""
        sizes = f"{format_token_count(tokens['sent'])} of {format_token_count(tokens['original'])} tokens"
        passed = f", passes through: {one['passed_through_because']}" if one["passed_through_because"] else ""
        misses = one["cache_diagnostics"]["other_misses"]
        passed += f", cache misses of others: {_format_counts(misses)}" if misses else ""
        name = f"{one['id'][:8]}{agent} {one['model']}"
        yield f"  {name}  {plural(one['requests'], 'request')}, {sizes}, {sum(one['replans'].values())} replans{passed}"
