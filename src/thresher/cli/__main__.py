"""Entry point of `python -m thresher.cli`."""

from thresher.cli import main

main()
