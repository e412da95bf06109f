"""Steps of automated workflows: each goes only to a worker that has what it takes."""

import time

import outlast

app = outlast.App()  # $OUTLAST_URL


@app.task(requires=["browser"])
def screenshot(page: str, hangs: bool = False) -> str:
    time.sleep(3600 if hangs and outlast.current().number == 1 else 0.1)
    return f"{page}.png"


@app.task(requires=["gpu"])
def describe(image: str) -> str:
    return f"what is on {image}"


@app.task(requires=["printer"])
def print_out(text: str) -> None:
    print(text)
