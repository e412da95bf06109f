"""The demonstration: how the code of a git repository grew, counted by a job whose worker dies.

It stands in rooms of its own, because it is the one place that knows git, languages and
pictures; nothing else in Outlast may come to need them.

    git.py         git as a child process: one-line answers, streams, and objects by id
    history.py     which repository, which commits
    languages.py   the language of a file name, the lines of a file's content
    census.py      lines by language of a whole tree, counting nothing twice
    evolution.py   the samples over time, and their compact form (checkpoint and result)
    analysis.py    the resumable walk that ties these together
    picture.py     the picture and the numbers
    app.py         the application: the walk as a task
    crew.py        the workers as processes: started, killed, ended, never left behind
    watch.py       what the store shows of them, look by look
    show.py        what is seen: lines, the live view, the timeline
    story.py       the story: two workers, one job, a kill -9, an end
    command.py     from options to the story, and what it leaves
"""
