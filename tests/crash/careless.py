"""An application whose errors, output and progress are full of a secret: each cut is in one."""

from __future__ import annotations

import outlast

app = outlast.App()
SECRET = "zqkwhvbtnxgpdmqz"  # as --redact zq\\w+qz finds it


@app.task(retries=0, logs=True)
async def pay(shift: int) -> int:
    full = f"{'x' * shift} {SECRET} " + f"{SECRET} " * 2_000
    outlast.current().report(0.5, full, stage=SECRET)
    print(full, flush=True)
    print("short", SECRET.encode(), flush=True)
    raise ValueError(full)


@app.task(retries=0, logs=True)
def give_up(shift: int) -> int:
    raise outlast.Dead(f"{'x' * shift} {SECRET} " * 300)
