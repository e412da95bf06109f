"""How the arguments of a call are written on the command line."""

from __future__ import annotations

import outlast
from outlast.cli.jobs import arguments_for
from tests.cases import each_case

app = outlast.App("sqlite:///nowhere.db")


@app.task
def render(book: str, pages: int = 2) -> None: ...


@app.task
def bind(books: list[str]) -> None: ...


@app.task
def gather(*books: str, **more: int) -> None: ...


@app.task
def take(anything, more=None): ...


@each_case(
    ("task", "texts", "args", "kwargs"),
    [
        (render, ['"Emma"', "pages=3"], ["Emma"], {"pages": 3}),
        (render, ['["Emma"]'], ["Emma"], {}),
        (render, ['["Emma", 3]'], ["Emma", 3], {}),
        (render, ['{"book": "Emma", "pages": 3}'], [], {"book": "Emma", "pages": 3}),
        (render, ['["Emma", 3, 4]'], [["Emma", 3, 4]], {}),  # and is refused as what it is
        (render, ["7"], [7], {}),
        (bind, ['["Emma", "Persuasion"]'], [["Emma", "Persuasion"]], {}),
        (bind, ['[["Emma"]]'], [["Emma"]], {}),
        (gather, ['["Emma", "Persuasion"]'], ["Emma", "Persuasion"], {}),
        (gather, ['{"pages": 3}'], [], {"pages": 3}),
        (take, ["[1, 2]"], [[1, 2]], {}),
        (take, ['{"anything": 1}'], [{"anything": 1}], {}),
        (take, ["[1, 2]", "more=3"], [[1, 2]], {"more": 3}),
    ],
)
def test_one_array_or_object_holds_all_unless_the_task_takes_it_itself(task, texts, args, kwargs):
    assert arguments_for(task, texts) == (args, kwargs)
