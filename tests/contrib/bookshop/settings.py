"""A project of Django on the database that $BOOKSHOP_DATABASE names."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import django

IS_6 = django.VERSION >= (6, 0)
URL = os.environ.get("BOOKSHOP_DATABASE", "sqlite:///bookshop.sqlite3")


def database_of(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.removeprefix("sqlite:///"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 60},
        }
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


DATABASES = {"default": {**database_of(URL), "ATOMIC_REQUESTS": True}}
if "BOOKSHOP_TEST_FILE" in os.environ:  # a file in the place of a database in memory
    DATABASES["default"]["TEST"] = {"NAME": os.environ["BOOKSHOP_TEST_FILE"]}
if "BOOKSHOP_HOOKS" in os.environ:  # connections are kept, and looked at before they are used
    DATABASES["default"].update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *([] if IS_6 else ["django_tasks"]),
    "outlast.contrib.django",
    "shop",
]
TASKS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "outlast.contrib.django.Backend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"retries": 1, "backoff_first": 0.1, "backoff_max": 0.1},
    },
    "patient": {
        "BACKEND": "outlast.contrib.django.Backend",
        "QUEUES": [],
        "OPTIONS": {"retries": 9, "timeout": 60, "limits": ["press"]},
    },
    "immediate": {
        "BACKEND": f"django{'.' if IS_6 else '_'}tasks.backends.immediate.ImmediateBackend",
    },
}
OUTLAST = {"LIMITS": {"press": {"running": 1}}}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
SECRET_KEY = "of a test"
DEBUG = False
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
