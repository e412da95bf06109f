"""Each kind of messenger has what its entry needs elsewhere: a broker, an extra, its page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast import wakeup
from outlast.errors import ConfigError
from outlast.wakeup.kinds import BY_SCHEME, KINDS, NATS, Kind, parse
from tests.cases import each_case

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "messengers.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


@each_kind
def test_a_kind_has_a_broker_of_its_own(kind: Kind) -> None:
    assert wakeup._broker(kind).__module__ == f"outlast.wakeup.{kind.name}"


def test_a_kind_without_a_broker_does_not_get_that_of_another() -> None:
    new = msgspec.structs.replace(NATS, name="new")
    with pytest.raises(NotImplementedError, match="kind new"):
        wakeup._broker(new)


@each_kind
def test_a_driver_that_is_missing_is_named_with_the_extra_that_brings_it(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_broker(kind: Kind) -> wakeup.MakeBroker:
        raise ModuleNotFoundError("not there", name=f"{kind.package}.client")

    monkeypatch.setattr(wakeup, "_import_broker", import_broker)
    with pytest.raises(ConfigError, match=re.escape(f"pip install 'outlast[{kind.name}]'")):
        wakeup._broker(kind)


@each_kind
def test_the_driver_of_a_kind_is_an_extra(kind: Kind) -> None:
    package = kind.needs.partition(" needs ")[2]
    assert any(each.startswith(package) for each in PROJECT["optional-dependencies"][kind.name])


@each_kind
def test_the_page_names_each_scheme_and_setting(kind: Kind) -> None:
    names = set(re.findall(r"`(\w+)(?:://)?`", PAGE))
    assert {*kind.ports, *kind.settings} <= names


@each_kind
def test_the_forms_for_people_are_right(kind: Kind) -> None:
    assert [parse(form).kind for form in kind.forms] == [kind.name] * len(kind.forms)
    assert set(kind.tls_schemes) <= set(kind.ports)


@each_case("scheme", BY_SCHEME)
def test_the_application_takes_each_scheme(scheme: str) -> None:
    app = outlast.App("postgresql://host/db", wakeup=f"{scheme}://user:password@host")
    assert "password" not in repr(app)
