// What a page does beside links and forms: local times, and regions that follow the store.
// Without this script every page works; it is as it was when it was asked for.
(() => {
  "use strict";
  const POLL_SECONDS = 10, RETRY_SECONDS = 3;
  const pad = (n) => String(n).padStart(2, "0");
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const region = () => document.getElementById("main");

  // -- times: in the reader's zone; the whole of it, in UTC, on hover

  function ago(then) {
    const seconds = (Date.now() - then) / 1000, size = Math.abs(seconds);
    if (size < 1) return "now";
    const [unit, word] = size >= 86400 ? [86400, "d"] : size >= 3600 ? [3600, "h"] : size >= 60 ? [60, "min"] : [1, "s"];
    const text = `${Math.floor(size / unit)} ${word}`;
    return seconds > 0 ? `${text} ago` : `in ${text}`;
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

  // -- the region: asked for again when something has changed, and put in place of what is shown

  let tag = null, busy = false, wanted = false;

  function isInUse() {
    const selection = getSelection(), here = region();
    if (selection && !selection.isCollapsed && here.contains(selection.anchorNode)) return true;
    if (document.querySelector("dialog[open]")) return true;
    const active = document.activeElement;
    return here.contains(active) && active.matches("input, select, textarea");
  }

  async function refresh() {
    wanted = true;
    if (busy || document.hidden || isInUse()) return;
    wanted = false;
    busy = true;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", credentials: "same-origin" });
      if (answer.status === 304) return show("");
      if (answer.status === 401) { stop(); return show("Signed out: load the page again", 0); }
      const type = answer.headers.get("content-type") || "";
      if (!type.startsWith("text/html")) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const isKnown = fresh.title === document.title;  // there was nothing else to show before
      if (answer.status >= 500) return show(isKnown ? "" : `${fresh.title.split(" · ")[0]}: this is how it was`, RETRY_SECONDS);
      replace(fresh);
      tag = answer.ok ? answer.headers.get("etag") : null;
      show("");
    } catch {
      show("No answer from the server: this is how it was");
    } finally {
      busy = false;
    }
  }

  function replace(fresh) {
    const next = fresh.getElementById("main");
    if (!next) return;
    localise(next);
    document.title = fresh.title;
    Idiomorph.morph(region(), next, {
      ignoreActiveValue: true,
      callbacks: { beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") },
    });
  }

  // -- hints from the server; without them, a look every ten seconds

  let source = null;

  function start() {
    const { topics, events } = region().dataset;
    if (!topics || source || document.hidden) return;
    source = new EventSource(`${events}?topics=${encodeURIComponent(topics)}`);
    source.onmessage = refresh;
  }

  function stop() {
    if (source) source.close();
    source = null;
  }

  // Says what is the matter, and asks again soon; nothing: all is well.
  function show(trouble, again = trouble ? RETRY_SECONDS : 0) {
    const place = document.getElementById("live");
    if (place.textContent !== trouble) place.textContent = trouble;
    if (again) setTimeout(refresh, again * 1000);
  }

  const isLive = () => region().dataset.topics !== undefined;

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return stop();
    if (isLive()) { start(); refresh(); }
  });
  for (const event of ["selectionchange", "focusout", "close"]) {
    document.addEventListener(event, () => setTimeout(() => { if (wanted && isLive()) refresh(); }, 0), true);
  }
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    document.querySelector(".find input").focus();
  });
  setInterval(() => { if (isLive() && (!source || source.readyState !== 1)) refresh(); }, POLL_SECONDS * 1000);

  document.getElementById("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const tab = document.querySelector(".top nav [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 16;
  localise(document);
  start();
})();
