"""Signals: one line and the exit code of the signal wherever it comes, and what is ignored stays ignored."""

import signal
import subprocess
import sys

import pytest

from calibrant import _signals
from calibrant._signals import blocked_signals, handle_signals, interrupt
from made.cli import MAX_SECONDS

PROGRAM = """
import os, signal, sys, time
from importlib.util import spec_from_loader
from calibrant.__main__ import main
from calibrant._signals import StopRequest, handle_signals

class Finalized:
    def __del__(self):
        send("SIGTERM")
        sum(range(10))

def send(name):
    os.kill(os.getpid(), getattr(signal, name))

def run(verb):
    import calibrant.cli
    calibrant.cli.main = verb
    main()

def interrupted(then):
    try:
        send("SIGINT")
        time.sleep(60)
    finally:
        then()

def asked():
    request = StopRequest()
    with handle_signals(request):
        send("SIGTERM")
        send("SIGHUP")
        sum(range(10))
    assert request.asked

class Struck:
    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self) if name == "struck" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        send("SIGTERM")

sys.meta_path.append(Struck())

def load():
    try:
        import struck
    except KeyboardInterrupt:
        print("half of a module is loaded", file=sys.stderr)
    time.sleep(60)
"""
CASES = {  # the end of the program, its exit code, and its line
    "in a command": ("run(lambda: (send('SIGHUP'), time.sleep(60)))", 129, "stopped by SIGHUP"),
    "in an import": ("run(load)", 143, "stopped by SIGTERM"),
    "in a finalizer": ("run(lambda: (str(Finalized()), time.sleep(60)))", 143, "stopped by SIGTERM"),
    "in an import, then no more": ("run(lambda: __import__('struck'))", 0, None),
    "while it stops": (
        "run(lambda: interrupted(lambda: (time.sleep(1.1), send('SIGTERM'), time.sleep(60))))",
        143,
        "stopped by SIGTERM",
    ),
    "two at once": ("run(lambda: interrupted(lambda: (send('SIGHUP'), sum(range(10)))))", 130, "stopped by SIGINT"),
    "two while a run is asked to stop": ("run(asked)", 0, None),
    "ignored": ("signal.signal(signal.SIGHUP, signal.SIG_IGN); run(lambda: send('SIGHUP'))", 0, None),
    "after its end": ("import atexit; run(lambda: None); atexit.register(send, 'SIGTERM')", 143, "stopped by SIGTERM"),
    "at the end": ("import atexit; atexit.register(send, 'SIGTERM'); run(lambda: None)", 0, None),
}


@pytest.mark.parametrize("case", CASES)
def test_signals(case: str) -> None:
    end, code, line = CASES[case]
    found = subprocess.run([sys.executable, "-c", PROGRAM + end], capture_output=True, text=True, timeout=MAX_SECONDS)
    assert (found.returncode, found.stderr) == (code, f"calibrant: {line}\n" if line else "")


def test_no_worker_is_left_half_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a signal interrupts the parent before it has sent its orders, a worker would print a traceback."""
    started = []
    monkeypatch.setattr(_signals, "_received", _signals._received)  # other tests in this process have exit codes too

    def start() -> None:
        with handle_signals(interrupt), blocked_signals():
            interrupt(signal.SIGTERM, None)  # as when another thread, which does not block it, receives it
            started.append("worker")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started == ["worker"]
    with blocked_signals():  # what was raised does not come again
        pass
