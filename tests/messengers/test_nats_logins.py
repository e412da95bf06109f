"""Logins to NATS: keys, credentials, certificates of clients, several servers."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import Authority
from harness.nats_server import NatsServer
from harness.servers import free_port
from outlast.errors import ConfigError
from outlast.wakeup import check_messenger
from outlast.wakeup.kinds import parse
from outlast.wakeup.nats import NatsBroker
from tests.cases import each_case
from tests.messengers.kit import Shop

NO_KEYS = importlib.util.find_spec("nkeys") is None and not os.environ.get("CI")
needs_keys = pytest.mark.skipif(NO_KEYS, reason="nkeys is not installed: make test installs it")
TRIES = 20
pytestmark = pytest.mark.usefixtures("nats_can_start")
UNLIMITED = "subs data payload imports exports conn leaf mem_storage disk_storage streams consumer"


class Key:
    """A key pair of NATS: its seed is the secret, ``name`` is public."""

    def __init__(self, kind: str) -> None:
        nkeys: Any = importlib.import_module("nkeys")
        prefix = getattr(nkeys, f"PREFIX_BYTE_{kind}")
        self.seed: str = nkeys.encode_seed(os.urandom(32), prefix).decode()
        self.pair: Any = nkeys.from_seed(bytearray(self.seed.encode()))
        self.name: str = self.pair.public_key.decode()

    def says(self, subject: Key, facts: dict[str, Any]) -> str:
        """Return a JWT about the subject, in the format of NATS."""
        claims = {"jti": "x", "iat": 1, "iss": self.name, "sub": subject.name, "name": "test"}
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = f"{_url64(header)}.{_url64(claims | {'nats': {'version': 2, **facts}})}"
        return f"{text}.{_bytes64(self.pair.sign(text.encode()))}"


def _url64(value: dict[str, Any]) -> str:
    return _bytes64(json.dumps(value).encode())


def _bytes64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


async def comes_in(pg_url: str, wakeup: str) -> None:
    async with Shop.opened(pg_url, wakeup) as shop, shop.ready_worker():
        assert await (await shop.work.enqueue(3)).result(timeout=30) == 3


async def stays_out(wakeup: str, said: str) -> None:
    """The server sends the reason and disconnects; sometimes its reset overtakes the reason."""
    heard = ""
    for _ in range(TRIES):
        broker = NatsBroker(parse(wakeup), "any", None)
        with pytest.raises(Exception) as refused:
            await broker.open()
        await broker.close()
        heard = str(refused.value)
        cut_off = isinstance(refused.value, (ConnectionResetError, BrokenPipeError))
        if re.search(said, heard) or not cut_off:
            break
    assert re.search(said, heard), heard


async def test_a_token(pg_url: str) -> None:
    with NatsServer('authorization { token: "s3cret" }') as server:
        await comes_in(pg_url, f"nats://s3cret@127.0.0.1:{server.port}")
        await stays_out(server.url, "(?i)authorization")


@needs_keys
async def test_an_nkey(pg_url: str, tmp_path: Path) -> None:
    right, wrong = Key("USER"), Key("USER")
    files = {key: tmp_path / key.name for key in (right, wrong)}
    for key, file in files.items():
        file.write_text(f"{key.seed}\n")  # as `nk -gen user` writes it
    with NatsServer(f"authorization {{ users: [ {{ nkey: {right.name} }} ] }}") as server:
        await comes_in(pg_url, f"{server.url}?nkey={files[right]}")
        await stays_out(f"{server.url}?nkey={files[wrong]}", "(?i)authorization")
        await stays_out(server.url, "(?i)authorization|nkey")


@needs_keys
async def test_a_file_of_credentials(pg_url: str, tmp_path: Path) -> None:
    operator, system, account, user, stranger = (
        Key(kind) for kind in ("OPERATOR", "ACCOUNT", "ACCOUNT", "USER", "ACCOUNT")
    )
    limits = {"limits": dict.fromkeys(UNLIMITED.split(), -1) | {"wildcards": True}}
    accounts = {
        system.name: operator.says(system, {"type": "account"}),
        account.name: operator.says(account, {"type": "account", **limits}),
    }
    preload = ", ".join(f"{name}: {text}" for name, text in accounts.items())
    config = f"""
        operator: {operator.says(operator, {"type": "operator"})}
        system_account: {system.name}
        resolver: MEMORY
        resolver_preload: {{ {preload} }}
    """
    right, wrong = tmp_path / "right.creds", tmp_path / "wrong.creds"
    for issuer, file in ((account, right), (stranger, wrong)):
        facts = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
        file.write_text(_creds(issuer.says(user, facts), user.seed))
    with NatsServer(config) as server:
        await comes_in(pg_url, f"{server.url}?creds={right}")
        await stays_out(f"{server.url}?creds={wrong}", "(?i)authorization")


def _creds(jwt: str, seed: str) -> str:
    rule = "------END {}------"
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n{rule.format('NATS USER JWT')}\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n{rule.format('USER NKEY SEED')}\n"
    )


@each_case("setting", ["creds", "nkey"])
def test_a_missing_credentials_file_is_reported_before_anything_starts(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting} must be the path of a file"):
        check_messenger(f"nats://broker?{setting}=/nowhere", "postgresql://localhost/jobs")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seed").write_text("S")
    monkeypatch.setitem(sys.modules, "nkeys", None)
    with pytest.raises(ConfigError, match=r"outlast\[nats\]"):
        check_messenger(f"nats://broker?nkey={tmp_path / 'seed'}", "postgresql://localhost/jobs")


@pytest.mark.slow  # test_tls.py is short
async def test_tls_with_a_private_authority_and_client_certificates(
    pg_url: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server")
    tls = f'cert_file: "{cert}", key_file: "{key}", ca_file: "{authority.cert}"'
    mine = "tls_cert={}&tls_key={}".format(*authority.sign("client"))
    with NatsServer(f"tls {{ {tls}, verify: true }}") as server:
        place = f"tls://127.0.0.1:{server.port}"
        await comes_in(pg_url, f"{place}?tls_ca={authority.cert}&{mine}")
        await stays_out(f"{place}?{mine}", "CERTIFICATE_VERIFY_FAILED")  # a server of strangers
        await stays_out(f"{place}?tls_ca={authority.cert}", "(?i)certificate|closed|reset|server")


async def test_unreachable_servers_are_skipped(pg_url: str, tmp_path: Path) -> None:
    """Each order occurs: the driver shuffles them."""
    with NatsServer() as server:
        gone = ",".join(f"127.0.0.1:{free_port()}" for _ in range(3))
        for _ in range(2):
            await comes_in(pg_url, f"nats://{gone},127.0.0.1:{server.port}")
        await stays_out(f"nats://{gone}", "(?i)connect|refused")
