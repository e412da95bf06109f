"""Hide the matches of an expression, and values under certain keys, in any text.

Values are searched for in the text as it is, whether all of it is JSON or only a part, as in an
error's message: numbers keep their digits. The search also works in a text that was cut in the
middle, in JSON within a JSON string, with its backslashes, and in Python's text of a dict.

A quote's backslashes give its level: a quote of the document has none before it, a quote of a
document in one of its strings has one, the next level has three. Backslashes of the text itself
come before these in pairs; so the level is the number of trailing ones in the binary form of the
number of backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from outlast.errors import ConfigError, text_of

HIDDEN: Final = "▒▒▒"
ANY = r"(?:[^\"'\\:]|\\+/){0,300}"  # the characters that * in a key matches
_BLANKS = r"(?:\s|\\+[nrt])*+"
_TOKENS = re.compile(r"[\"'\[\](){}]")
_NEXT_STRING = re.compile(r"(?:\s|\\+[nrt])++b?(\\*+)[\"']")
_QUOTE = re.compile(r"\\*+[\"']")
_NAMED = re.compile(r"[A-Za-z_][\w.]*(?=\(|\\*[\"'])")  # Python's text before a value
_WITHIN_ANGLES = re.compile(r"<(?:[^<>\"'\\]|'[^'\"\\]*')*+>?")
_LITERAL_ENDS = re.compile(r"[\s,;&\"'\\)\]}]")
_OPENS, _CLOSES = "[({", "])}"
_CUT = " ... "  # ``model.crash.clean`` writes it in the middle of a text that was too long
_CUT_MIN = 199  # characters of the shortest text that was cut
_FIRST_WORD, _LAST_WORD = re.compile(r"\A\S+"), re.compile(r"(?<!\S)\S+\Z")


class Hiding:
    """What one dashboard hides."""

    def __init__(self, pattern: str | None = None, keys: Iterable[str] = ()) -> None:
        """Raises ConfigError for a pattern or keys that cannot be used."""
        self._pattern = None if pattern is None else _compile(pattern)
        chosen = [keys] if isinstance(keys, str) else list(keys)
        if not all(isinstance(key, str) and key.strip("*") for key in chosen):
            raise ConfigError(f"hide_keys={chosen!r}: write names of keys, as password or *token*")
        self._keys = _compile_keys(chosen) if chosen else None

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be hidden."""
        return self._keys is not None or self._pattern is not None

    def cover(self, text: str) -> str:
        """Return a text with all matches hidden, and also the words at places where the text was
        cut before it was stored, since a part of a match does not match."""
        text = self.cover_cut(text)
        if self._keys is not None:
            text = _cover_values(text, self._keys)
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def cover_cut(self, text: str, *, keeps_end: bool = False) -> str:
        """Return a text without the word at each place where it was cut. ``keeps_end``: the text is
        the end of a longer one."""
        middle = (len(text) - len(_CUT)) // 2
        if len(text) < _CUT_MIN or not self.is_needed:
            return text
        if text[middle : middle + len(_CUT)] == _CUT:
            before, behind = text[:middle], text[middle + len(_CUT) :]
            text = _LAST_WORD.sub(HIDDEN, before) + _CUT + _FIRST_WORD.sub(HIDDEN, behind)
        elif text.endswith("…"):
            text = _LAST_WORD.sub(HIDDEN, text[:-1]) + "…"
        return _FIRST_WORD.sub(HIDDEN, text) if keeps_end else text


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"hide={pattern!r}: {text_of(error)}") from error


def _compile_keys(keys: list[str]) -> re.Pattern[str]:
    """Return a pattern for a key with its quotes and its colon, and all blanks before the value."""
    names = "|".join(_name(key) for key in keys)
    return re.compile(rf"([\"'])(?:{names})(\\*+)\1{_BLANKS}:{_BLANKS}", re.IGNORECASE)


def _name(key: str) -> str:
    """Return a pattern for a key in which * stands for anything. The text between two * is matched
    at its first occurrence only: other places would match no more names, and trying them all takes
    minutes in a text of 100 kB."""
    first, *parts = key.split("*")
    name = _letters(first)
    for part in parts[:-1]:
        name += f"(?>{ANY}?{_letters(part)})" if part else ""
    if parts:
        name += f"{ANY}{_letters(parts[-1])}" if parts[-1] else f"{ANY}+"
    return name


def _letters(text: str) -> str:
    return "".join(map(_letter, text))


def _letter(letter: str) -> str:
    """Return a pattern for a letter as it is, or as JSON may escape it."""
    escaped = {f"u{ord(one):04x}" for one in (letter, letter.lower(), letter.upper())}
    slash = r"|\\+/" if letter == "/" else ""
    return rf"(?:{re.escape(letter)}{slash}|\\+(?:{'|'.join(sorted(escaped))}))"


def _cover_values(text: str, keys: re.Pattern[str]) -> str:
    parts: list[str] = []
    at = 0
    while found := keys.search(text, at):
        start, level = found.end(), _level(len(found[2]))
        end = _end_of_value(text, start, level)
        parts.append(text[at:start])
        if end > start:
            quote = "\\" * ((1 << level) - 1) + found[1]
            parts.append(f"{quote}{HIDDEN}{quote}")
        at = end
    return "".join([*parts, text[at:]])


def _level(backslashes: int) -> int:
    level = 0
    while backslashes >> level & 1:
        level += 1
    return level


def _level_at(text: str, at: int) -> int:
    """Return the level of the quote at a place."""
    first = at
    while first and text[first - 1] == "\\":
        first -= 1
    return _level(at - first)


def _end_of_value(text: str, start: int, level: int) -> int:
    """Return the end of the value that begins at ``start``; of the text if that was cut off."""
    if (inside := _WITHIN_ANGLES.match(text, start)) is not None:
        return inside.end()
    if (named := _NAMED.match(text, start)) is not None:  # b'…', Decimal('…'), date(1999, 12, 31)
        start = named.end()
    if text[start : start + 1] in {*_OPENS}:
        return _end_of_container(text, start, level)
    if quote := _QUOTE.match(text, start):
        inner = _level(len(quote[0]) - 1)
        return start if inner < level else _end_of_strings(text, quote.end() - 1, inner)
    end = _LITERAL_ENDS.search(text, start)
    return len(text) if end is None else end.start()


def _end_of_strings(text: str, opened: int, level: int) -> int:
    """Return the end of the last of several strings separated only by blanks: ``pprint`` writes a
    long string like this."""
    end = _end_of_string(text, opened, level)
    while quote := _NEXT_STRING.match(text, end):
        if _level(len(quote[1])) != level:
            break
        end = _end_of_string(text, quote.end() - 1, level)
    return end


def _end_of_string(text: str, opened: int, level: int) -> int:
    """Return the end of the string that opens here: behind its closing quote, or before the closing
    quote of the string around it."""
    quote, at = text[opened], opened
    while (at := text.find(quote, at + 1)) >= 0:
        found = _level_at(text, at)
        if found == level:
            return at + 1
        if found < level:
            return at - (1 << found) + 1
    return len(text)


def _end_of_container(text: str, start: int, level: int) -> int:
    depth, at = 0, start
    while found := _TOKENS.search(text, at):
        at, sign = found.end(), found[0]
        if sign in _OPENS:
            depth += 1
        elif sign in _CLOSES:
            depth -= 1
            if depth == 0:
                return at
        elif _level_at(text, found.start()) < level:
            return found.start()
        else:
            at = _end_of_string(text, found.start(), level)
    return len(text)
