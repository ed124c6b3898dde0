// New lines of a log, once a second while the page is visible. The server masks keys; lines are only ever text.
"use strict";
(() => {
  const log = document.getElementById("log");
  const statusText = document.getElementById("log-status");
  const pause = document.getElementById("log-pause");
  const most = 1000;
  let next = log?.dataset.next;
  let running = true;
  let asking = false;
  if (!log) return;

  const add = (part) => {
    const below = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const before = next === "0" ? [] : log.textContent.split("\n").slice(0, -1);
    const lines = [...before, ...(part.skipped && before.length ? ["…"] : []), ...part.lines];
    log.textContent = lines.slice(-most).join("\n") + "\n";
    if (below) log.scrollTop = log.scrollHeight;
  };

  const ask = async () => {
    if (!running || asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(`${log.dataset.from}?after=${next}`, { redirect: "error" });
      if (!answer.ok) throw new Error(answer.status);
      const part = await answer.json();
      if (part.lines.length) add(part);
      next = String(part.next);
      statusText.textContent = "live";
    } catch {
      statusText.textContent = "not live: the proxy does not answer, or the sign-in has ended";
    }
    asking = false;
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    running = !running;
    pause.textContent = running ? "Pause" : "Continue";
    statusText.textContent = running ? "" : "paused";
  });
  log.scrollTop = log.scrollHeight;
  setInterval(ask, 1000);
})();
