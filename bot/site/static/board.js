// Sorts, filters and pages a board; what one chose stays in the link. Without it the board stands
// best first. The rows beyond the first ones are loaded when somebody asks for them.
"use strict";
(() => {
  const PAGE = 50;
  const table = document.getElementById("board");
  if (!table) return;
  const body = table.tBodies[0], filters = document.getElementById("filters");
  const pager = document.getElementById("pager"), picked = document.getElementById("picked");
  const first = [...body.rows], plain = table.style.cssText, total = Number(table.dataset.rows);
  const heads = [...table.querySelectorAll("th[data-sort]")];
  const state = (key, otherwise = "") => regatta.state.get(`board.${key}`, otherwise);
  const set = (values) =>
    regatta.state.set(Object.fromEntries(Object.entries(values).map(([key, value]) => [`board.${key}`, value])));
  const chosen = new Set(); // names of runs, those of a row in one string
  let all = null; // of all rows: {html, place, …}

  const load = async () => {
    if (all) return all;
    const parts = await Promise.all(table.dataset.chunks.split(" ").map((path) => regatta.load(path)));
    all = parts.flatMap(({ keys, rows }) => rows.map(([html, ...values]) => {
      const row = { html };
      keys.forEach((key, i) => { row[key] = values[i]; });
      return row;
    }));
    return all;
  };
  const asked = () => ["sort", "down", "text", "tier", "author", "hardware", "front", "page"].some((key) => state(key));
  const fronts = [...document.querySelectorAll("#filter-front option")].map((one) => one.value).filter(Boolean);

  const wanted = (rows) => {
    const words = state("text").toLowerCase().split(/\s+/).filter(Boolean), front = fronts.indexOf(state("front"));
    return rows.filter((row) =>
      words.every((word) => row.text.includes(word)) &&
      ["tier", "author", "hardware"].every((key) => !state(key) || row[key] === state(key)) &&
      (front < 0 || row.fronts[front] !== ""));
  };
  const ordered = (rows) => {
    const key = state("sort", "place"), sign = state("down") ? -1 : 1;
    const missing = (row) => row[key] === null || row[key] === undefined;
    return [...rows].sort((a, b) =>
      missing(a) - missing(b) || sign * ((a[key] ?? 0) - (b[key] ?? 0)) || a.place - b.place);
  };
  const elements = (rows) => {
    const place = document.createElement("template");
    place.innerHTML = rows.map((row) => row.html).join("").replaceAll('href="{root}', `href="${regatta.root}`);
    return [...place.content.children];
  };
  const show = async () => {
    const key = state("sort", "place"), down = state("down") === "1";
    for (const head of heads) {
      if (head.dataset.sort === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    for (const one of filters.querySelectorAll("[data-filter]")) one.value = state(one.dataset.filter);
    let found = total, page = 0;
    if (!asked() && !all) { body.replaceChildren(...first); table.style.cssText = plain; }
    else {
      try {
        const rows = ordered(wanted(await load()));
        found = rows.length;
        page = Math.min(Math.max(Number(state("page", "1")) - 1 || 0, 0), Math.max(Math.ceil(found / PAGE) - 1, 0));
        const shown = rows.slice(page * PAGE, (page + 1) * PAGE);
        const low = Math.min(...shown.map((row) => row.low)), high = Math.max(...shown.map((row) => row.high));
        table.style.setProperty("--from", low);
        table.style.setProperty("--to", high > low ? high : low + 1);
        body.replaceChildren(...elements(shown));
      } catch (error) {
        document.getElementById("count").textContent = error.message;
        return;
      }
    }
    const n = regatta.figure;
    document.getElementById("count").textContent = found === total ? `${n(total)} rows` : `${n(found)} of ${n(total)} rows`;
    pager.hidden = found <= PAGE;
    document.getElementById("page").textContent = `Page ${n(page + 1)} of ${n(Math.max(Math.ceil(found / PAGE), 1))}`;
    const [back, on] = pager.querySelectorAll("button");
    back.disabled = page === 0;
    on.disabled = (page + 1) * PAGE >= found;
    for (const one of body.querySelectorAll("input.pick")) one.checked = chosen.has(one.value);
  };

  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const same = state("sort", "place") === head.dataset.sort, key = head.dataset.sort;
      set({ sort: key === "place" ? "" : key, down: same && !state("down") ? "1" : "", page: "" });
      show();
    });
  }
  filters.hidden = false;
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("input", ({ target }) => {
    if (!target.dataset.filter) return;
    set({ [target.dataset.filter]: target.value, page: "" });
    show();
  });
  pager.addEventListener("click", ({ target }) => {
    if (!target.dataset.step) return;
    const page = Number(state("page", "1")) + Number(target.dataset.step);
    set({ page: page > 1 ? page : "" });
    show().then(() => table.scrollIntoView());
  });
  table.addEventListener("change", ({ target }) => {
    if (!target.classList.contains("pick")) return;
    if (target.checked) chosen.add(target.value);
    else chosen.delete(target.value);
    const names = [...chosen].flatMap((value) => value.split(" ")).map(encodeURIComponent);
    picked.hidden = !chosen.size;
    const link = picked.querySelector("a");
    link.href = `${regatta.root}compare.html#runs=${names.map(encodeURIComponent).join(",")}`;
    link.textContent = `Compare ${chosen.size === 1 ? "the runs of 1 row" : `the runs of ${chosen.size} rows`}`;
  });
  document.addEventListener("regatta:link", show);
  show();
})();
