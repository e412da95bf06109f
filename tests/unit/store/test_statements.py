"""The SQL files of the stores: what the loader makes of them, and what statements have to say."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from outlast.errors import ConfigError
from outlast.store.sqlite import statements as sqlite
from outlast.store.statements import statements

SQL = files("outlast.store")
TOPICS = {
    (store, file.name.removesuffix(".sql")): file.read_text("utf-8")
    for store in ("postgres", "sqlite")
    for file in SQL.joinpath(store, "sql").iterdir()
    if file.is_file() and not file.name.startswith("migration_")
}
SHARED = {
    file.name.removesuffix(".sql"): file.read_text("utf-8")
    for file in SQL.joinpath("sql").iterdir()
}
ALL = {(store, topic) for store in ("postgres", "sqlite") for topic in SHARED} | {*TOPICS}
NAME = re.compile(r"^-- name: *(.*)\n", re.MULTILINE)
CALL = re.compile(r"SELECT [^;]*\boutlast_\w+_v1\([^;]*")
UPDATED = re.compile(r"UPDATE outlast_jobs\b(.*?)(?=\bWHERE\b|\bRETURNING\b|;)", re.DOTALL)
MOVED = re.compile(r"\b(state|position|ended_at) =")
TABLE = re.compile(r"\b(FROM|INTO|UPDATE) outlast_[a-z]+\b(?!\()")


def test_a_program_that_was_packed_without_the_files_or_into_one_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"such as a zip.* --collect-data outlast"):
        statements("sqlite", "left_out")


def test_a_topic_is_a_file_of_the_same_name_in_each_store() -> None:
    assert {topic for store, topic in TOPICS if store == "postgres"} == {
        topic for store, topic in TOPICS if store == "sqlite"
    }


def test_no_statement_of_a_topic_has_the_name_of_another() -> None:
    assert {
        which
        for which in ALL
        if [*statements(*which)] != NAME.findall(SHARED.get(which[1], "") + TOPICS.get(which, ""))
    } == set()


def test_no_comment_is_left_in_a_statement_where_it_would_hide_the_rest() -> None:
    assert {
        (*which, name)
        for which in ALL
        for name, text in statements(*which).items()
        if not text or "--" in text
    } == set()


def test_a_statement_of_all_stores_is_one_of_sqlite_with_the_indexes_that_it_names() -> None:
    left = re.compile(r"::|extract\(|strpos|/\*|\{")
    for topic, text in SHARED.items():
        translated = sqlite.statements(topic)
        whole = " ".join(translated[name] for name in NAME.findall(text))
        assert left.findall(whole) == []
        assert whole.count("INDEXED BY") == text.count("/*! INDEXED BY")


def test_each_statement_of_postgresql_argues_why_it_is_right_or_calls_a_function() -> None:
    silent = set()
    shared = {("postgres", topic): text for topic, text in SHARED.items()}
    for (store, topic), file in [*TOPICS.items(), *shared.items()]:
        if store == "postgres":
            for name, text in zip(*[iter(NAME.split(file)[1:])] * 2, strict=True):
                statement = statements(store, topic)[name]
                is_call = CALL.fullmatch(statement) and not TABLE.search(statement)
                if not text.startswith("-- ") and not is_call:
                    silent.add((topic, name))
    assert silent == set()


def test_each_statement_of_postgresql_that_moves_jobs_leaves_their_notices() -> None:
    """A forgotten one would leak permits, or leave jobs behind for good. A claim needs none, nor a
    plain completion outside streams, and of an end its callers leave them."""
    folder = SQL.joinpath("postgres", "sql")
    functions = [file for file in folder.joinpath("functions").iterdir() if file.is_file()]
    sources = {file.name: file.read_text("utf-8") for file in functions}
    sources |= {topic: text for (store, topic), text in TOPICS.items() if store == "postgres"}
    code = {name: re.sub("--.*", "", text) for name, text in sources.items()}
    silent = set()
    for name, text in code.items():
        moves = [each for each in UPDATED.findall(text) if MOVED.search(each)]
        ends = text.count("FROM outlast_end_v1(")
        if len(moves) + ends > text.count("outlast_note_v1(") + (name == "outlast_hand_in_v1.sql"):
            silent.add(name)
    needless = {"outlast_exchange_v1.sql", "outlast_complete_v1.sql"}
    assert silent == needless | {"outlast_end_v1.sql"}
