"""Provide what every other package may use: time, settings, secrets, texts.

clock.py        time and randomness: the only file that may ask for either
config.py       settings, their defaults and their checks
credentials.py  secrets in URLs, and how they are hidden
passwords.py    the file of users and their hashed passwords
text.py         times, sizes and untrusted texts, for people
throttle.py     one report a minute, with the number of events that it covers
sync.py         runs coroutines from plain code: ``NAME_sync``
greenlets.py    lets greenlets of gevent call the event loop
forks.py        keeps forks safe while other threads run
http_server.py  the small HTTP server of probes and metrics
"""
