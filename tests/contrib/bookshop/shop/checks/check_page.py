"""The page for operators below an address of the project, by Django's test client."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory, TransactionTestCase, override_settings

from outlast.contrib.django.models import JobRecord
from outlast.contrib.django.page import PERMISSIONS, _scope_of, close_page
from outlast.insight.hiding import HIDDEN
from outlast.web.access import Right
from shop import tasks
from shop.checks.work import work

PAGE = "/work/outlast/"
EACH = {each.removeprefix("outlast.") for each in PERMISSIONS.values()}
OWN = {"Sec-Fetch-Site": "same-origin"}


class Page(TransactionTestCase):
    def setUp(self) -> None:
        self.addCleanup(close_page)

    def sign_in(self, *permissions: str) -> None:
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        self.client.force_login(user)

    def get(self, path: str = "", **more: Any) -> Any:
        return self.client.get(PAGE + path, **more)

    def test_it_shows_jobs_below_its_own_address(self):
        result = tasks.mail.enqueue("ann")
        self.sign_in("view_job")
        first = self.get()
        self.assertEqual(first.status_code, 200)
        self.assertIn("frame-ancestors 'none'", first["Content-Security-Policy"])
        (sheet,) = re.findall(r'href="\./(static/[^"]+\.css)"', first.content.decode())
        self.assertEqual(self.get(sheet)["Content-Type"], "text/css; charset=utf-8")
        self.assertIn("shop.<wbr>tasks.<wbr>mail", self.get("jobs").content.decode())
        job = self.get(f"jobs/{result.id}").content.decode()
        self.assertIn("shop.<wbr>tasks.<wbr>mail", job)
        for command in (f"why {result.id}", f"cancel {result.id}"):
            self.assertRegex(job, rf"python manage\.py outlast {command}\b")
        self.assertIn("<code>python manage.py outlast worker</code>", self.get().content.decode())
        self.assertNotRegex(job, "(?<!manage.py )outlast [a-z]")
        self.assertEqual(self.get("nothing/here").status_code, 404)

    def test_each_right_is_a_permission(self):
        self.assertEqual(set(PERMISSIONS), set(Right))
        self.assertEqual(Permission.objects.filter(codename__in=EACH).count(), len(EACH))

    def test_strangers_sign_in_first_and_others_are_refused(self):
        self.assertRedirects(
            self.get("jobs"), "/admin/login/?next=/work/outlast/jobs", fetch_redirect_response=False
        )
        self.sign_in()
        for path in ("", "jobs"):
            self.assertEqual(self.get(path).status_code, 403, path)

    @override_settings(ALLOWED_HOSTS=["shop.example.org"])
    def test_only_the_project_s_hosts_are_known(self):
        self.sign_in("view_job")
        self.assertEqual(self.get().status_code, 400)
        self.assertEqual(self.get(headers={"host": "shop.example.org"}).status_code, 200)

    def test_the_server_is_the_host_that_was_asked_for(self):
        asked = RequestFactory().get(PAGE)
        asked.user = User.objects.create_user("ann")
        for host, server in {
            "shop.example.org": ("shop.example.org", None),
            "127.0.0.1:8010": ("127.0.0.1", 8010),
            "[::1]": ("::1", None),
            "[::1]:8010": ("::1", 8010),
        }.items():
            self.assertEqual(_scope_of(asked, "", host)["server"], server)

    def test_a_job_is_cancelled_with_the_permission_and_from_the_page_alone(self):
        result = tasks.mail.enqueue("ann")
        path = f"{PAGE}jobs/{result.id}/cancel"
        self.sign_in("view_job")
        self.assertEqual(self.client.post(path, headers=OWN).status_code, 403)
        User.objects.all().delete()
        self.sign_in("view_job", "cancel_job")
        foreign = {"Sec-Fetch-Site": "cross-site"}
        self.assertEqual(self.client.post(path, headers=foreign).status_code, 403)
        self.assertEqual(JobRecord.objects.get(pk=result.id).state, "queued")
        self.assertIn(self.client.post(path, headers=OWN).status_code, {200, 303})
        self.assertEqual(JobRecord.objects.get(pk=result.id).state, "cancelled")

    def test_schedules_are_for_those_who_may_view_them(self):
        self.sign_in(*EACH)
        for path in ("schedules", "schedules/schedule?name=nightly", "api/v1/schedules"):
            self.assertEqual(self.get(path).status_code, 403, path)
        User.objects.all().delete()
        self.sign_in("view_job", "view_schedule")
        self.assertEqual(self.get("schedules").status_code, 200)

    def test_a_schedule_is_triggered_with_the_permission_of_the_admin_alone(self):
        work(tasks.count.enqueue())  # whose worker declares it
        form = (f"{PAGE}schedules/trigger", "name=nightly", "application/x-www-form-urlencoded")
        call = (f"{PAGE}api/v1/schedules/nightly/trigger", "{}", "application/json")
        self.sign_in("view_schedule", *EACH - {"trigger_schedule"})
        shown = self.get("schedules/schedule?name=nightly").content.decode()
        self.assertNotIn("Trigger now", shown)
        for sent in (form, call):
            self.assertEqual(self.client.post(*sent, headers=OWN).status_code, 403)
        self.assertFalse(JobRecord.objects.filter(task="shop.tasks.print_order").exists())
        User.objects.all().delete()
        self.sign_in("view_job", "view_schedule", "trigger_schedule")
        self.assertEqual(self.client.post(*form, headers=OWN).status_code, 303)
        self.assertTrue(JobRecord.objects.filter(task="shop.tasks.print_order").exists())

    @override_settings(
        OUTLAST_PAGE={"hide": "secret-[a-z]+", "hide_keys": ["to"], "read_only": True}
    )
    def test_its_settings_hide_what_is_shown_and_keep_it_from_acting(self):
        result = tasks.mail.enqueue("secret-ann")
        self.sign_in("view_job", "cancel_job")
        shown = self.get(f"jobs/{result.id}").content.decode()
        self.assertNotIn("secret-ann", shown)
        self.assertIn(HIDDEN, shown)
        self.assertNotIn("Cancel", shown)
        path = f"{PAGE}jobs/{result.id}/cancel"
        self.assertEqual(self.client.post(path, headers=OWN).status_code, 403)
        self.assertEqual(JobRecord.objects.get(pk=result.id).state, "queued")

    def test_a_setting_that_cannot_be_is_named(self):
        self.sign_in("view_job")
        for chosen, said in (
            (
                {"hid": "x"},
                "OUTLAST_PAGE has hid: it takes colour, hide, hide_keys, name, read_only",
            ),
            ({"hide": "("}, "OUTLAST_PAGE: hide="),
        ):
            settings, raises = override_settings(OUTLAST_PAGE=chosen), self.assertRaisesMessage
            with settings, raises(ImproperlyConfigured, said):
                self.get()
