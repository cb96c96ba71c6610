"use strict";
// The numbers that a figure draws, as tables: for those who have no pointer, or want to copy them.
const inTables = (() => {
  const LAST = "at the last epoch", OF_BEST = "at the best epoch, where the mean of the validation accuracy is highest";
  const whole = (value) => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  const tagged = (model, name) => (model.tags || []).find((tag) => name in tag);
  const last = (found, column = "said") => (found ? Array.from(found[column]).at(-1) : "–");

  function cost({ plots: [weights, operations] }) {
    const means = (plot) => plot.renderers.filter((one) => tagged(one, "says")?.says.some(([name]) => name === "mean"));
    const others = means(operations);
    const rows = means(weights).flatMap((one, place) => {
      const { x, density, said } = one.data_source.data, uses = others[place].data_source.data.x;
      const [[, label]] = tagged(one, "says").says;
      return Array.from(x, (amount, at) => [label, density[at], whole(amount), whole(uses[at]), said[at]]);
    });
    return [{ title: "Test accuracy and cost", head: ["variant", "λ", "alive weights", "multiply-adds", "test accuracy"], rows }];
  }

  // A row for each variant and density that there are curves of.
  function curves({ variants, cycles, columns }, names, told) {
    return variants.flatMap(([variant, label]) => cycles.flatMap(([cycle, density]) => {
      const found = names.map((name) => columns(`${name}/${variant}`, cycle));
      return found.some(Boolean) ? [[label, density, ...told(found)]] : [];
    }));
  }

  function learning(known) {
    const names = ["training loss", "validation accuracy (%)"];
    const rows = curves(known, names, ([loss, accuracy]) => {
      const best = accuracy ? accuracy.mean.indexOf(Math.max(...accuracy.mean)) : -1;
      return [last(accuracy || loss, "x"), last(loss), last(accuracy), ...(best < 0 ? ["–", "–"] : [accuracy.x[best], accuracy.said[best]])];
    });
    const head = ["variant", "λ", "last epoch", "training loss there", "validation accuracy there (%)", "best epoch", "validation accuracy there (%)"];
    return [{ title: `Curves ${LAST}, and ${OF_BEST}`, head, rows }];
  }

  function dead(known) {
    const names = ["dynamic DNR, units (%)", "dynamic DNR, channels (%)"];
    const rows = curves(known, names, (found) => [last(found.find(Boolean), "x"), ...found.map((one) => last(one))]);
    return [{ title: `Dead neurons ${LAST}`, head: ["variant", "λ", "last epoch", ...names], rows }];
  }

  const rounded = (value) => (Number.isNaN(value) || value == null ? "–" : value.toFixed(2));

  function layers({ plots, titles, chosen }) {
    return plots.map((plot, place) => {
      const { layer, density, value } = plot.renderers.find((one) => one.glyph.type === "Rect").data_source.data;
      const names = [...new Set(layer)], count = layer.length / names.length, heads = density.slice(0, count);
      const rows = names.map((name, row) => [name, ...heads.map((_, at) => rounded(value[row * count + at]))]);
      return { title: `${titles[place]} of ${chosen}, by λ`, head: ["layer", ...heads], rows };
    });
  }

  function profiles({ plots, titles, density }) {
    return plots.map((plot, place) => {
      const lines = plot.renderers.filter((one) => tagged(one, "says"));
      const rows = Array.from(lines[0].data_source.data.layer, (name, at) => [name, ...lines.map((one) => rounded(one.data_source.data.mean[at]))]);
      return { title: `${titles[place]} at λ ${density}`, head: ["layer", ...lines.map((one) => tagged(one, "says").says[0][1])], rows };
    });
  }

  const makers = { "size-and-operations": cost, "learning-curves": learning, "dead-neurons-in-training": dead, layers, "layer-profiles": profiles };

  function cell(tag, text, scope) {
    const made = Object.assign(document.createElement(tag), { textContent: text });
    if (scope) made.scope = scope;
    else made.className = "num";
    return made;
  }

  function table({ title, head, rows }) {
    const box = document.createElement("div"), made = document.createElement("table");
    Object.assign(box, { className: rows.length > 24 ? "scroll tall" : "scroll", tabIndex: 0, ariaLabel: title });
    box.setAttribute("role", "region");
    made.createCaption().append(Object.assign(document.createElement("span"), { textContent: title }));
    made.createTHead().insertRow().append(...head.map((text) => cell("th", text, "col")));
    const body = made.createTBody();
    for (const [first, ...others] of rows) body.insertRow().append(cell("th", first, "row"), ...others.map((text) => cell("td", text)));
    box.append(made);
    return box;
  }

  return (name, known) => makers[name](known).map(table);
})();
