"""The scenes that are explored: 2 jobs and 2 workers each, with different possible events.

Everything at once would be more states than can be seen; what each scene leaves out is in another.
"""

from __future__ import annotations

from typing import NamedTuple

from outlast.model.job import Policy


class Scene(NamedTuple):
    """The options of an exploration. ``ends``: words of the ends that tasks choose."""

    name: str
    about: str
    policy: Policy
    ends: tuple[str, ...] = ("completed",)
    slots: int = 1  # attempts that a worker runs at once
    losses: bool = True  # replies and requests are lost
    lates: bool = False  # given up requests arrive late
    crashes: bool = True
    lapses: bool = True
    reapers: bool = False  # a reaper's decision can be overtaken
    operators: bool = False
    drains: bool = False
    saves: int = 0  # checkpoints of an attempt
    overdue: bool = False
    in_place: bool = False
    wills: bool = False  # a worker that dies leaves a will, which may be late, or lost
    complete_in: bool = False
    kills: tuple[bool, ...] = (False, False)  # of each job: whether it takes its runner down
    lost: int = 0  # losses that each job has behind it at the start


ONE_LOSS = Policy(retries=1, max_losses=1, backoff_first=0.0, backoff_max=0.0)
TWO_LOSSES = Policy(retries=1, max_losses=2, backoff_first=0.0, backoff_max=0.0)
SCENES = {
    scene.name: scene
    for scene in (
        Scene("deaths", "workers die and lapse, reapers are overtaken", ONE_LOSS, reapers=True),
        Scene(
            "replies",
            "requests and replies are lost, or arrive when no call waits any more",
            ONE_LOSS,
            lates=True,
            crashes=False,
        ),
        Scene(
            "operators",
            "cancel and requeue against everything; tasks fail and snooze",
            ONE_LOSS,
            ends=("completed", "error", "snoozed"),
            lapses=False,
            reapers=True,
            operators=True,
        ),
        Scene("drains", "deploys, and restarts in place", ONE_LOSS, drains=True, in_place=True),
        Scene(
            "wills",
            "what tethers tell of workers that died, perhaps after these were started again",
            ONE_LOSS,
            losses=False,
            lapses=False,
            in_place=True,
            wills=True,
        ),
        Scene(
            "saves",
            "checkpoints, twice and late",
            ONE_LOSS,
            lates=True,
            crashes=False,
            saves=2,
            lost=1,  # so that a save forgives something: its budget is used up
        ),
        Scene(
            "transactions",
            "completion in the task's own transaction; attempts above their timeout",
            ONE_LOSS,
            complete_in=True,
            overdue=True,
            lapses=False,
        ),
        Scene(
            "suspects",
            "a job that kills its runner, beside one that does not",
            TWO_LOSSES,
            losses=False,
            lapses=False,
            kills=(True, False),
            slots=2,
        ),
        Scene(
            "killers",
            "two jobs that kill their runners",
            TWO_LOSSES,
            losses=False,
            lapses=False,
            kills=(True, True),
            slots=2,
        ),
    )
}


def alone(scene: Scene) -> Scene:
    """The same with one job: few enough states to see all of them in a test."""
    return scene._replace(name=f"{scene.name}-1", kills=scene.kills[:1])


LARGE = {
    scene.name: scene
    for whole in SCENES.values()
    for scene in ((whole,) if any(whole.kills) else (alone(whole), whole))
}
"""What ``make model`` explores."""
