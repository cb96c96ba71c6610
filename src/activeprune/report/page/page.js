"use strict";
(async () => {
  const root = document.documentElement;
  if (!("DecompressionStream" in window)) return; // an old browser shows the printed figures
  root.classList.add("js");
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const packed = new Blob([bytes(document.getElementById("payload").textContent)]);
  const payload = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  Bokeh.set_log_level("warn"); // when each plot was done is of no interest
  const drawn = []; // models of the plots that have come into sight, and the run that each belongs to

  // What was chosen outlives a reload, but not the tab.
  const remembered = (() => {
    const key = `activeprune ${location.pathname}`;
    let known = {};
    try { known = JSON.parse(sessionStorage.getItem(key)) || {}; } catch { /* no storage: nothing is remembered */ }
    return {
      get: (name) => known[name],
      set: (name, value) => {
        known[name] = value;
        try { sessionStorage.setItem(key, JSON.stringify(known)); } catch { /* as above */ }
      },
    };
  })();

  // Colours
  const scheme = document.getElementById("scheme");
  const isDark = () => scheme.value === "dark" || (scheme.value === "auto" && dark.matches);
  const property = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  function colour(model) {
    const look = (model.tags || []).find((tag) => tag && tag.colour);
    if (look) {
      const own = payload.schemes[isDark() ? "dark" : "light"][look.colour];
      const glyph = model.glyph || model; // an error bar has its colours itself
      if ("line_color" in glyph && glyph.line_color?.value !== null) glyph.line_color = { value: own };
      if ("fill_color" in glyph) glyph.fill_color = { value: look.hollow ? property("paper") : own };
    }
    for (const [name, value] of Object.entries({
      axis_label_text_color: "soft", major_label_text_color: "soft", axis_line_color: "rule",
      major_tick_line_color: "rule", grid_line_color: "faint",
    })) {
      if (name in model && model[name] != null) model[name] = property(value);
    }
  }

  function setScheme() {
    root.classList.toggle("dark", isDark());
    for (const { model } of drawn) colour(model);
  }

  // Switches
  const controls = (run) => [...document.querySelectorAll(`form[data-run="${run}"] :is(input, select)`)];

  function chosen(run) {
    const state = { variant: [] };
    for (const control of controls(run)) {
      const values = (state[control.name] ??= []);
      if (control.type !== "checkbox" || control.checked) values.push(control.value);
    }
    return state;
  }

  function numbers(run, place) {
    const known = (run.decoded = run.decoded || {});
    if (!known[place]) {
      known[place] = new Float32Array(bytes(run.arrays[place]).buffer);
    }
    return known[place];
  }

  // Of a deviation three digits are kept, and a single seed has none.
  const said = (mean, std, seeds) =>
    mean.toFixed(3) + (Number.isNaN(std) ? "" : ` ± ${std.toPrecision(3)}`) + ` (${seeds} seed${seeds === 1 ? "" : "s"})`;

  function columns(run, name, choice) {
    const table = (run.tables[name] || {})[choice];
    if (!table) return null;
    const found = {};
    for (const [column, place] of Object.entries(table)) found[column] = numbers(run, place);
    if (found.std) {
      found.low = found.mean.map((mean, at) => Math.max(0, mean - found.std[at]));
      found.high = found.mean.map((mean, at) => mean + found.std[at]);
      found.said = Array.from(found.mean, (mean, at) => said(mean, found.std[at], found.seeds[at]));
    }
    return found;
  }

  const nothing = (data) => Object.fromEntries(
    Object.entries(data).map(([name, of]) => [name, ["mean", "low", "high", "value"].includes(name) ? Array(of.length).fill(NaN) : of]),
  );

  function show(model, run, state) {
    for (const tag of model.tags || []) {
      if (tag.data) {
        const found = columns(run, tag.data, state[tag.by][0]);
        model.data = found ? { ...model.data, ...found } : nothing(model.data);
      } else if (tag.variant || tag.show) {
        model.visible = Object.entries(tag).every(([name, value]) => !state[name] || state[name].includes(value));
      }
    }
  }

  function around(parts, isVisible) {
    for (const { model } of parts) if ((model.tags || []).some((tag) => tag.around)) model.only_visible = isVisible;
  }

  function update(id) {
    const state = chosen(id);
    const own = drawn.filter(({ run }) => run.id === id);
    if (!state.variant.length) around(own, false); // Bokeh warns of an axis around nothing
    for (const { model, run } of own) show(model, run, state);
    if (state.variant.length) around(own, true);
    for (const details of unfolding(id)) if (details.open) unfold(details);
  }

  // Plots are made when they come near the window.
  async function embed(target) {
    const { run, item } = plots.get(target.id);
    const views = await Bokeh.embed.embed_item(item, target);
    const state = chosen(run.id);
    const own = [...views.roots[0].model.references()].map((model) => ({ model, run }));
    if (!state.variant.length) around(own, false);
    for (const { model } of own) {
      colour(model);
      show(model, run, state);
    }
    drawn.push(...own);
    pointing.watch(target, views.roots[0]);
    keys.pass(target);
    roots.set(target.id, views.roots[0].model);
    target.dataset.drawn = "";
  }

  const roots = new Map(), asked = new Map(); // the plots that are there, and those that are on their way
  function ready(target) {
    if (!asked.has(target.id)) asked.set(target.id, embed(target));
    return asked.get(target.id);
  }

  // Tables of a figure's numbers, made when they are unfolded and again when something else is chosen.
  async function unfold(details) {
    const targets = [...details.closest("figure").querySelectorAll(".plot")];
    await Promise.all(targets.map(ready));
    const { run } = plots.get(targets[0].id), state = chosen(run.id);
    const named = (name) => [...document.querySelector(`form[data-run="${run.id}"] [name=${name}]`)?.options || []].map((one) => [one.value, one.text]);
    const text = (name) => named(name).find(([value]) => value === state[name][0])?.[1];
    const boxes = controls(run.id).filter(({ name }) => name === "variant");
    const made = inTables(details.dataset.figure, {
      plots: targets.map(({ id }) => roots.get(id)),
      titles: targets.map((one) => one.previousElementSibling?.textContent),
      columns: (name, choice) => columns(run, name, choice),
      variants: boxes.map((one) => [one.value, one.parentElement.textContent.trim()]),
      cycles: named("cycle"),
      chosen: text("map_variant"),
      density: text("map_cycle"),
    });
    details.replaceChildren(details.firstElementChild, ...made);
  }
  const unfolding = (run) => [...document.querySelectorAll(`#${run} .numbers`)];

  const plots = new Map();
  for (const run of payload.runs) for (const item of run.plots) plots.set(item.target_id, { run, item });
  const watcher = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (isIntersecting) {
        watcher.unobserve(target);
        ready(target);
      }
    }
  }, { rootMargin: "400px" });

  for (const form of document.querySelectorAll("form[data-run]")) {
    const run = form.dataset.run;
    for (const control of form.elements) {
      if (!control.name) continue;
      const name = `${run} ${control.name} ${control.type === "checkbox" ? control.value : ""}`;
      const known = remembered.get(name);
      if (known !== undefined) control[control.type === "checkbox" ? "checked" : "value"] = known;
      control.addEventListener("change", () => {
        remembered.set(name, control.type === "checkbox" ? control.checked : control.value);
        update(run);
      });
    }
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  scheme.value = remembered.get("scheme") || "auto";
  scheme.addEventListener("change", () => { remembered.set("scheme", scheme.value); setScheme(); });
  dark.addEventListener("change", setScheme);
  setScheme();
  for (const target of document.querySelectorAll(".plot")) watcher.observe(target);
  for (const details of document.querySelectorAll(".numbers")) {
    details.addEventListener("toggle", () => { if (details.open) unfold(details); });
  }

  // Links
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  }
  for (const box of document.querySelectorAll(".scroll, .gaps")) keys.gather(box);
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
  for (const link of document.querySelectorAll(".download a")) link.href = link.closest("figure").querySelector("img").src;

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch { // not allowed: select it, so that the keyboard can
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
  }

  // Paper shows what is folded away on the screen, but for the provenance, which would be most of it.
  const folded = () => [...document.querySelectorAll("details:not(.provenance, .provenance details, .numbers, [open])")];
  let unfolded = [];
  addEventListener("beforeprint", () => { unfolded = folded(); for (const one of unfolded) one.open = true; });
  addEventListener("afterprint", () => { for (const one of unfolded) one.open = false; });

  // A live page looks for its next version, and then shows the same place of it.
  const named = (one) => [
    one.tagName, one.closest("section, header")?.id, one.id, one.name, one.type === "checkbox" ? one.value : "",
    one.getAttribute("href"), one.getAttribute("aria-label"), one.tagName === "DETAILS" ? one.className : "",
    one.tagName === "DETAILS" ? one.firstElementChild.textContent : "",
    ["SUMMARY", "BUTTON"].includes(one.tagName) ? one.textContent : "",
  ].join("|");
  const all = (what) => [...document.querySelectorAll(what)];

  function keepPlace() {
    const active = document.activeElement;
    remembered.set("place", {
      top: scrollY,
      details: Object.fromEntries(all("details").map((one) => [named(one), one.open])),
      boxes: Object.fromEntries(all(".scroll, .gaps").map((one) => [named(one), [one.scrollLeft, one.scrollTop]])),
      focus: active && active !== document.body ? named(active) : null,
    });
  }

  function findPlace() {
    const place = remembered.get("place");
    if (!place) return;
    remembered.set("place", null);
    for (const one of all("details")) one.open = place.details[named(one)] ?? one.open;
    for (const one of all(".scroll, .gaps")) one.scrollTo(...(place.boxes[named(one)] || [0, 0]));
    if (place.focus) {
      const focused = all("a, button, input, select, summary, [tabindex]").find((one) => named(one) === place.focus);
      focused?.focus({ preventScroll: true });
    }
    scrollTo(0, place.top);
  }

  if (payload.live) {
    const [pause, next, stamp] = ["pause", "next", "updated"].map((id) => document.getElementById(id));
    const told = stamp.textContent;
    const same = remembered.get("stamp") === told ? (remembered.get("same") || 0) + 1 : 0;
    const isStale = same >= 3; // loads that brought nothing new
    const every = payload.live * (isStale ? 2 ** Math.min(same - 2, 3) : 1);
    let left = every;
    remembered.set("stamp", told);
    remembered.set("same", same);
    if (isStale) document.getElementById("news").textContent = "No news since";
    findPlace();
    pause.checked = remembered.get("pause") || false;
    pause.addEventListener("change", () => { remembered.set("pause", pause.checked); left = every; });
    const tick = () => {
      const isChoosing = document.activeElement?.tagName === "SELECT"; // its list would close
      next.textContent = pause.checked ? ", paused" : left > 0 || !isChoosing ? `, next in ${left} s` : ", next after this choice";
      if (pause.checked || (left <= 0 && isChoosing)) return;
      if (left-- <= 0) {
        keepPlace();
        location.reload();
      }
    };
    tick();
    setInterval(tick, 1000);
  }
})();
