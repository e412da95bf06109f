"""The demonstration: how the code of a git repository grew, counted by a job whose worker dies.

The one place that knows git, languages and pictures; nothing else in Outlast needs them.

command.py    from options to the story, and what it leaves
story.py      two workers, one job, a kill -9, an end
app.py        the application: the walk as a task
analysis.py   the resumable walk over the sampled commits
history.py    which repository, which commits
census.py     lines by language of a whole tree, counting nothing twice
languages.py  the language of a file name, the lines of a file's content
evolution.py  the samples over time, and their compact form (checkpoint and result)
git.py        git as a child process: short answers, streams, and objects by id
workers.py    the workers as processes: started, killed, ended, never left behind
watch.py      what the store shows of them, look by look
show.py       what is printed: lines, the live view, the timeline
picture.py    the picture and the numbers
"""
