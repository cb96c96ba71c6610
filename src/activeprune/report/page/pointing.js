"use strict";
// What is said of the points under the mouse or a finger: one list, however many lie at the same place.
const pointing = (() => {
  const REACH = { mouse: 9, touch: 26 }; // pixels from the pointer to a point
  const TOGETHER = 9; // pixels between points that are told of together
  const MOST = 8; // of these
  const box = document.createElement("div");
  box.className = "told";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.body.append(box);

  const hide = () => { box.hidden = true; };
  const says = (renderer) => (renderer.tags || []).find((tag) => tag.says)?.says;

  // The place of a line that is nearest to the pointer, and which of its points is.
  function onLine(xs, ys, { x, y }) {
    let best = null;
    const look = (at, px, py) => {
      const distance = Math.hypot(px - x, py - y);
      if (!best || distance < best.distance) best = { at, x: px, y: py, distance };
    };
    for (let at = 0; at < xs.length; at++) {
      if (Number.isNaN(ys[at])) continue;
      look(at, xs[at], ys[at]);
      const [dx, dy] = [xs[at + 1] - xs[at], ys[at + 1] - ys[at]];
      const share = ((x - xs[at]) * dx + (y - ys[at]) * dy) / (dx * dx + dy * dy);
      if (share > 0 && share < 1) look(share < 0.5 ? at : at + 1, xs[at] + share * dx, ys[at] + share * dy);
    }
    return best ? [best] : [];
  }

  function found(view, renderer, pointer) {
    const { x_scale, y_scale } = view.frame, { glyph, data_source: { data } } = renderer;
    const place = (scale, of) => Array.from(data[of.field], (value) => scale.compute(value));
    const [xs, ys] = [place(x_scale, glyph.x), place(y_scale, glyph.y)];
    if (glyph.type === "Line") return onLine(xs, ys, pointer);
    if (glyph.type === "Rect") { // a cell of a map is 1 by 1
      const [x, y] = [x_scale.invert(pointer.x), y_scale.invert(pointer.y)];
      const at = xs.findIndex((_, i) => Math.abs(data.x[i] - x) <= 0.5 && Math.abs(data.y[i] - y) <= 0.5);
      return at < 0 || Number.isNaN(data.value[at]) ? [] : [{ at, ...pointer, distance: 0 }];
    }
    return xs.map((x, at) => ({ at, x, y: ys[at], distance: Math.hypot(x - pointer.x, ys[at] - pointer.y) }));
  }

  function hits(view, pointer, reach) {
    const { bbox } = view.frame;
    const near = view.model.renderers.filter((one) => one.visible && says(one)).flatMap((renderer) =>
      found(view, renderer, pointer)
        .filter(({ x, y, distance }) => distance <= reach && bbox.contains(x, y))
        .map((hit) => ({ ...hit, renderer })));
    const [first] = [...near].sort((one, other) => one.distance - other.distance);
    return near.filter(({ x, y }) => Math.hypot(x - first.x, y - first.y) <= TOGETHER);
  }

  // "@name" is the value of that column, "@name{3}" the same with three digits after the point.
  const filled = (text, data, at) => text.replace(/@(\w+)(?:\{(\d)\})?/g, (_, name, digits) => {
    const value = data[name][at];
    if (digits !== undefined) return value.toFixed(digits);
    return typeof value === "number" ? String(+value.toFixed(2)) : value;
  });

  const element = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });

  function entry({ renderer, at }) {
    const one = document.createElement("div");
    const look = renderer.tags.find((tag) => tag.colour);
    if (look) one.style.borderColor = `var(--${look.colour.replaceAll("_", "-")})`;
    for (const [name, text] of says(renderer)) {
      const line = document.createElement("p"), value = filled(text, renderer.data_source.data, at);
      if (name) line.append(element("span", `${name} `), element("span", value));
      else line.append(element("b", value));
      one.append(line);
    }
    return one;
  }

  function put(left, top) {
    const { offsetWidth, offsetHeight } = box, edge = 6, width = document.documentElement.clientWidth;
    const above = top - offsetHeight - 14;
    box.style.left = `${scrollX + Math.max(edge, Math.min(left + 14, width - offsetWidth - edge))}px`;
    box.style.top = `${scrollY + (above >= edge ? above : top + 20)}px`;
  }

  function tell(view, event, kind) {
    const canvas = view.canvas_view.el.getBoundingClientRect();
    const pointer = { x: event.clientX - canvas.x, y: event.clientY - canvas.y };
    const near = hits(view, pointer, REACH[kind]);
    if (!near.length) return hide();
    const more = near.length > MOST ? [element("p", `and ${near.length - MOST} more here`)] : [];
    box.replaceChildren(...near.slice(0, MOST).map(entry), ...more);
    box.style.left = box.style.top = "0"; // as wide as its text
    box.hidden = false;
    put(event.clientX, event.clientY);
  }

  document.addEventListener("pointerdown", hide);
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") hide(); });

  function watch(target, view) {
    let kind = "mouse";
    target.addEventListener("pointerdown", ({ pointerType }) => { kind = pointerType === "mouse" ? "mouse" : "touch"; });
    target.addEventListener("click", (event) => tell(view, event, kind));
    target.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") event.buttons ? hide() : tell(view, event, "mouse");
    });
    target.addEventListener("pointerleave", ({ pointerType }) => { if (pointerType === "mouse") hide(); });
  }

  return { watch };
})();
