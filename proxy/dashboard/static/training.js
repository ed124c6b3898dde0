// Reload the overview while a learner runs. What a person has typed, opened or selected stays.
"use strict";
(() => {
  const overview = () => document.getElementById("overview");
  const busy = () => {
    const here = overview().contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button, [tabindex]");
    const typed = [...overview().querySelectorAll("input, textarea")].some((field) => field.value !== field.defaultValue);
    const chosen = [...overview().querySelectorAll("option")].some((one) => one.selected !== one.defaultSelected);
    return here || typed || chosen || document.hidden;
  };
  const again = async () => {
    if (!overview()?.dataset.live || busy()) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("overview");
    if (!made || busy()) return;
    for (const image of made.querySelectorAll("noscript")) image.remove(); // parsed without scripts: the images would load
    for (const open of overview().querySelectorAll("details[open][id]")) made.querySelector(`#${open.id}`)?.setAttribute("open", "");
    overview().replaceWith(document.adoptNode(made));
  };
  setInterval(() => again().catch(() => {}), 10_000);
})();
