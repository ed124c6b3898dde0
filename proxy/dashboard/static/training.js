// A running learner's page goes on by itself. What a person has typed, opened or chosen stays.
"use strict";
(() => {
  const stand = () => document.getElementById("stand");
  const busy = () => {
    const here = stand().contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button");
    const typed = [...stand().querySelectorAll("input, textarea")].some((field) => field.value !== field.defaultValue);
    const chosen = [...stand().querySelectorAll("option")].some((one) => one.selected !== one.defaultSelected);
    return here || typed || chosen || document.hidden;
  };
  const again = async () => {
    if (!stand()?.dataset.live || busy()) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("stand");
    if (!made || busy()) return;
    for (const open of stand().querySelectorAll("details[open][id]")) made.querySelector(`#${open.id}`)?.setAttribute("open", "");
    stand().replaceWith(document.adoptNode(made));
  };
  setInterval(() => again().catch(() => {}), 10_000);
})();
