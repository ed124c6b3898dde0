// Live figures and newest trajectories. The server renders and escapes the HTML. Without this file they do not update.
"use strict";
(() => {
  const rows = document.getElementById("live-rows");
  const statusText = document.getElementById("live-status");
  const pause = document.getElementById("live-pause");
  if (!rows || !window.EventSource) return;
  let source = null;

  const link = (line) => line?.querySelector("a")?.getAttribute("href");
  const find = (href) => href && [...rows.children].find((line) => link(line) === href);

  const show = (html) => {
    const made = new DOMParser().parseFromString(`<table><tbody>${html}</tbody></table>`, "text/html");
    const chosen = link(rows.querySelector(".chosen"));
    const focused = rows.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    rows.replaceChildren(...made.querySelectorAll("tbody > tr"));
    find(chosen)?.classList.add("chosen");
    if (focused) rows.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    document.getElementById("live-table").hidden = !rows.children.length;
    document.getElementById("live-none").hidden = Boolean(rows.children.length);
  };

  const count = (html) => {
    const made = new DOMParser().parseFromString(html, "text/html");
    for (const piece of made.querySelectorAll("body > [id]")) {
      const there = document.getElementById(piece.id);
      if (there && !there.contains(document.activeElement)) there.replaceWith(document.adoptNode(piece));
    }
  };

  const listen = () => {
    source = new EventSource("/hone/live");
    source.onopen = () => { statusText.textContent = "live"; };
    source.onmessage = (event) => show(event.data);
    source.addEventListener("figures", (event) => count(event.data));
    source.onerror = () => {
      const over = source.readyState === EventSource.CLOSED;
      statusText.textContent = over ? "not live: reload the page" : "the proxy does not answer; reconnecting";
    };
  };

  const stop = (words) => { source?.close(); source = null; statusText.textContent = words; };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    const running = source !== null;
    if (running) stop("paused");
    else listen();
    pause.textContent = running ? "Continue" : "Pause";
  });
  addEventListener("pagehide", () => source?.close());
  listen();
})();
