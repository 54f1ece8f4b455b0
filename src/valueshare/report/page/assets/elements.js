"use strict";
/* What charts and tables need: numbers and their text, visible colours, elements. */
const valueshare = (() => {
  function bytes(text) {
    const bytes = atob(text), out = new Uint8Array(bytes.length);
    for (let i = 0; i < bytes.length; i += 1) out[i] = bytes.charCodeAt(i);
    return out.buffer;
  }
  /* Centred moving average of the values that are there: with half 1, [1, null, 2, 6] -> [1.5, null, 3, 4]. */
  function smoothed(values, half) {
    const known = values.filter((value) => value !== null);
    let at = -1;
    return values.map((own) => {
      if (own === null || half === 0) return own;
      at += 1;
      const near = known.slice(Math.max(0, at - half), at + half + 1);
      return near.reduce((sum, value) => sum + value) / near.length;
    });
  }
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 6 });
  const short = (value) => compact.format(value).replace("K", "k");
  const minus = (text) => text.replace("-", "−");
  const exact = (value) => Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  const quantile = (sorted, share) =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  // As analysis/csv_text.py: no name begins a spreadsheet's formula.
  const removed = "[\\s\\x00-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\u{e0000}-\\u{e01ef}]*";
  const sign = "[=+\\-@\\ufe62\\ufe63\\ufe66\\ufe6b\\uff0b\\uff0d\\uff1d\\uff20]";
  const formula = new RegExp(`^(?='*([\\t\\r\\n]|${removed}${sign}))`, "u");
  const quoted = (text) => `"${String(text).replace(formula, "'").replaceAll('"', '""')}"`;
  /* ---- colours: those of the figures, moved until they are visible on the page ---- */
  const light = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  const luminance = (rgb) => rgb
    .map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  function colour(hex, alpha = 1) {
    let rgb = light(hex);
    if (isDark()) {
      while ((luminance(rgb) + 0.05) / 0.055 < 4.5) rgb = rgb.map((c) => c + 0.08 * (1 - c));
    }
    return `rgb(${rgb.map((c) => Math.round(255 * c)).join(" ")} / ${alpha})`;
  }

  /* ---- elements ---- */
  const element = (name, content = "", attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = content;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const swatch = (variant) => {
    const made = element("span", "", { class: "swatch" }), ink = colour(variant.colour);
    let end = 0;
    const stops = variant.dash.map((length, i) => `${i % 2 ? "transparent" : ink} ${end}px ${end += 2 * length}px`);
    made.style.background = stops.length ? `repeating-linear-gradient(90deg, ${stops})` : ink;
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
  return { bytes, smoothed, short, minus, exact, quantile, quoted, colour, element, swatch, fill, offer };
})();
