"use strict";
// The Tab key stops once in a table or list of links; there the arrows lead from link to link.
const keys = (() => {
  function next(rows, link, key) {
    const all = rows.flat(), at = rows.findIndex((row) => row.includes(link)), row = rows[at];
    const beside = (other) => other && other[Math.min(row.indexOf(link), other.length - 1)];
    switch (key) {
      case "ArrowRight": return all[all.indexOf(link) + 1];
      case "ArrowLeft": return all[all.indexOf(link) - 1];
      case "ArrowDown": return beside(rows[at + 1]);
      case "ArrowUp": return beside(rows[at - 1]);
      case "Home": return row[0];
      case "End": return row.at(-1);
      default: return null;
    }
  }

  function gather(box) {
    const rows = [...box.querySelectorAll("tr, li")].map((row) => [...row.querySelectorAll("a")]).filter((row) => row.length);
    if (!rows.length) return;
    const stop = (at) => { for (const link of rows.flat()) link.tabIndex = link === at ? 0 : -1; };
    stop(rows[0][0]);
    box.removeAttribute("tabindex"); // what has the focus comes into sight
    box.addEventListener("focusin", ({ target }) => { if (target.tagName === "A") stop(target); });
    box.addEventListener("keydown", (event) => {
      const to = event.ctrlKey || event.altKey || event.metaKey || event.target.tagName !== "A" ? null : next(rows, event.target, event.key);
      if (!to) return;
      event.preventDefault();
      to.focus();
    });
  }

  // A plot is a picture, with a name: its parts are for pointers, and its numbers are in a table.
  function pass(root) {
    for (const one of root.querySelectorAll("*")) {
      if (one.tabIndex >= 0) one.tabIndex = -1;
      if (one.shadowRoot) pass(one.shadowRoot);
    }
  }

  return { gather, pass };
})();
