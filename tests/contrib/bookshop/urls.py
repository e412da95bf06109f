"""The pages of the project."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("work/outlast/", include("outlast.contrib.django.urls")),
]
