"""Route the page for operators below an address of the project: ``path("outlast/",
include("outlast.contrib.django.urls"))``."""

from __future__ import annotations

from django.urls import path

from outlast.contrib.django.page import show_page

urlpatterns = [path("", show_page), path("<path:within>", show_page)]
"""Both are one view; the page has its own addresses."""
