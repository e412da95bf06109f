"""Real servers, workers and connections, for the tests, the benchmarks and the examples.

It imports nothing of theirs. Its files:

browser.py        a real browser, Debian's Chromium
certificates.py   certificates for servers and clients, by an authority of their own
faketime.py       a wall clock of its own for a process, by libfaketime, a Debian package
front.py          a proxy or pooler before a server: what its kinds share
haproxy.py        a HAProxy before a cluster under Patroni, a Debian package
journal.py        what each attempt writes: it ran here, and which earlier processes still lived
namespaces.py     hosts that are really apart, with links between them that can be harmed
nats_server.py    a NATS server
other_host.py     a worker as on a machine of its own: with another boot id
page.py           the page of a store, served from a thread
patroni.py        three PostgreSQL nodes under Patroni and etcd, which fail over
pgbouncer.py      a PgBouncer, a Debian package
proxy.py          a TCP proxy that can hold, slow down and cut connections
rabbit_server.py  a RabbitMQ server, a Debian package
rounds.py         how much an exchange does in one round, lowered
scene.py          workers in processes of their own, on a store, and looks at what they do
servers.py        a PostgreSQL server, and what all servers share
stores.py         a store that is open for as long as a block lasts
tcp.py            a TCP server that leaves no socket open when it stops
"""
