"use strict";
/* The page around the curves: theme, sorting, long tables, copying, and following a run. */
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => [...from.querySelectorAll(selector)];

  /* A browser may refuse storage to a file; choices are then not stored, and the page works all the same. */
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* not stored */ } },
  };

  /* Theme: the system's, until the reader chooses. */
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  function themed() {
    if (button) {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    }
    document.dispatchEvent(new Event("valueshare:theme"));
  }
  const kept = store.get("valueshare-theme");
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  if (button) button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store.set("valueshare-theme", root.dataset.theme);
    themed();
  });
  system.addEventListener("change", themed);

  /* Sorting: numbers by what they are, not by how they are written; nothing comes last. */
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.trim();
    if (text === "" || text === "–") return null;
    const number = Number(text.replaceAll(",", ""));
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  }
  function sort(head, direction) {
    const table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex, sign = direction === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [key(row, column), row]);
    rows.sort(([a], [b]) =>
      a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b));
    body.append(...rows.map(([, row]) => row));
    for (const other of head.parentElement.cells) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    }
    head.setAttribute("aria-sort", direction);
  }
  document.addEventListener("click", (event) => {
    const head = event.target.closest("th[aria-sort]");
    if (!head || !event.target.closest("button")) return;
    const now = head.getAttribute("aria-sort");
    const first = head.classList.contains("text") ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    sort(head, now === first ? other : first);
  });

  /* Long tables are made when they are opened. */
  const shown = (value) =>
    value === null ? "–" : typeof value === "number" && !Number.isInteger(value)
      ? String(Number(value.toPrecision(4))) : String(value);
  function build(details) {
    if (details.dataset.built || !details.open) return;
    details.dataset.built = "yes";
    const { columns, rows } = JSON.parse(document.getElementById(details.dataset.rows).textContent);
    const { element } = valueshare;
    const label = element("label", "Show rows with ", { class: "small" });
    const search = element("input", "", { type: "search" });
    const count = element("span", ` ${rows.length} rows`, { class: "small", role: "status" });
    label.append(search);
    const table = element("table"), top = table.createTHead().insertRow();
    const isText = columns.map((_, i) => rows.some((row) => typeof row[i] === "string"));
    columns.forEach((name, i) => {
      const head = element("th", "", { class: isText[i] ? "text" : "", scope: "col", "aria-sort": "none" });
      head.append(element("button", name));
      top.append(head);
    });
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((value, i) => {
        const cell = element("td", shown(value), { class: isText[i] ? "text" : "" });
        if (typeof value === "number") cell.dataset.v = value;
        line.append(cell);
      });
    }
    search.addEventListener("input", () => {
      const wanted = search.value.toLowerCase();
      let visible = 0;
      for (const line of body.rows) {
        line.hidden = !line.textContent.toLowerCase().includes(wanted);
        visible += !line.hidden;
      }
      count.textContent = ` ${visible} rows`;
    });
    const frame = element("div", "", { class: "scroll tall", tabindex: 0, role: "region",
      "aria-label": details.querySelector("summary").textContent });
    frame.append(table);
    details.append(label, count, frame);
  }
  document.addEventListener("toggle", (event) => {
    if (event.target.dataset && event.target.dataset.rows) build(event.target);
  }, true);

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("button[data-copy]");
    if (!copy) return;
    const code = copy.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });

  /* Following a run: ask what is new, and put it in place; choices stay. */
  const live = document.getElementById("live");
  const POLL = 2000;
  const remembered = () => ({
    sorted: $("table[id] th[aria-sort]:not([aria-sort='none'])")
      .map((head) => [head.closest("table").id, head.cellIndex, head.getAttribute("aria-sort")]),
    open: $("details[id][open]").map((details) => details.id),
    focus: document.activeElement ? document.activeElement.id : "",
  });
  function restore({ sorted, open, focus }) {
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) { details.open = true; build(details); }
    }
    for (const [id, column, direction] of sorted) {
      const table = document.getElementById(id);
      if (table && table.tHead.rows[0].cells[column]) {
        sort(table.tHead.rows[0].cells[column], direction);
      }
    }
    const focused = focus && document.getElementById(focus);
    if (focused) focused.focus({ preventScroll: true });
  }
  async function refresh() {
    const answer = await fetch(location.pathname, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const ids = (page) => [...page.querySelectorAll("main > section")].map((s) => s.id).join(" ");
    if (ids(fresh) !== ids(document) || !document.getElementById("panel")) {
      location.reload();  /* another page than before; choices are in the address */
      return;
    }
    const before = remembered(), top = scrollY;
    for (const id of ["head", "verdict", "figures", "tables", "run", "notes"]) {
      const old = document.getElementById(id), now = fresh.getElementById(id);
      if (old && now) old.replaceWith(now);
    }
    for (const now of fresh.querySelectorAll("script[type='application/json']")) {
      const old = document.getElementById(now.id);
      if (old) old.textContent = now.textContent; else document.body.append(now);
    }
    const done = fresh.getElementById("live");
    live.replaceChildren(...done.childNodes);
    live.dataset.version = done.dataset.version;
    restore(before);
    scrollTo({ top, behavior: "instant" });
    document.dispatchEvent(new Event("valueshare:data"));
  }
  /* A clip of the newest agent beside the curves, or a line on why there is none. */
  async function showClip(clip) {
    const place = document.getElementById("clip");
    if (!place || !clip) return;
    const shown = JSON.stringify([clip.number, clip.text]);  /* numbers begin again if watch is started again */
    if (shown !== place.dataset.shown) {
      const { element } = valueshare, figure = element("figure", "", { class: "video" });
      if (clip.number) {
        const answer = await fetch(`clip-${clip.number}.mp4`, { cache: "no-store" });
        if (!answer.ok) return;  /* there is a newer one */
        const reader = new FileReader(), read = new Promise((done) => { reader.onload = done; });
        reader.readAsDataURL(await answer.blob());
        await read;
        const video = element("video", "", { src: reader.result, controls: "", loop: "", "aria-label": clip.text });
        video.muted = true;
        video.autoplay = !matchMedia("(prefers-reduced-motion: reduce)").matches;
        figure.append(video);
      }
      const caption = element("figcaption");
      caption.append(element("span"), element("small"));
      figure.append(caption);
      place.replaceChildren(figure);
      place.dataset.shown = shown;
    }
    const [text, note] = place.querySelector("figcaption").children;
    text.textContent = clip.text;
    note.textContent = clip.note;
  }
  let before = null;  /* the banner's text while the server does not answer */
  async function follow() {
    const text = () => live.querySelector(".state");
    try {
      if (!document.hidden) {
        const answer = await fetch("state.json", { cache: "no-store" });
        const state = await answer.json();
        if (String(state.version) !== live.dataset.version) await refresh();
        else if (before !== null) text().textContent = before;
        before = null;
        live.querySelector(".notice").textContent = state.notice || "";
        live.classList.toggle("idle", Boolean(state.notice));
        await showClip(state.clip);
        live.classList.remove("ended");
      }
    } catch {
      live.classList.add("ended");
      before ??= text().textContent;
      text().textContent = "No longer followed: the last state is shown. Start valueshare watch again to go on.";
    }
    setTimeout(follow, POLL);
  }

  themed();
  if (live) setTimeout(follow, POLL);
})();
