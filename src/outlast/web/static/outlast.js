// What a page does beside links and forms: local times, and regions that follow the store.
// Without this script every page works; it is as it was when it was asked for.
(() => {
  "use strict";
  const CHANGED_SECONDS = 2, SAME_SECONDS = 5, SLOW_SECONDS = 10;  // until the next look at the page
  const ANSWER_SECONDS = 60;  // that a look may take
  const SHARE = 0.02;  // of the time, for answers
  const pad = (n) => String(n).padStart(2, "0");
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const region = () => document.getElementById("main");

  // -- times: in the reader's zone; the whole of it, in UTC, on hover

  function ago(then) {
    const size = (Date.now() - then) / 1000;
    if (size < 1) return "now";  // also if our clock is behind
    const [unit, word] = size >= 86400 ? [86400, "d"] : size >= 3600 ? [3600, "h"] : size >= 60 ? [60, "min"] : [1, "s"];
    return `${Math.floor(size / unit)} ${word} ago`;
  }

  function short(then) {
    const today = new Date();
    const day = `${pad(then.getDate())} ${MONTHS[then.getMonth()]}`;
    const minute = `${pad(then.getHours())}:${pad(then.getMinutes())}`;
    if (then.toDateString() === today.toDateString()) return `${minute}:${pad(then.getSeconds())}`;
    return then.getFullYear() === today.getFullYear() ? `${day} ${minute}` : `${day} ${then.getFullYear()}`;
  }

  function localise(root) {
    for (const each of root.querySelectorAll("time[datetime]")) {
      const then = new Date(each.getAttribute("datetime"));
      if (isNaN(then)) continue;
      each.textContent = each.className === "ago" ? ago(then) : short(then);
    }
  }

  // -- the region: asked for again every few seconds, and put in place of what is shown

  let tag = null, busy = false, timer = 0;

  const isLive = () => region().dataset.live !== undefined;

  function isInUse() {
    const selection = getSelection(), here = region();
    if (selection && !selection.isCollapsed && here.contains(selection.anchorNode)) return true;
    if (document.querySelector("dialog[open]")) return true;
    const active = document.activeElement;
    return here.contains(active) && active.matches("input, select, textarea");
  }

  // Asks now, and again later: soon while the page changes, and the longer the answer takes, the later.
  async function follow() {
    if (busy) return;
    clearTimeout(timer);
    const began = performance.now();
    busy = true;
    const seconds = document.hidden || isInUse() ? CHANGED_SECONDS : await refresh();
    busy = false;
    const slow = Math.min((performance.now() - began) / SHARE, SLOW_SECONDS * 1000);
    if (seconds && isLive()) timer = setTimeout(follow, Math.max(slow, seconds * 1000));
  }

  // Returns in how many seconds to ask again; 0: not at all.
  async function refresh() {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const signal = AbortSignal.timeout(ANSWER_SECONDS * 1000);  // also for what follows the headers
      const answer = await fetch(location.href, { headers, signal, cache: "no-store", credentials: "same-origin" });
      if (answer.status === 401) { show("Signed out: load the page again"); return 0; }
      if (answer.status === 304) { show(""); return SAME_SECONDS; }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const isKnown = fresh.title === document.title;  // there was nothing else to show before
      if (answer.status >= 500 || !fresh.getElementById("main")) {  // without it: of another server, or for strangers
        show(isKnown ? "" : `${fresh.title.split(" · ")[0] || "No page"}: this is how it was`);
        return CHANGED_SECONDS;
      }
      if (isInUse()) return CHANGED_SECONDS;  // since a moment ago
      replace(fresh);
      tag = answer.ok ? answer.headers.get("etag") : null;
      show("");
    } catch {
      show("No answer from the server: this is how it was");
    }
    return CHANGED_SECONDS;
  }

  function replace(fresh) {
    const next = fresh.getElementById("main");
    localise(next);
    document.title = fresh.title;
    Idiomorph.morph(region(), next, {
      ignoreActiveValue: true,
      callbacks: { beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") },
    });
  }

  // Says what is the matter; nothing: all is well.
  function show(trouble) {
    const place = document.getElementById("live");
    if (place.textContent !== trouble) place.textContent = trouble;
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && isLive()) follow(); });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    document.querySelector(".find input").focus();
  });

  document.getElementById("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const tab = document.querySelector(".top nav [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 16;
  localise(document);
  if (isLive()) timer = setTimeout(follow, CHANGED_SECONDS * 1000);
})();
