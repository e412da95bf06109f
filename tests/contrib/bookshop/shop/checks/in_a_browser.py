"""The admin in Chromium: a person finds a dead job, reads why, and revives it."""

from __future__ import annotations

import shutil

from django.contrib.auth.models import User
from django.contrib.staticfiles.testing import StaticLiveServerTestCase
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import Select, WebDriverWait

from outlast.contrib.django.models import JobRecord
from shop import tasks
from shop.checks.work import work

SECONDS = 90


class Browser(StaticLiveServerTestCase):
    def setUp(self) -> None:
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.browser = webdriver.Chrome(options, service)
        self.addCleanup(self.browser.quit)
        User.objects.create_superuser("ann", password="secret")

    def wait_for(self, how: str, what: str) -> None:
        found = expected_conditions.presence_of_element_located((how, what))
        WebDriverWait(self.browser, SECONDS).until(found)

    def sign_in(self) -> None:
        self.browser.get(f"{self.live_server_url}/admin/outlast/jobrecord/")
        self.wait_for(By.NAME, "username")
        self.browser.find_element(By.NAME, "username").send_keys("ann")
        self.browser.find_element(By.NAME, "password").send_keys("secret")
        self.browser.find_element(By.CSS_SELECTOR, "input[type=submit]").click()
        self.wait_for(By.ID, "result_list")

    def test_a_dead_job_is_read_and_revived(self):
        result = tasks.fails.enqueue()
        work(result)
        self.sign_in()
        self.browser.find_element(By.LINK_TEXT, result.id).click()
        self.wait_for(By.XPATH, "//pre[contains(., 'OutOfPaper: no paper')]")
        self.browser.back()
        self.wait_for(By.ID, "result_list")
        self.browser.find_element(By.NAME, "_selected_action").click()
        Select(self.browser.find_element(By.NAME, "action")).select_by_value("requeue")
        self.browser.find_element(By.CSS_SELECTOR, "button[name=index]").click()
        self.wait_for(By.XPATH, "//li[contains(., '1 of 1 requeued')]")
        self.assertEqual(JobRecord.objects.get(pk=result.id).state, "queued")
