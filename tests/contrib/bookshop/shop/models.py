"""Orders, and what was done with them."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order of a book."""

    title = models.TextField()
    printed = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.title
