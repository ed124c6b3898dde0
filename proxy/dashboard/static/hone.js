// Keyboard shortcuts, relative times, and ids that one click copies. Every page works without this file.
"use strict";
(() => {
  const lines = () => [...document.querySelectorAll("[data-line]")];
  let going = false;
  let column = 0;

  const choose = (step) => {
    const all = lines();
    if (!all.length) return;
    const at = all.findIndex((line) => line.classList.contains("chosen"));
    all[at]?.classList.remove("chosen");
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    next.classList.add("chosen");
    next.scrollIntoView({ block: "nearest" });
    across(0);
  };

  // In a table whose columns are compared, h and l move between the cells of the chosen row.
  const across = (step) => {
    document.querySelector(".attempts .here")?.classList.remove("here");
    const cells = [...document.querySelectorAll(".attempts .chosen > td")];
    if (!cells.length) return;
    column = Math.min(Math.max(column + step, 0), cells.length - 1);
    cells[column].classList.add("here");
    cells[column].scrollIntoView({ block: "nearest", inline: "nearest" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (going) {
      going = false;
      document.querySelector(`nav a[data-go="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    if (event.key === "j") choose(1);
    else if (event.key === "k") choose(-1);
    else if (event.key === "h") across(-1);
    else if (event.key === "l") across(1);
    else if (event.key === "g") going = true;
    else if (event.key === "Enter") document.querySelector(".here a, .chosen:not(:has(.here)) a")?.click();
    else if (event.key === "?") document.getElementById("shortcuts").showModal();
    else if (event.key === "/") {
      const search = document.querySelector("input[type=search]") ?? document.getElementById("find");
      if (!search) return;
      event.preventDefault();
      search.focus();
    } else if (!event.repeat) document.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
  });

  // An id is selectable text that one click selects; here the click copies it too.
  document.addEventListener("click", async (event) => {
    const id = event.target.closest(".copy");
    if (!id || !navigator.clipboard) return;
    await navigator.clipboard.writeText(id.textContent.trim());
    id.classList.add("copied");
    setTimeout(() => id.classList.remove("copied"), 1500);
  });

  // Buttons that copy a text of the page; without this file the text is there to be selected.
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.classList.add("copied");
      setTimeout(() => button.classList.remove("copied"), 1500);
    });
  }

  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const span = (s) => { const [size, unit] = units.find(([size]) => s >= size); return `${Math.round(s / size)} ${unit}`; };
  setInterval(() => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const since = (Date.now() - Date.parse(time.dateTime)) / 1000;
      if (since >= 1) time.textContent = `${span(since)} ago`;
    }
  }, 10_000);
})();
