"""Initialization of sweep worker processes: they exit on Ctrl-C and when the parent process ends."""

import os
from multiprocessing import parent_process
from multiprocessing.connection import wait
from signal import SIG_DFL, SIGINT, signal
from threading import Thread


def initialize_sweep_worker() -> None:
    """Exit immediately on Ctrl-C or when the parent ends, so that no worker outlives the sweep."""
    signal(SIGINT, SIG_DFL)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
