"""Plug-ins for agents: JavaScript files that `thresher install` copies to the folder where an agent looks for them."""
