"use strict";
/* What drawing needs: numbers and their text, ticks, colours that can be seen, elements, paths. */
const valueshare = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  function bytes(text) {
    const letters = atob(text), out = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i += 1) out[i] = letters.charCodeAt(i);
    return out.buffer;
  }
  function smoothed(values, window) {
    if (window < 2) return values;
    const half = (window - 1) / 2;
    return values.map((own, i) => {
      if (Number.isNaN(own)) return own;
      let sum = 0, count = 0;
      for (let j = Math.max(0, i - half); j <= Math.min(values.length - 1, i + half); j += 1) {
        if (!Number.isNaN(values[j])) { sum += values[j]; count += 1; }
      }
      return sum / count;
    });
  }
  function ticks(low, high, most) {
    const rough = (high - low) / most, size = 10 ** Math.floor(Math.log10(rough));
    const unit = size * [1, 2, 2.5, 5, 10].find((times) => times * size >= rough);
    const out = [];
    for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high + unit * 1e-9; i += 1) {
      out.push(i * unit);
    }
    return out;
  }
  const short = (value) => {
    const size = Math.abs(value);
    for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= unit) return `${Number((value / unit).toPrecision(4))}${letter}`;
    }
    return String(Number(value.toPrecision(4)));
  };
  const minus = (text) => text.replace("-", "−");
  const exact = (value) => Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  const quantile = (sorted, share) =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  // As analysis/csv_text.py: no name begins a spreadsheet's formula.
  const quoted = (text) =>
    `"${String(text).replace(/^(?='*[=+\-@\t\r\n])/, "'").replaceAll('"', '""')}"`;
  function range(curves, withBands) {
    const all = [];
    for (const curve of curves) {
      all.push(...curve.mean);
      if (withBands) all.push(...curve.low, ...curve.high);
      if (curve.seeds.length) {  /* a few runs far away do not flatten the rest */
        const values = curve.seeds.flat().filter((v) => !Number.isNaN(v)).sort((a, b) => a - b);
        all.push(quantile(values, 0.02), quantile(values, 0.98));
      }
    }
    const finite = all.filter((value) => Number.isFinite(value));
    if (!finite.length) return [0, 1];
    const low = finite.reduce((a, b) => Math.min(a, b)), high = finite.reduce((a, b) => Math.max(a, b));
    const room = 0.05 * (high - low) || Math.abs(high) * 0.1 || 1;
    return [low - room, high + room];
  }
  /* Straight near 0, logarithmic beyond: large values of both signs, and small ones too. */
  const symlog = (bend) => (value) => Math.sign(value) * Math.log10(1 + Math.abs(value) / bend);
  function logTicks(low, high, bend) {
    const out = [0];
    const from = Math.ceil(Math.log10(bend));
    for (let power = from; power < 15; power += 1) out.push(10 ** power, -(10 ** power));
    return out.filter((mark) => mark >= low && mark <= high).sort((a, b) => a - b);
  }

  /* ---- colours: those of the figures, moved until they can be seen on the page ---- */
  const light = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  const luminance = (rgb) => rgb
    .map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  function colour(hex) {
    let rgb = light(hex);
    if (isDark()) {
      while ((luminance(rgb) + 0.05) / 0.055 < 4.5) rgb = rgb.map((c) => c + 0.08 * (1 - c));
    }
    return `rgb(${rgb.map((c) => Math.round(255 * c)).join(" ")})`;
  }

  /* ---- elements ---- */
  const element = (name, content = "", attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = content;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const swatch = (variant) => {
    const made = element("span", "", { class: variant.dashed ? "swatch dashed" : "swatch" });
    made.style.borderColor = colour(variant.colour);
    return made;
  };
  function fill(select, items, wanted) {
    select.replaceChildren(...items.map(([value, label]) => element("option", label, { value })));
    select.value = items.some(([value]) => value === wanted) ? wanted : (items[0] || [""])[0];
    return select.value;
  }
  function offer(name, text) {
    const link = element("a", "", { download: name });
    link.href = URL.createObjectURL(new Blob([text]));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /* ---- shapes ---- */
  const shape = (name, attributes, content) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (content !== undefined) made.textContent = content;
    return made;
  };
  function line(xs, ys) {
    let path = "", pen = false;
    for (let i = 0; i < xs.length; i += 1) {
      if (Number.isNaN(ys[i])) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
      /* A point without neighbours is a dot: a line of no length with round ends. */
      if (!pen && !(ys[i + 1] === ys[i + 1] && i + 1 < xs.length)) path += "h0.01";
      pen = true;
    }
    return path;
  }
  function band(xs, low, high) {
    const known = xs.map((_, i) => i).filter((i) => !Number.isNaN(low[i]) && !Number.isNaN(high[i]));
    if (known.length < 2) return "";
    const point = (ys) => (i) => `${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
    return `M${known.map(point(high)).join("L")}L${known.reverse().map(point(low)).join("L")}Z`;
  }
  return { bytes, smoothed, range, ticks, logTicks, short, minus, exact, quantile, quoted, symlog, colour,
    element, swatch, fill, offer, shape, line, band };
})();
