"use strict";
/* Learning curves: choices and the chart of what is chosen, from packed numbers; all choices are in the address. */
(() => {
  const NONE = 65535;
  const CLOCKS = [["seconds", 1], ["minutes", 60], ["hours", 3600]];  /* units of wall clock */
  const { bytes, smoothed, quoted, element, swatch, fill, offer, chart } = valueshare;
  const box = document.getElementById("panel");
  if (!box) return;
  const part = (name) => box.querySelector(`[data-part="${name}"]`);
  const plot = part("plot"), readout = part("readout"), chips = part("chips"), said = part("said");
  /* Boxes, and what they are at first. */
  const CHECKS = { seeds: false, bands: true, log: false, logx: false, clock: false };
  const state = { view: "", metric: "", off: new Set(), on: new Set(), ...CHECKS, smooth: "1", zoom: null };
  let data, numbers, scales, drawn = null, writing;

  /* ---- numbers ---- */
  function load() {
    data = JSON.parse(document.getElementById("curve-data").textContent);
    numbers = new Uint16Array(bytes(data.values));
    scales = new Float64Array(bytes(data.scales));
  }
  function row(curve, index, length, half = (state.smooth - 1) / 2) {
    const start = curve[2] + index * length, scale = 2 * (curve[1] + index);
    const low = scales[scale], unit = scales[scale + 1], out = new Array(length);
    for (let i = 0; i < length; i += 1) {
      const value = numbers[start + i];
      out[i] = value === NONE ? null : low + unit * value;
    }
    return smoothed(out, half);
  }
  /* ---- choices ---- */
  const isOn = (variant) => variant.on ? !state.off.has(variant.label) : state.on.has(variant.label);
  /* The runs of a view that can be ticked: several, or none. */
  function runsOf(view) {
    const runs = new Set(Object.values(view.curves).flat().map((curve) => data.variants[curve[0]].run));
    const found = data.runs.filter((_, i) => runs.has(i));
    return found.length > 1 ? found : [];
  }
  const isChosen = (variant) => isOn(data.variants[variant.of] || variant);
  /* A curve of one run is shown if that run is ticked; one of all runs together, if none is. */
  const isShown = (variant, runs) => isChosen(variant) &&
    (variant.run === undefined ? !runs.some(isOn) : !runs.length || isOn(data.runs[variant.run]));
  function choose(variant, wanted) {
    (wanted ? state.off : state.on).delete(variant.label);
    if (wanted !== variant.on) (wanted ? state.on : state.off).add(variant.label);
  }
  function storeInUrl() {
    const words = new URLSearchParams({ view: state.view, metric: state.metric });
    for (const name of state.off) words.append("off", name);
    for (const name of state.on) words.append("on", name);
    for (const [name, first] of Object.entries(CHECKS)) {
      if (state[name] !== first) words.set(name, state[name] ? "1" : "0");
    }
    if (state.smooth > 1) words.set("smooth", state.smooth);
    if (state.zoom) words.set("zoom", state.zoom.join(" "));
    try { history.replaceState(null, "", `#${words}`); } catch { /* then not in the address */ }
  }
  function readUrl() {
    const words = new URLSearchParams(location.hash.slice(1));
    if (!words.has("view")) return;
    state.view = words.get("view");
    state.metric = words.get("metric") || "";
    state.off = new Set(words.getAll("off"));
    state.on = new Set(words.getAll("on"));
    for (const [name, first] of Object.entries(CHECKS)) {
      state[name] = words.get(name) === (first ? "0" : "1") ? !first : first;
    }
    state.smooth = ["3", "7", "15"].find((window) => window === words.get("smooth")) || "1";
    const ends = (words.get("zoom") || "").split(" ").map(Number);
    state.zoom = ends.length === 2 && ends[0] < ends[1] ? ends : null;
  }
  function fillChoices() {
    state.view = fill(part("view"), data.views.map((v) => [v.label, v.label]), state.view);
    const view = data.views.find((v) => v.label === state.view);
    const known = data.metrics.filter((metric) => view.curves[metric.name]);
    state.metric = fill(part("metric"), known.map((m) => [m.name, m.label]), state.metric);
    for (const name of Object.keys(CHECKS)) part(name).checked = state[name];
    part("smooth").value = state.smooth;
    part("view-field").hidden = data.views.length < 2;
    part("clock-field").hidden = !view.clock;
    part("smooth-field").hidden = data.grids[view.grid].length < 20;
    const runs = runsOf(view), variants = data.variants.filter((variant) => variant.of === undefined);
    const groups = [...Map.groupBy(variants, (variant) => variant.group)];
    const single = groups.filter(([, own]) => own.length === 1).map(([, own]) => own[0]);
    const sets = groups.filter(([, own]) => own.length > 1);
    const focused = document.activeElement && document.activeElement.dataset.key;
    chips.replaceChildren(
      ...(runs.length ? [chipSet(runs[0].on ? "Runs" : "Single runs", runs, "chip")] : []),
      ...(single.length ? [chipSet("Algorithm", single, "label")] : []),
      ...sets.map(([name, own]) => chipSet(name, own, "chip")));
    const again = focused && chips.querySelector(`[data-key="${CSS.escape(focused)}"]`);
    if (again) again.focus();
  }
  function chipSet(name, variants, text) {
    const set = element("fieldset", "", { class: "chips" });
    set.append(element("legend", name));
    for (const variant of variants) {
      const chip = element("label", "", { class: "chip" });
      const input = element("input", "", { type: "checkbox", "data-key": variant.label });
      input.checked = isOn(variant);
      input.addEventListener("change", () => { choose(variant, input.checked); redraw(); });
      chip.append(input, ...(variant.colour ? [swatch(variant)] : []), element("span", variant[text]));
      set.append(chip);
    }
    if (variants.length > 2) {
      for (const [word, wanted] of [["all", true], ["none", false]]) {
        const button = element("button", word, { type: "button", "data-key": `${name} ${word}`,
          "aria-label": `${name}: ${word}` });
        button.addEventListener("click", () => { variants.forEach((own) => choose(own, wanted)); redraw(); });
        set.append(button);
      }
    }
    return set;
  }

  /* ---- drawing ---- */
  function visible() {
    const view = data.views.find((v) => v.label === state.view), steps = data.grids[view.grid];
    const isClock = state.clock && view.clock, length = steps.length;
    const times = new Map((isClock || []).map((entry) => [entry[0], row(entry, 0, length, 0)]));
    const [unit, size] = CLOCKS.findLast(([, own]) => own <= Math.max(1, ...[...times.values()].flat())) || CLOCKS[0];
    const runs = runsOf(view);
    const curves = (view.curves[state.metric] || [])
      .filter((curve) => isShown(data.variants[curve[0]], runs) && (!isClock || times.has(curve[0])))
      .map((curve) => {
        const xs = isClock ? times.get(curve[0]) : steps, known = xs.map((_, i) => i).filter((i) => xs[i] !== null);
        const kept = (index) => { const own = row(curve, index, length); return known.map((i) => own[i]); };
        return { variant: data.variants[curve[0]], count: curve[3], steps: known.map((i) => steps[i]),
          xs: known.map((i) => (isClock ? xs[i] / size : xs[i])), mean: kept(0), low: kept(1), high: kept(2),
          seeds: state.seeds ? Array.from({ length: curve[4] }, (_, i) => kept(3 + i)) : [] };
      });
    return { view, curves, x: isClock ? `${unit} of training (whole population)` : "timesteps", unit: isClock ? unit : "timesteps" };
  }
  function redraw() {
    fillChoices();
    draw();
    storeInUrl();
  }
  const height = () => (plot.clientWidth < 480 ? 280 : 400);
  function draw() {
    const { view, curves, x, unit } = visible(), { zoom, bands, log, logx } = state;
    const metric = data.metrics.find((m) => m.name === state.metric);
    const y = (view.what || (metric ? metric.label : "")) + (state.smooth > 1 ? `, smoothed over ${state.smooth}` : "");
    if (drawn) drawn.chart.destroy();
    drawn = { curves, chart: chart.draw(plot, readout, curves, { x, y, height: height(), bands, log, logx, onZoom,
      at: (value) => `At ${Number(value.toPrecision(9)).toLocaleString("en")} ${unit}` }) };
    plot.chart = drawn.chart;  /* for the console, and for tests */
    if (zoom && curves.some(({ xs }) => xs.some((own) => own >= zoom[0] && own <= zoom[1]))) {
      drawn.chart.setScale("x", { min: zoom[0], max: zoom[1] });
    }
    plot.classList.toggle("empty", !curves.length);
    showVideos(view.env);
    plot.setAttribute("aria-label", `${view.label}, ${y}: ${curves.length} curves. ` +
      "Left and right arrows read values, with shift they pan; plus and minus zoom, 0 shows all.");
  }
  /* The videos of the agents whose curves are shown; those that are there already play on. */
  function showVideos(env) {
    const there = new Map([...part("videos").children].map((figure) => [figure.firstChild.src, figure]));
    part("hint").hidden = !data.playable || data.videos.length > 0;
    const found = data.videos.filter((own) => own.env === env && isChosen(data.variants[own.variant]));
    part("videos").replaceChildren(...found.map(({ src, label }) => {
      const figure = element("figure", "", { class: "video" }), isImage = src.startsWith("data:image/");
      figure.append(isImage ? element("img", "", { src, alt: label })
        : element("video", "", { src, controls: "", loop: "", "aria-label": label }), element("figcaption", label));
      return there.get(src) || figure;
    }));
  }
  function onZoom({ min, max }, xs) {
    const next = min > xs[0] || max < xs[xs.length - 1] ? [min, max] : null;
    if (String(next) === String(state.zoom)) return;
    state.zoom = next;
    clearTimeout(writing);
    writing = setTimeout(storeInUrl, 300);
  }
  function download() {
    const lines = [["view", "metric", "curve", "step", "value", "ci95_low", "ci95_high"]];
    for (const { variant, steps, mean, low, high } of drawn.curves) {
      steps.forEach((step, i) => lines.push([quoted(state.view), quoted(state.metric), quoted(variant.label), step,
        mean[i] ?? "", low[i] ?? "", high[i] ?? ""]));
    }
    offer("curves.csv", lines.map((own) => own.join(",")).join("\n") + "\n");
  }

  /* ---- begin ---- */
  for (const name of ["view", "metric", "smooth"]) {
    part(name).addEventListener("change", () => { state[name] = part(name).value; redraw(); });
  }
  for (const name of Object.keys(CHECKS)) {
    part(name).addEventListener("change", () => {
      Object.assign(state, { [name]: part(name).checked }, name === "clock" && { zoom: null });
      redraw();
    });
  }
  for (const [name, by] of [["before", -1], ["after", 1]]) {
    part(name).addEventListener("click", () => {
      const at = data.views.findIndex((v) => v.label === state.view);
      state.view = data.views[(at + by + data.views.length) % data.views.length].label;
      redraw();
    });
  }
  part("download").addEventListener("click", download);
  part("reset").addEventListener("click", () => drawn.chart.setData(drawn.chart.data));
  plot.addEventListener("keydown", (event) => {
    if (!chart.key(drawn.chart, event)) return;
    event.preventDefault();
    said.textContent = readout.innerText;
  });
  document.addEventListener("valueshare:theme", () => { if (drawn) { fillChoices(); draw(); } });
  document.addEventListener("valueshare:data", () => { load(); fillChoices(); draw(); });
  addEventListener("hashchange", () => { if (location.hash.includes("view=")) { readUrl(); redraw(); } });
  load();
  readUrl();
  fillChoices();
  draw();
  new ResizeObserver(() => {
    if (plot.clientWidth !== drawn.chart.width) drawn.chart.setSize({ width: plot.clientWidth, height: height() });
  }).observe(plot);
})();
