"""The resumable walk: counts the sampled commits one by one, from where it stopped.

It knows nothing of jobs: progress and checkpoints go out through functions that the task
hands in. The result depends only on the repository's commits, not on how often the walk
was interrupted: a checkpoint names the tip it belongs to, and one that does not fit (the
branch was rewritten and its commits are gone, or another number of commits was asked for)
is put aside, and the walk starts from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

from examples.census.census import Census
from examples.census.evolution import Evolution, Packed, Sample, languages_of, limited
from examples.census.git import Objects
from examples.census.history import Commit, History

Report = Callable[[float, str], None]
Save = Callable[[Packed], None]


def analyze(
    repo: str,
    commits: int,
    *,
    checkpoint: Packed | None = None,
    report: Report = lambda _fraction, _message: None,
    save: Save = lambda _checkpoint: None,
    every: int = 5,
    pause: Callable[[], None] = lambda: None,
) -> Packed:
    """Count the lines by language at up to ``commits`` commits; the packed ``Evolution``.

    ``report(fraction, message)`` comes after each commit, and now and then within a long one;
    ``save(checkpoint)`` after each ``every`` commits, for a later call's
    ``checkpoint``; ``pause()`` after each commit. An exception of these ends the walk, and
    git with it. Raises NotARepository with one line for people, ValueError for a number of
    commits or an ``every`` out of range.
    """
    if every < 1:
        raise ValueError("a checkpoint is saved every 1 commit or more")
    evolution, rest = _begin(repo, commits, checkpoint)
    walk = _Walk(evolution, len(evolution.samples) + len(rest), report)
    with Objects(repo) as objects:
        census = Census(objects, tick=walk.tick)
        for commit in rest:
            walk.take(commit, census)
            if len(evolution.samples) % every == 0 and commit is not rest[-1]:
                save(evolution.pack())
            pause()
    return evolution.pack()


class _Walk:
    """Takes sample after sample, and reports each."""

    def __init__(self, evolution: Evolution, goal: int, report: Report) -> None:
        self._samples = evolution.samples
        self._languages = languages_of(evolution.samples)
        self._goal = goal
        self._report = report

    def take(self, commit: Commit, census: Census) -> None:
        """Count one commit."""
        counts = census.of_commit(commit.id)
        lines = limited(counts.lines, self._languages)
        files = (counts.files, counts.binary, counts.skipped)
        sample = Sample(commit.id, commit.seconds, *files, lines)
        self._samples.append(sample)
        self._tell(f"{sample.total:,} lines in {sample.files:,} files")

    def tick(self, read: int) -> None:
        """A sign of life from within a commit."""
        self._tell(f"done, {read:,} new files read for the next")

    def _tell(self, what: str) -> None:
        done = len(self._samples)
        self._report(done / self._goal, f"commit {done} of {self._goal}: {what}")


def _begin(repo: str, wanted: int, checkpoint: Packed | None) -> tuple[Evolution, list[Commit]]:
    """What is done already, and the commits that are left."""
    before = _restored(checkpoint, wanted)
    history = History.find(repo, before.tip if before else None)
    picked = history.sample(wanted)
    done = before.samples if before else []
    if [sample.id for sample in done] != [commit.id for commit in picked[: len(done)]]:
        done = []
    facts = (history.name, history.tip, history.total, history.shallow, wanted)
    return Evolution(*facts, list(done)), picked[len(done) :]


def _restored(checkpoint: Packed | None, wanted: int) -> Evolution | None:
    """The checkpoint, if there is one, it can be read, and it is of the same walk."""
    try:
        before = Evolution.unpack(checkpoint) if checkpoint else None
    except ValueError:
        return None
    return before if before and before.wanted == wanted else None
