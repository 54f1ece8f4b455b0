"use strict";
/* The chart, drawn by uPlot: the page's colours, bands, thin lines of seeds, panning, touch and keys. */
valueshare.chart = (() => {
  const { short, minus, exact, quantile, colour, element, swatch } = valueshare;
  const BLANK = { mean: "", "95 % interval": "" };  /* the columns of the legend */
  const FONT = "12px system-ui, sans-serif";

  /* uPlot's log scale; asinh, linear near 0, if there are values that have no logarithm. */
  function logScale(values, share) {
    const range = (u, low, high) => (low === null ? [1, 10]
      : [low - 0.1 * Math.abs(low) || -0.1, high + 0.1 * Math.abs(high) || 0.1]);
    if (values.every((value) => value === null || value > 0)) return { distr: 3, range };
    const sizes = values.filter(Boolean).map(Math.abs).sort((a, b) => a - b);
    return { distr: 4, asinh: 10 ** Math.floor(Math.log10(quantile(sizes, share) || 1)), range };
  }
  /* 0 and powers of ten; where there are few, 2 and 5 times them too. uPlot's choice is wrong for x, and below 1, and
     its asinh scale has marks beyond its ends. */
  function labelled(u, marks, axis) {
    const { min, max } = u.scales[u.axes[axis].scale], inside = marks.map((mark) => mark >= min && mark <= max);
    const first = marks.map((mark) => Number(Math.abs(mark).toExponential(6).split("e")[0]));
    const wanted = first.filter((digit, i) => digit === 1 && inside[i]).length > 2 ? [0, 1] : [0, 1, 2, 5];
    return marks.map((mark, i) => (wanted.includes(first[i]) && inside[i] ? mark : null));
  }
  function axis(plot, scale, more) {
    const { color, borderTopColor } = getComputedStyle(plot), filter = scale.distr && { filter: labelled };
    return { stroke: color, font: FONT, labelFont: FONT, labelSize: 20, ticks: { show: false }, ...filter, ...more,
      grid: { stroke: borderTopColor, width: 1, ...filter },
      values: (u, marks) => marks.map((mark) => (mark === null ? "" : minus(short(mark)))) };
  }
  function seedPath(u, { xs, seeds }) {
    const path = new Path2D();
    for (const values of seeds) {
      let pen = false;
      values.forEach((value, i) => {
        if (value === null) return;
        const at = [u.valToPos(xs[i], "x", true), u.valToPos(value, "y", true)];
        if (!pen) path.moveTo(...at);
        path.lineTo(...at);  /* a single point is a dot */
        pen = true;
      });
    }
    return { stroke: path };
  }
  /* What the y axis must show of seeds: a few runs far away do not flatten the rest. */
  const spread = ({ xs, seeds }) => xs.map((_, i) => {
    const near = seeds.flatMap((own) => own.slice(Math.max(0, i - 1), i + 2));
    const known = near.filter((value) => value !== null).sort((a, b) => a - b);
    return known.length ? quantile(known, i % 2 ? 0.98 : 0.02) : null;
  });
  function seriesOf(curve, bands) {
    const { variant, count } = curve, ink = colour(variant.colour);
    const words = variant.label.split(" ").map((word) => element("span", word, { class: word.length < 16 ? "name" : "" }));
    const label = element("span");
    words[0].prepend(swatch(variant));
    label.append(...words.flatMap((word, i) => (i ? [" ", word] : [word])), element("small", count));
    const aside = { class: "aside", points: { show: false }, values: () => BLANK };
    const values = (u, index, at) => {
      const means = u.data[index] || [];
      const i = at ?? means.findLastIndex((value) => value != null), early = at === null && i < means.length - 1;
      const text = (from) => (u.data[from][i] == null ? "–" : minus(exact(u.data[from][i])));
      if (means[i] == null) return { mean: "–", "95 % interval": "" };
      return { mean: text(index) + (early ? ` at ${short(Number(u.data[0][i].toPrecision(3)))}` : ""),
        "95 % interval": u.data[index - 2][i] == null ? "" : `[${text(index - 2)}, ${text(index - 1)}]` };
    };
    /* As in the figures: a line and its band connect the curve's own values, over steps that have none. */
    const line = { stroke: ink, spanGaps: true };
    return [  /* four series: seeds, low, high, mean */
      { ...aside, stroke: colour(variant.colour, 0.3), cap: "round", paths: (u) => seedPath(u, curve) },
      ...[1, 2].map(() => ({ ...aside, ...line, show: bands, width: 0 })),
      { ...line, label, values, width: 2, dash: variant.dash.map((length) => 2 * length), points: { fill: ink } }];
  }

  /* Shows what lies between these pixels, from left to right and, where `low` is given, from low to high. */
  const show = (u, left, right, low = null, high = null) => u.batch(() => {
    const to = (scale, a, b) => u.setScale(scale, { min: u.posToVal(a, scale), max: u.posToVal(b, scale) });
    if (low !== null) to("y", low, high);
    to("x", left, right);
  });
  function pan(u, event) {
    let { clientX: x, clientY: y } = event;
    const { clientWidth: width, clientHeight: height } = u.over, stop = new AbortController();
    document.addEventListener("mousemove", (now) => {
      const right = x - now.clientX, down = y - now.clientY;
      show(u, right, width + right, height + down, down);
      ({ clientX: x, clientY: y } = now);
    }, stop);
    document.addEventListener("mouseup", () => stop.abort(), stop);
  }
  /* uPlot listens to the mouse alone: the last finger becomes one, the second with shift, which pans. */
  function touch(u) {
    let last;
    const selectNothing = () => u.setSelect({ width: 0, height: 0 }, false);
    for (const [from, to] of [["down", "down"], ["move", "move"], ["up", "up"], ["cancel", "up"]]) {
      u.over.addEventListener(`pointer${from}`, ({ pointerType, pointerId, isPrimary, clientX, clientY }) => {
        if (pointerType === "mouse") return;
        /* Without a movement, uPlot ignores it. */
        const mouse = (kind) => u.over.dispatchEvent(new MouseEvent(`mouse${kind}`,
          { clientX, clientY, movementX: 1, bubbles: true, shiftKey: !isPrimary }));
        if (from === "down") {
          if (!isPrimary) {  /* what the first one has selected is no zoom */
            selectNothing();
            mouse("up");
          }
          last = pointerId;
        }
        if (pointerId !== last) return;
        if (from === "cancel") selectNothing();  /* it scrolls the page */
        mouse(to);
      });
    }
  }

  /* Draws curves ({variant, count, xs, mean, low, high, seeds}) into `plot`, and their values into `legend`. */
  function draw(plot, legend, curves, { x, y, at, height, bands, log, logx, onZoom }) {
    const values = curves.flatMap(({ mean, low, high, seeds }) => [mean, low, high, ...seeds].flat());
    const scales = { x: { time: false, ...(logx && logScale(curves.flatMap(({ xs }) => xs), 0)),
      range: (u, low, high) => [low, high] }, y: log ? logScale(values, 0.25) : {} };
    const tables = curves.map((c) => [c.xs, spread(c), c.low, c.high, c.mean]);
    const options = {
      width: plot.clientWidth, height, scales, padding: [10, 14, 0, 0],
      series: [{}, ...curves.flatMap((curve) => seriesOf(curve, bands))],
      bands: bands ? curves.map(({ variant }, i) => ({ series: [4 * i + 3, 4 * i + 2],
        fill: colour(variant.colour, 0.16) })) : [],
      axes: [axis(plot, scales.x, { label: x, size: 28 }), axis(plot, scales.y, { label: y, size: 58 })],
      focus: { alpha: 0.12 },
      cursor: { y: false, drag: { x: true, y: true, uni: 40, dist: 4 }, focus: { prox: 0, dist: () => Infinity },
        bind: { mousedown: (u, _, zooms) => (event) => {
          if (event.shiftKey) pan(u, event);
          else if (event.button === 0) zooms(event);
        } } },
      legend: { markers: { show: false }, mount: (u, made) => legend.replaceChildren(made) },
      hooks: {
        setScale: [(u, scale) => { if (scale === "x") onZoom(u.scales.x, u.data[0]); }],
        setSeries: [(u, index, { focus }) => {  /* a curve comes forward with its band and seeds */
          if (focus && index) for (const i of [1, 2, 3]) u.series[index - i].alpha = 1;
        }],
        setLegend: [(u) => {
          const title = legend.querySelector("th"), { idx } = u.legend;
          if (title) title.textContent = idx == null ? "At the end" : at(u.data[0][idx]);
        }],
      },
    };
    plot.replaceChildren();
    const u = new uPlot(options, tables.length ? uPlot.join(tables) : [[]], plot);
    u.setLegend({ idx: null });
    /* The curves that are shown are those of the checkboxes. */
    legend.firstChild.addEventListener("click", (event) => event.stopPropagation(), true);
    touch(u);
    return u;
  }
  /* Left and right read values, with shift they pan; plus and minus zoom, 0 shows all. False: another key. */
  function key(u, event) {
    const [first, last] = u.series[0].idxs, now = u.legend.idx ?? last + 1, { clientWidth: width } = u.over;
    const read = (index) => u.setCursor({ left: index === null ? -10 : u.valToPos(u.data[0][index], "x"), top: 10 });
    const go = (by, index) => (event.shiftKey ? show(u, by * width, width + by * width) : read(index));
    const does = {
      ArrowLeft: () => go(-0.1, Math.max(first, now - 1)), ArrowRight: () => go(0.1, Math.min(last, now + 1)),
      Home: () => read(first), End: () => read(last), Escape: () => read(null), 0: () => u.setData(u.data),
      "+": () => show(u, 0.2 * width, 0.8 * width), "-": () => show(u, -width / 3, 4 / 3 * width) }[event.key];
    if (does) does();
    return Boolean(does);
  }
  return { draw, key };
})();
