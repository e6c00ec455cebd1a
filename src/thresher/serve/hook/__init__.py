"""`thresher fit --hook`: fits the requests that an agent's plug-in passes in."""
