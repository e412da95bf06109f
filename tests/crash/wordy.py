"""Tasks with texts that a database in another encoding than UTF-8 cannot store."""

from __future__ import annotations

import outlast
from tests.crash.application import ENOUGH

ROCKET = "\U0001f680"  # in UTF-8 alone
app = outlast.App()
once = app.task(retries=0, logs=True)


@once
async def fails() -> None:
    print(f"before {ROCKET}")
    outlast.current().report(0.5, f"at {ROCKET}", stage=ROCKET)
    raise ValueError(f"no {ROCKET}")


@once
async def is_refused() -> None:
    raise outlast.Dead(f"since {ROCKET}")


@once
async def is_cancelled() -> None:
    raise outlast.Cancel(f"since {ROCKET}")


@once
async def returns() -> str:
    return ROCKET


@once
async def saves() -> str:
    attempt = outlast.current()
    await attempt.save(ROCKET)
    return await attempt.step("fly", lambda: ROCKET)


@app.task(retries=1, backoff_first=0.01)
async def names_a_step() -> None:
    attempt = outlast.current()
    await attempt.step("plain", lambda: 1)
    if attempt.number == 1:
        raise outlast.Snooze(0)
    await attempt.step(ROCKET, lambda: 1)


@once
async def waits_for_an_event() -> None:
    await outlast.current().wait_event(ROCKET, timeout=600)


@once
async def makes_a_key() -> None:
    await again.using(key=ROCKET).enqueue("x")


@once
async def passes_it_on() -> None:
    await again.enqueue(ROCKET)


@once
async def again(word: str) -> str:
    return word


@app.task(name=ROCKET, requires=[ROCKET])
async def is_never_served() -> None:
    """No row can have these names."""


@app.task(name=2 * ROCKET, limits=[app.limit(ROCKET, running=1)])
async def is_never_stored() -> None:
    """No job can have these names; its worker declares them, and asks for jobs of it."""


app.schedule(ROCKET, is_never_stored.call(), every=3600)


@once
async def goes_on() -> None:
    """Print, report and save beside all others."""
    attempt, turn = outlast.current(), 0
    while not ENOUGH.exists():
        turn += 1
        print(f"turn {turn}")
        attempt.report(0.5, f"turn {turn}")
        await attempt.save(turn)
