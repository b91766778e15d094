// Keeps the page live. The server draws everything; this only puts it in place.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const patience = Number(byId("verdict").dataset.patience); // ms without news before the page owns up to it
  let last = Date.now();

  function lost(yes) {
    byId("lost").hidden = !yes;
    document.body.classList.toggle("lost", yes);
    document.title = `${yes ? "Stream lost" : byId("word").textContent} · fanout on call`;
  }

  function show(html) {
    const next = new DOMParser().parseFromString(html, "text/html");
    // Only what changed is replaced, so that a selection elsewhere survives.
    for (const part of next.querySelectorAll("[data-part]")) {
      const old = byId(part.id);
      if (old.innerHTML !== part.innerHTML) old.replaceChildren(...part.childNodes);
    }
    // The verdict is read out when it changes in kind, not with every figure.
    const says = next.getElementById("says");
    if (byId("says").dataset.key === says.dataset.key) {
      byId("running").textContent = next.getElementById("running").textContent;
    } else {
      byId("verdict").className = next.getElementById("verdict").className;
      byId("says").replaceWith(says);
    }
    last = Date.now();
    lost(false);
  }

  function connect() {
    const events = new EventSource("/oncall/events");
    events.addEventListener("sample", (e) => show(e.data));
    events.addEventListener("error", () => {
      // A refused stream is not tried again by the browser itself.
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5_000);
    });
  }

  setInterval(() => { if (Date.now() - last > patience) lost(true); }, Math.min(1_000, patience / 2));
  connect();
})();
