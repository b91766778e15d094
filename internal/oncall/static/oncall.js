// Keeps a page live. The server draws everything; this only puts it in place.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const verdict = byId("verdict"); // the on-call page has one, the pages of one thing have none

  // Somebody is typing in it, or has opened a form of it: it must not be drawn anew.
  function inUse(part) {
    return part.contains(document.activeElement) && document.activeElement.matches("input, summary, button") ||
      [...part.querySelectorAll("details[open]:not([data-open])")].length > 0 ||
      [...part.querySelectorAll('input[type="text"]')].some((i) => i.value !== i.defaultValue);
  }

  // Only what changed is replaced, so that a selection elsewhere survives.
  function put(next) {
    for (const input of next.querySelectorAll('input[name="form_token"]')) {
      if (!input.getAttribute("value")) input.setAttribute("value", document.body.dataset.token || "");
    }
    for (const part of next.querySelectorAll("[data-part]")) {
      const old = byId(part.id);
      if (!old || old === part || old.innerHTML === part.innerHTML || inUse(old)) continue;
      old.className = part.className;
      old.replaceChildren(...part.childNodes);
    }
  }

  function live() {
    const patience = Number(verdict.dataset.patience); // ms without news before the page owns up to it
    let last = Date.now();

    function lost(yes) {
      byId("lost").hidden = !yes;
      document.body.classList.toggle("lost", yes);
      document.title = `${yes ? "Stream lost" : byId("word").textContent} · fanout on call`;
    }

    function show(html) {
      const next = new DOMParser().parseFromString(html, "text/html");
      verdict.className = next.getElementById("verdict").className;
      // Read out when it changes in kind, not with every figure.
      const says = next.getElementById("says");
      if (byId("says").dataset.key !== says.dataset.key) {
        byId("says").dataset.key = says.dataset.key;
        byId("says").textContent = says.textContent;
      }
      const answers = next.getElementById("answers");
      if (answers && !byId("answers")) verdict.after(document.adoptNode(answers.cloneNode(false)));
      put(next);
      last = Date.now();
      lost(false);
    }

    function connect() {
      const events = new EventSource("/oncall/events");
      events.addEventListener("sample", (e) => show(e.data));
      events.addEventListener("error", () => {
        // A refused stream is not tried again by the browser itself. Where a session has
        // ended, the page itself leads to the login.
        if (events.readyState !== EventSource.CLOSED) return;
        fetch("/oncall", { redirect: "manual", headers: { accept: "text/html" } }).then(
          (r) => { if (r.type === "opaqueredirect") location.reload(); else setTimeout(connect, 5_000); },
          () => setTimeout(connect, 5_000),
        );
      });
    }

    setInterval(() => { if (Date.now() - last > patience) lost(true); }, Math.min(1_000, patience / 2));
    connect();
  }

  async function again() {
    if (document.hidden) return;
    try {
      const r = await fetch(location.pathname, { redirect: "manual", headers: { accept: "text/html" } });
      if (r.type === "opaqueredirect") location.reload(); // the session has ended
      else if (r.ok) put(new DOMParser().parseFromString(await r.text(), "text/html"));
    } catch { /* the next one may get through */ }
  }

  if (verdict) live();
  else if (document.body.dataset.refresh) setInterval(again, Number(document.body.dataset.refresh));
})();
