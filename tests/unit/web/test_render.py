"""Templates: all of them can be compiled, which is done before the first visitor comes."""

from __future__ import annotations

from outlast.web.render import environment, load_templates


def test_all_templates_can_be_compiled_before_the_first_visitor() -> None:
    environment.cache_clear()
    load_templates()
    made = environment()
    assert made.cache is not None
    assert len(made.cache) == len(made.list_templates()) > 0
