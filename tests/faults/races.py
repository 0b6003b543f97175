"""Two processes at once: with the same output, and one that reads what the other replaces."""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from faults.trial import Trial
from faults.verbs import OUT, PLAIN, begin, call, prepare, refusal, undisturbed
from made.cli import Ran
from made.training import command, in_child, start

SLOW = True
TRIALS = 50
VERBS = (*PLAIN, *PLAIN, "report", "run")  # the last two take long


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Mostly two of one verb, the second a random moment after the first."""
    for number in range(n):
        rng = random.Random(f"{seed} {number}")
        yield _reader(rng) if number % 5 == 4 else _writers(rng)


def _writers(rng: random.Random) -> Trial:
    verb, moment = rng.choice(VERBS), rng.random()

    def attempt(folder: Path) -> str | None:
        usual = undisturbed(verb)
        prepare(verb, folder / OUT)
        first = begin(verb, folder)
        time.sleep(moment * moment * usual.seconds)
        second = begin(verb, folder)
        ended = [Ran(*child.wait()) for child in (first, second)]
        for ran in ended:
            if wrong := refusal(ran):
                return wrong
        if all(ran.code for ran in ended):
            return f"neither was done: {[ran.err for ran in ended]}"
        if wrong := usual.wrong(folder / OUT, whole=True):
            return wrong
        again = call(verb, folder)
        return refusal(again) or usual.wrong(folder / OUT, whole=True)

    return Trial("two writers", f"{verb}, the second {moment:.2f} later", attempt)


def _reader(rng: random.Random) -> Trial:
    moment = rng.random()

    def attempt(folder: Path) -> str | None:
        usual = undisturbed("apply")
        shutil.copytree(usual.out, folder / OUT)
        file = next((folder / OUT).glob("*.parquet"))
        audit = command("audit", file, "--json")
        alone = in_child(audit)
        stop = folder / "stop"

        def replace() -> None:
            while not stop.exists():
                call("apply", folder)

        writer = start(replace)
        time.sleep(moment * usual.seconds)
        found = [in_child(audit) for _ in range(3)]
        stop.touch()
        writer.wait()
        if any(ran != alone for ran in found):
            return f"an audit differs: {[ran.err or ran.out[:100] for ran in found if ran != alone]}"
        return usual.wrong(folder / OUT, whole=True)

    return Trial("a reader and a writer", f"audit while apply replaces its file, {moment:.2f}", attempt)
