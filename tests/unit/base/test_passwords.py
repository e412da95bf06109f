"""The file of users and hashes."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from outlast.base import passwords
from outlast.base.passwords import hash_password, put_user, read_users
from outlast.errors import ConfigError
from tests.cases import each_case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passwords.COST, "n", 16)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "users"
    made.touch(0o600)
    return made


def test_a_hash_is_of_its_password_alone_and_holds_no_part_of_it() -> None:
    one, other = hash_password("correct horse"), hash_password("correct horse")
    assert one.is_of("correct horse")
    assert not any(map(one.is_of, ("correct hors", "Correct horse", "", "correct horse ")))
    assert str(one) != str(other), "each has a salt"
    assert "correct" not in str(one)


def test_a_user_is_written_and_read_and_written_again(file: Path) -> None:
    file.unlink()
    put_user(file, "ada", "correct horse")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = file.read_text()
    file.write_text(f"# operators\n#ada:off\nbob:plain text\n{first}")
    put_user(file, "ada", "battery staple")
    assert file.read_text().startswith("# operators\n#ada:off\nbob:plain text\nada:$scrypt$")
    assert file.read_text().count("ada:$scrypt$") == 1
    assert [one.name for one in file.parent.iterdir()] == ["users"]
    put_user(file, "bob", "long enough")
    users = read_users(file)
    assert sorted(users) == ["ada", "bob"]
    assert users["ada"].is_of("battery staple")
    assert not users["ada"].is_of("correct horse")


@each_case("name", ["", "a:b", "#a", "a\nb", " a", "a ", "a\x1b"])
def test_a_name_that_is_no_name_is_refused(name: str, file: Path) -> None:
    with pytest.raises(ConfigError, match="a user name must be one line without a colon"):
        put_user(file, name, "correct horse")
    assert file.read_text() == ""


def test_what_cannot_be_written_is_refused_and_leaves_the_file(file: Path) -> None:
    with pytest.raises(ConfigError, match="at least 8 characters"):
        put_user(file, "ada", "1234567")
    with pytest.raises(ConfigError, match="cannot be written"):
        put_user(file.parent / "none" / "users", "ada", "correct horse")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        put_user(file, "ada", "correct horse")
    assert file.read_text() == ""


GOOD = "$scrypt$ln=14,r=8,p=5$c2FsdA==$" + "A" * 43 + "="


@each_case(
    ("line", "words"),
    [
        ("ada", ["line 2", "write USER:HASH"]),
        (":secret-word", ["line 2", "write USER:HASH"]),
        ("ada:secret-word", ["line 2", "'ada'", "is not hashed", "--add-user ada"]),
        ("a'; id:secret-word", ["line 2", """--add-user 'a'"'"'; id'`"""]),
        ("ada:$2y$10$secret-word", ["line 2", "is not hashed"]),
        ("ada:$scrypt$secret-word", ["is not hashed"]),
        (f"ada:{GOOD}x", ["is not hashed"]),
        (f"ada:{GOOD}$secret-word", ["is not hashed"]),
        (f"ada:{GOOD.replace('ln=14', 'ln=4')}", ["is not hashed"]),
        (f"ada:{GOOD[: GOOD.rindex('$')]}$abcd", ["is not hashed"]),
        ("# ada:x", ["has no user", "--add-user NAME"]),
    ],
)
def test_a_line_that_is_no_user_is_refused_and_never_shown(
    line: str, words: list[str], file: Path
) -> None:
    file.write_text(f"# operators\n{line}\n")
    with pytest.raises(ConfigError) as refused:
        read_users(file)
    assert all(word in str(refused.value) for word in words), refused.value
    assert "secret-word" not in str(refused.value)


def test_a_line_of_a_hash_is_a_user(file: Path) -> None:
    file.write_text(f"ada:{GOOD}\n")
    assert [*read_users(file)] == ["ada"]
