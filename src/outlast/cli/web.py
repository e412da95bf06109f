"""``outlast web``: define the options, and who may sign in."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.base.http_server import is_loopback
from outlast.base.passwords import read_secret
from outlast.base.text import shell_word
from outlast.cli.connect import check_exists, using
from outlast.cli.loop import run_loop
from outlast.cli.options import Url, flag, option
from outlast.errors import ConfigError, UsageError
from outlast.store.backend import describe_place, open_readable, resolve_url

if TYPE_CHECKING:
    from outlast.web.session import Network

PORT = 8010
PAGE_NEEDS = ("starlette", "jinja2", "uvicorn", "prometheus_client")
WAYS_IN = "--password-file FILE, --user-header NAME (behind a proxy) or --no-auth"


def web(
    context: typer.Context,
    url: Url = None,
    host: Annotated[str, option("--host", "ADDRESS", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, option("--port", "N", "The port; 0: any that is free.", min=0, max=65_535)
    ] = PORT,
    read_only: Annotated[bool, flag("--read-only", "Change nothing.")] = False,
    name: Annotated[str, option("--name", "NAME", "A name for this site, such as PROD.")] = "",
    colour: Annotated[str, option("--colour", "COLOUR", "Its colour, such as red.")] = "",
    hide: Annotated[
        str | None, option("--hide", "REGEX", "Hide matching text in payloads.")
    ] = None,
    hide_key: Annotated[
        list[str] | None,
        option("--hide-key", "NAME", "Hide values under this key, such as *token*."),
    ] = None,
    password_file: Annotated[
        Path | None,
        option("--password-file", "FILE", "Users and hashes of their passwords, mode 600."),
    ] = None,
    add_user: Annotated[
        str | None,
        option(
            "--add-user",
            "NAME",
            "Ask for a password, write its hash into --password-file, and exit.",
        ),
    ] = None,
    user_header: Annotated[
        str | None, option("--user-header", "NAME", "A header in which a proxy names the user.")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        option(
            "--proxy", "NETWORK", "The address of the proxy of --user-header. Default: this host."
        ),
    ] = None,
    proxy_secret: Annotated[
        Path | None,
        option(
            "--proxy-secret",
            "FILE",
            "The secret that your proxy sends as X-Outlast-Proxy, in a file of mode 600."
            " Without it, --user-header trusts each process in --proxy.",
        ),
    ] = None,
    no_auth: Annotated[bool, flag("--no-auth", "Let everyone use the page.")] = False,
    allow_host: Annotated[
        list[str] | None, option("--allow-host", "NAME", "A host name of the page in browsers.")
    ] = None,
    prefix: Annotated[
        str, option("--prefix", "PATH", "Serve the page below this path, such as /jobs.")
    ] = "",
) -> None:
    """Serve the page: what needs attention, the jobs, why each is in its state, and what to do.

    Only this machine can reach it, unless --host says otherwise; then also say who may use it, with
    --password-file, --user-header or --no-auth. Without these, the command prints a link that works
    once and starts a session in the browser.

    Examples:
        outlast web
        outlast web --name production --colour red --read-only
        outlast web --password-file /etc/outlast/users --add-user ada
        outlast web --host 0.0.0.0 --password-file /etc/outlast/users --allow-host jobs.example.org
    """
    if add_user is not None:
        _add_user(password_file, add_user)
        return
    ways = [password_file is not None, user_header is not None, no_auth]
    if sum(ways) > 1:
        raise UsageError(f"give one of {WAYS_IN}")
    if not any(ways) and not is_loopback(host):
        raise UsageError(
            f"--host {host} can be reached from other machines: say who may use it, by {WAYS_IN}"
        )
    if (proxy or proxy_secret is not None) and user_header is None:
        raise UsageError("--proxy and --proxy-secret belong to --user-header: give that, too")
    address, server = resolve_url(url), _load_server()
    networks = _networks(proxy or [])
    secret = "" if proxy_secret is None else read_secret(proxy_secret)
    users = server.choose_users(password_file, user_header, networks, secret, no_auth=no_auth)
    site = server.Site(
        address,
        users.judge,
        refuse=users.refuse,
        name=name,
        colour=colour,
        hide=hide,
        hide_keys=hide_key or [],
        hosts=[host, *(allow_host or [])],
        read_only=read_only,
        command=context.find_root().info_name or "outlast",
        prefix=prefix,
    )
    run_loop(lambda: _serve(server, site, users, host, port))


def _add_user(path: Path | None, name: str) -> None:
    if path is None:
        raise UsageError("--add-user writes into a file: name it by --password-file FILE")
    from outlast.base.passwords import put_user

    put_user(path, name, _ask_for_password(name))
    print(
        f"{name} may sign in once `outlast web --password-file {shell_word(str(path))}` is started"
        " or restarted"
    )


def _ask_for_password(name: str) -> str:
    """Return a password typed twice and unseen; or, from a pipe, its first line."""
    if sys.stdin.isatty():
        asked: str = typer.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        return asked
    return sys.stdin.readline().rstrip("\r\n")


async def _serve(server: Any, site: Any, users: Any, host: str, port: int) -> None:
    async with using(open_readable(site.url)) as store:
        await check_exists(store)
    await server.serve(site, users, host, port, describe_place(site.url))


def _load_server() -> Any:
    try:
        return importlib.import_module("outlast.cli.web_server")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PAGE_NEEDS:
            raise
        raise ConfigError(f"the page needs {missing}: pip install 'outlast[web]'") from error


def _networks(texts: list[str]) -> list[Network]:
    from ipaddress import ip_network

    try:
        return [ip_network(text, strict=False) for text in texts]
    except ValueError:
        raise UsageError(f"--proxy {' '.join(texts)}: write networks, such as 10.0.0.0/8") from None
