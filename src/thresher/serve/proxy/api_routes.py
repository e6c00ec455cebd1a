"""The paths of the model APIs: which dialect a request has, and where it goes."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple

from thresher.dialects.http_api import HttpApi, build_openai_error
from thresher.dialects.table import find_dialect, iter_dialects
from thresher.model.jsontext import dump_json

RouteKind = Literal["generate", "count"]


class ApiRoute(NamedTuple):
    """A path of a model API that carries a conversation."""

    dialect: str
    kind: RouteKind


def _iter_apis() -> Iterator[tuple[str, HttpApi]]:
    return ((dialect.name, dialect.http_api) for dialect in iter_dialects() if dialect.http_api is not None)


def list_api_names() -> list[str]:
    """Return the dialects that the proxy knows."""
    return [name for name, _ in _iter_apis()]


@cache
def _route_patterns() -> list[tuple[re.Pattern[str], ApiRoute]]:
    patterns = []
    for name, api in _iter_apis():
        patterns.append((re.compile(f"(?:{api.generate_path})$"), ApiRoute(name, "generate")))
        if api.count_path:
            patterns.append((re.compile(f"(?:{api.count_path})$"), ApiRoute(name, "count")))
    return patterns


def find_api_route(method: str, path: str) -> ApiRoute | None:
    """Return the route of a conversation; None for any other request."""
    if method != "POST":
        return None
    bare = path.partition("?")[0].rstrip("/")
    return next((route for pattern, route in _route_patterns() if pattern.search(bare)), None)


def find_upstream(upstreams: Mapping[str, str], path: str, headers: Mapping[str, str]) -> str:
    """Return the base URL for a request, or an empty text if nothing shows which vendor it is for."""
    if list(upstreams) == [""]:
        return upstreams[""]
    name = detect_api(path, headers)
    api = find_dialect(name).http_api if name else None
    return upstreams.get(name) or upstreams.get("") or (api.base_url if api is not None else "")


def detect_api(path: str, headers: Mapping[str, str]) -> str:
    """Return the dialect of the vendor that a request is for; empty if nothing shows it.

    A header chooses only among the fixed upstreams, and only where a path does not.
    """
    route = find_api_route("POST", path)
    if route is not None:
        return route.dialect
    names = {name.lower() for name in headers}
    by_header = next((name for name, api in _iter_apis() if not names.isdisjoint(api.vendor_headers)), "")
    by_path = (name for name, api in _iter_apis() if api.vendor_paths and re.match(api.vendor_paths, path))
    return by_header or next(by_path, "")


def build_error_body(dialect: str, status: int, message: str) -> bytes:
    """Return the body of an error of the proxy itself, in the form that a vendor's clients expect."""
    api = find_dialect(dialect).http_api if dialect else None
    build = api.build_error if api is not None else build_openai_error
    return dump_json(build(status, message)).encode()
