"""Search: parse a query, find matching sessions and rank them."""
