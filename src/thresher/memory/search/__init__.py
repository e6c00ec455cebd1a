"""From a query to ranked sessions."""
