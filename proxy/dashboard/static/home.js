// Figures and the newest runs, as the server sends them: it has rendered and escaped them. Without this file they stand still.
"use strict";
(() => {
  const rows = document.getElementById("live-rows");
  const said = document.getElementById("live-said");
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
    source.onopen = () => { said.textContent = "live"; };
    source.onmessage = (event) => show(event.data);
    source.addEventListener("figures", (event) => count(event.data));
    source.onerror = () => {
      const over = source.readyState === EventSource.CLOSED;
      said.textContent = over ? "not live: reload the page" : "the proxy does not answer, asking again";
    };
  };

  const stop = (words) => { source?.close(); source = null; said.textContent = words; };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    const running = source !== null;
    if (running) stop("paused");
    else listen();
    pause.textContent = running ? "Go on" : "Pause";
  });
  addEventListener("pagehide", () => source?.close());
  listen();
})();
