"""What a process of a sweep does before its first unit: leave Ctrl-C to its parent, and end when that ends."""

import os
from multiprocessing import parent_process
from multiprocessing.connection import wait
from signal import SIG_DFL, SIGINT, signal
from threading import Thread


def initialize_sweep_worker() -> None:
    """Go as soon as somebody presses Ctrl-C, or ends the parent in whatever way: nobody waits for the work then."""
    signal(SIGINT, SIG_DFL)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
