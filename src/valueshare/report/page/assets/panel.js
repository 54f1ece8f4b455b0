"use strict";
/* Learning curves: one plot, drawn as SVG from packed numbers; all choices are in the address. */
(() => {
  const NONE = 65535;
  const { bytes, smoothed, range, ticks, logTicks, short, minus, exact, quantile, quoted, symlog, colour,
    element, swatch, fill, offer, shape, line, band } = valueshare;
  const box = document.getElementById("panel");
  if (!box) return;
  const part = (name) => box.querySelector(`[data-part="${name}"]`);
  const plot = part("plot"), readout = part("readout"), chips = part("chips"), said = part("said");
  const CHECKS = { seeds: false, bands: true, log: false };  /* boxes, and what they are at first */
  const state = { view: "", metric: "", off: new Set(), on: new Set(), ...CHECKS, smooth: 1, cursor: null };
  let data, numbers, scales, drawn = null;

  /* ---- numbers ---- */
  function load() {
    data = JSON.parse(document.getElementById("curve-data").textContent);
    numbers = new Uint16Array(bytes(data.values));
    scales = new Float64Array(bytes(data.scales));
  }
  function row(curve, index, length) {
    const start = curve[2] + index * length, scale = 2 * (curve[1] + index);
    const low = scales[scale], unit = scales[scale + 1], out = new Array(length);
    for (let i = 0; i < length; i += 1) {
      const value = numbers[start + i];
      out[i] = value === NONE ? NaN : low + unit * value;
    }
    return smoothed(out, state.smooth);
  }
  /* ---- choices ---- */
  const isOn = (variant) => variant.on ? !state.off.has(variant.label) : state.on.has(variant.label);
  function choose(variant, wanted) {
    (wanted ? state.off : state.on).delete(variant.label);
    if (wanted !== variant.on) (wanted ? state.on : state.off).add(variant.label);
  }
  function remember() {
    const words = new URLSearchParams({ view: state.view, metric: state.metric });
    for (const name of state.off) words.append("off", name);
    for (const name of state.on) words.append("on", name);
    for (const [name, first] of Object.entries(CHECKS)) {
      if (state[name] !== first) words.set(name, state[name] ? "1" : "0");
    }
    if (state.smooth > 1) words.set("smooth", String(state.smooth));
    try { history.replaceState(null, "", `#${words}`); } catch { /* then not in the address */ }
  }
  function recall() {
    const words = new URLSearchParams(location.hash.slice(1));
    if (!words.has("view")) return;
    state.view = words.get("view");
    state.metric = words.get("metric") || "";
    state.off = new Set(words.getAll("off"));
    state.on = new Set(words.getAll("on"));
    for (const [name, first] of Object.entries(CHECKS)) {
      state[name] = words.get(name) === (first ? "0" : "1") ? !first : first;
    }
    const window = Number(words.get("smooth"));
    state.smooth = [3, 7, 15].includes(window) ? window : 1;
  }
  function fillChoices() {
    state.view = fill(part("view"), data.views.map((v) => [v.label, v.label]), state.view);
    const view = data.views.find((v) => v.label === state.view);
    const known = data.metrics.filter((metric) => view.curves[metric.name]);
    state.metric = fill(part("metric"), known.map((m) => [m.name, m.label]), state.metric);
    for (const name of Object.keys(CHECKS)) part(name).checked = state[name];
    part("smooth").value = String(state.smooth);
    part("view-field").hidden = data.views.length < 2;
    part("smooth-field").hidden = data.grids[view.grid].length < 20;
    const groups = new Map();
    data.variants.forEach((variant, index) => {
      if (!groups.has(variant.group)) groups.set(variant.group, []);
      groups.get(variant.group).push(index);
    });
    const single = [...groups].filter(([, own]) => own.length === 1).map(([, own]) => own[0]);
    const sets = [...groups].filter(([, own]) => own.length > 1);
    const focused = document.activeElement && document.activeElement.dataset.key;
    chips.replaceChildren(
      ...(single.length ? [chipSet("Algorithm", single, "label")] : []),
      ...sets.map(([name, own]) => chipSet(name, own, "chip")));
    const again = focused && chips.querySelector(`[data-key="${CSS.escape(focused)}"]`);
    if (again) again.focus();
  }
  function chipSet(name, indices, text) {
    const set = element("fieldset", "", { class: "chips" });
    set.append(element("legend", name));
    for (const index of indices) {
      const variant = data.variants[index], chip = element("label", "", { class: "chip" });
      const input = element("input", "", { type: "checkbox", "data-key": variant.label });
      input.checked = isOn(variant);
      input.addEventListener("change", () => { choose(variant, input.checked); redraw(); });
      chip.append(input, swatch(variant), element("span", variant[text]));
      set.append(chip);
    }
    if (indices.length > 2) {
      for (const [word, wanted] of [["all", true], ["none", false]]) {
        const button = element("button", word, { type: "button", "data-key": `${name} ${word}`,
          "aria-label": `${name}: ${word}` });
        button.addEventListener("click", () => {
          indices.forEach((index) => choose(data.variants[index], wanted));
          redraw();
        });
        set.append(button);
      }
    }
    return set;
  }

  /* ---- drawing ---- */
  function visible() {
    const view = data.views.find((v) => v.label === state.view);
    const steps = data.grids[view.grid];
    return { view, steps, curves: (view.curves[state.metric] || [])
      .filter((curve) => isOn(data.variants[curve[0]]))
      .map((curve) => ({ variant: curve[0], count: curve[3],
        mean: row(curve, 0, steps.length), low: row(curve, 1, steps.length),
        high: row(curve, 2, steps.length),
        seeds: state.seeds ? Array.from({ length: curve[4] }, (_, i) =>
          row(curve, 3 + i, steps.length)) : [] })) };
  }
  function redraw() {
    fillChoices();
    draw();
    remember();
  }
  function draw() {
    const { view, steps, curves } = visible();
    const width = Math.max(260, plot.clientWidth), height = width < 480 ? 280 : 400;
    const [low, high] = range(curves, state.bands);
    const sizes = curves.flatMap((c) => c.mean).filter(Number.isFinite).map(Math.abs)
      .sort((a, b) => a - b);
    const bend = state.log ? Math.max(quantile(sizes, 0.25) || 1, 1e-9) : 1;
    const scale = state.log ? symlog(bend) : (value) => value;
    const marks = (state.log ? logTicks(low, high, bend) : ticks(low, high, 6));
    const names = marks.map((mark) => minus(short(mark)));
    const left = 14 + 7 * Math.max(3, ...names.map((name) => name.length)), right = 12;
    const top = 26, bottom = 40;
    const lowest = scale(low), span = scale(high) - lowest || 1;
    const last = steps[steps.length - 1], first = steps[0] === last ? last - 1 : Math.min(steps[0], 0);
    const x = (step) => left + (step - first) / (last - first) * (width - left - right);
    const y = (value) => height - bottom - (scale(value) - lowest) / span * (height - top - bottom);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    svg.append(shape("clipPath", { id: "inside" }));
    svg.firstChild.append(shape("rect", { x: left, y: top - 4, width: width - left - right + 2,
      height: height - top - bottom + 8 }));
    marks.forEach((mark, i) => {
      svg.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
      svg.append(shape("text", { class: "axis", x: left - 6, y: y(mark) + 4, "text-anchor": "end" },
        names[i]));
    });
    for (const mark of ticks(first, last, Math.max(2, Math.floor(width / 110)))) {
      svg.append(shape("text", { class: "axis", x: x(mark), y: height - bottom + 18,
        "text-anchor": x(mark) > width - 30 ? "end" : "middle" }, short(mark)));
    }
    svg.append(shape("text", { class: "what", x: width - right, y: height - 6, "text-anchor": "end" },
      "timesteps"));
    const metric = data.metrics.find((m) => m.name === state.metric);
    const words = [view.label, view.what || (metric ? metric.label : "")];
    if (state.smooth > 1) words.push(`smoothed over ${state.smooth}`);
    svg.append(shape("text", { class: "what", x: left, y: 13 }, words.filter(Boolean).join(" · ")));
    const xs = steps.map(x), inside = shape("g", { "clip-path": "url(#inside)" });
    for (const curve of curves) {
      const { colour: hex, dashed } = data.variants[curve.variant], ink = colour(hex);
      const group = shape("g", { "data-variant": curve.variant });
      if (curve.seeds.length) group.append(shape("path", { class: "seeds", stroke: ink,
        d: curve.seeds.map((own) => line(xs, own.map(y))).join("") }));
      if (state.bands) group.append(shape("path", { class: "band", fill: ink,
        d: band(xs, curve.low.map(y), curve.high.map(y)) }));
      group.append(shape("path", { class: "mean", stroke: ink, d: line(xs, curve.mean.map(y)),
        "stroke-linecap": dashed ? "butt" : "round", ...(dashed && { "stroke-dasharray": "7 3" }) }));
      inside.append(group);
    }
    const cursor = shape("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    svg.append(inside, cursor);
    if (!curves.length) svg.append(shape("text", { class: "what", x: width / 2, y: height / 2,
      "text-anchor": "middle" }, "Nothing is chosen"));
    plot.replaceChildren(svg);
    drawn = { steps, curves, xs, cursor };
    state.cursor = state.cursor === null ? null : Math.min(state.cursor, steps.length - 1);
    plot.setAttribute("aria-label", `${words.join(", ")}: ${curves.length} curves. ` +
      "Left and right arrows read values.");
    point(state.cursor);
  }
  function point(index) {
    state.cursor = index;
    const { steps, curves, xs, cursor } = drawn;
    if (index === null) cursor.setAttribute("visibility", "hidden");
    else {
      cursor.setAttribute("x1", xs[index]);
      cursor.setAttribute("x2", xs[index]);
      cursor.setAttribute("visibility", "visible");
    }
    const rows = curves.map((curve) => {
      let at = index;
      if (at === null) {
        at = steps.length - 1;
        while (at > 0 && Number.isNaN(curve.mean[at])) at -= 1;
      }
      return { curve, value: curve.mean[at], low: curve.low[at], high: curve.high[at],
        step: steps[at] };
    });
    rows.sort((a, b) => (Number.isNaN(a.value) - Number.isNaN(b.value)) || b.value - a.value);
    const items = rows.map(({ curve, value, low, high, step }) => {
      const variant = data.variants[curve.variant], item = element("li");
      const there = !Number.isNaN(value);
      item.append(swatch(variant), element("span", variant.label),
        element("b", there ? minus(exact(value)) : "–", { class: "number" }));
      const more = there && !Number.isNaN(low) ? `[${minus(exact(low))}, ${minus(exact(high))}] · ` : "";
      const early = index === null && step !== steps[steps.length - 1] ? `at ${short(step)} · ` : "";
      item.append(element("small", `${early}${more}${curve.count}`));
      item.addEventListener("pointerenter", () => loud(curve.variant));
      item.addEventListener("pointerleave", () => loud(null));
      return item;
    });
    const title = index === null ? "At the end" : `At ${steps[index].toLocaleString("en")} timesteps`;
    const list = element("ol");
    list.append(...items);
    readout.replaceChildren(element("h3", title), list);
    return `${title}: ` + rows.slice(0, 8).map(({ curve, value }) =>
      `${data.variants[curve.variant].label} ${Number.isNaN(value) ? "nothing" : exact(value)}`)
      .join(", ");
  }
  function loud(variant) {
    plot.classList.toggle("quiet", variant !== null);
    for (const group of plot.querySelectorAll("g[data-variant]")) {
      group.classList.toggle("loud", group.dataset.variant === String(variant));
    }
  }
  function nearest(event) {
    const bounds = plot.getBoundingClientRect();
    const scale = plot.firstChild.viewBox.baseVal.width / bounds.width;
    const at = (event.clientX - bounds.left) * scale;
    return drawn.xs.reduce((best, x, i) =>
      (Math.abs(x - at) < Math.abs(drawn.xs[best] - at) ? i : best), 0);
  }
  function download() {
    const lines = [["view", "metric", "curve", "step", "value", "ci95_low", "ci95_high"]];
    const plain = (value) => (Number.isNaN(value) ? "" : value);
    for (const { variant, mean, low, high } of drawn.curves) {
      drawn.steps.forEach((step, i) => lines.push([quoted(state.view), quoted(state.metric),
        quoted(data.variants[variant].label), step, plain(mean[i]), plain(low[i]), plain(high[i])]));
    }
    offer("curves.csv", lines.map((own) => own.join(",")).join("\n") + "\n");
  }

  /* ---- begin ---- */
  for (const name of ["view", "metric"]) {
    part(name).addEventListener("change", () => { state[name] = part(name).value; redraw(); });
  }
  for (const name of Object.keys(CHECKS)) {
    part(name).addEventListener("change", () => { state[name] = part(name).checked; redraw(); });
  }
  part("smooth").addEventListener("change", () => {
    state.smooth = Number(part("smooth").value);
    redraw();
  });
  for (const [name, by] of [["before", -1], ["after", 1]]) {
    part(name).addEventListener("click", () => {
      const at = data.views.findIndex((v) => v.label === state.view);
      state.view = data.views[(at + by + data.views.length) % data.views.length].label;
      redraw();
    });
  }
  part("download").addEventListener("click", download);
  plot.addEventListener("pointermove", (event) => point(nearest(event)));
  plot.addEventListener("pointerdown", (event) => point(nearest(event)));
  plot.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") point(null);
  });
  plot.addEventListener("keydown", (event) => {
    const end = drawn.steps.length - 1, now = state.cursor === null ? end + 1 : state.cursor;
    const next = { ArrowLeft: Math.max(0, now - 1), ArrowRight: Math.min(end, now + 1), Home: 0,
      End: end, Escape: null }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    said.textContent = point(next);
  });
  document.addEventListener("valueshare:theme", () => { if (drawn) { fillChoices(); draw(); } });
  document.addEventListener("valueshare:data", () => { load(); fillChoices(); draw(); });
  addEventListener("hashchange", () => {
    if (location.hash.includes("view=")) { recall(); redraw(); }
  });
  load();
  recall();
  fillChoices();
  draw();
  let wide = plot.clientWidth;
  new ResizeObserver(() => {
    if (plot.clientWidth !== wide) { wide = plot.clientWidth; draw(); }
  }).observe(plot);
})();
