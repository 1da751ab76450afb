// Sorts, filters and pages tables; what one chose stays in the link. Without it a table stands as it
// was written. The rows beyond its first ones are loaded when somebody asks for them.
"use strict";
(() => {
  const PAGE = 50;
  const picked = document.getElementById("picked"), chosen = new Set();

  const prepare = (table) => {
    const id = table.id, body = table.tBodies[0], total = Number(table.dataset.rows);
    const first = [...body.rows], plain = table.style.cssText;
    const filters = document.querySelector(`form[data-for="${id}"]`);
    const fields = [...(filters?.querySelectorAll("[data-filter]") ?? [])];
    const count = filters?.querySelector("[role=status]");
    const pager = document.querySelector(`nav[data-for="${id}"]`);
    const heads = [...table.querySelectorAll("th[data-sort]")];
    const usual = table.dataset.sorted; // the column by which the rows were written
    const state = (key, otherwise = "") => regatta.state.get(`${id}.${key}`, otherwise);
    const set = (values) =>
      regatta.state.set(Object.fromEntries(Object.entries(values).map(([key, value]) => [`${id}.${key}`, value])));
    let all = null; // of all rows: {html, …}

    const load = async () => {
      if (all) return all;
      const parts = await Promise.all(table.dataset.chunks.split(" ").map((path) => regatta.load(path)));
      all = parts.flatMap(({ keys, rows }) => rows.map(([html, ...values]) => {
        const row = { html };
        keys.forEach((key, i) => { row[key] = values[i]; });
        return row;
      })).map((row, place) => ({ ...row, order: place }));
      return all;
    };
    const keys = ["sort", "down", "page", ...fields.map((field) => field.dataset.filter)];
    const asked = () => keys.some((key) => state(key));
    const fits = (row, key, value) => {
      if (!value) return true;
      if (key === "text") return value.toLowerCase().split(/\s+/).every((word) => row.text.includes(word));
      return Array.isArray(row[key]) ? row[key].includes(value) : String(row[key]) === value;
    };
    const wanted = (rows) =>
      rows.filter((row) => fields.every(({ dataset: { filter } }) => fits(row, filter, state(filter))));
    const ordered = (rows) => {
      const key = state("sort", usual), sign = state("down") ? -1 : 1;
      const missing = (row) => row[key] === null || row[key] === undefined;
      const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
      return [...rows].sort((a, b) => missing(a) - missing(b)
        || (missing(a) ? 0 : sign * compare(a[key], b[key])) || a.order - b.order);
    };
    const elements = (rows) => {
      const place = document.createElement("template");
      place.innerHTML = rows.map((row) => row.html).join("").replaceAll('href="{root}', `href="${regatta.root}`);
      return [...place.content.children];
    };
    const ends = (low, high) => { // in the heading of the pictures
      for (const [name, value] of [["low", low], ["high", high]]) {
        const place = table.querySelector(`[data-end="${name}"]`);
        if (place) place.textContent = value.toFixed(3);
      }
    };
    const fill = (rows) => {
      if (rows.length && "low" in rows[0]) { // the scale on which spreads are drawn
        const known = rows.filter((row) => row.low !== null);
        const low = known.length ? Math.min(...known.map((row) => row.low)) : 0;
        const high = known.length ? Math.max(...known.map((row) => row.high)) : 1;
        table.style.setProperty("--from", low);
        const end = high > low ? high : low + 1;
        table.style.setProperty("--to", end);
        ends(low, end);
      }
      body.replaceChildren(...elements(rows));
    };
    let turn = 0;
    const show = async () => {
      const mine = (turn += 1), key = state("sort", usual), down = state("down") === "1";
      for (const head of heads) {
        const falls = "falls" in head.dataset;
        if (head.dataset.sort === key) head.setAttribute("aria-sort", down === falls ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      }
      for (const one of fields) if (document.activeElement !== one) one.value = state(one.dataset.filter);
      let found = total, page = 0;
      if (!asked()) {
        body.replaceChildren(...first);
        table.style.cssText = plain;
        ends(...["--from", "--to"].map((name) => Number(table.style.getPropertyValue(name))));
      } else {
        try {
          const rows = ordered(wanted(await load()));
          if (mine !== turn) return;
          found = rows.length;
          page = Math.min(Math.max(Number(state("page", "1")) - 1 || 0, 0), Math.max(Math.ceil(found / PAGE) - 1, 0));
          fill(rows.slice(page * PAGE, (page + 1) * PAGE));
        } catch (error) {
          if (count) count.textContent = error.message;
          return;
        }
      }
      const n = regatta.figure, rows = total === 1 ? "row" : "rows";
      if (count) count.textContent = found === total ? `${n(total)} ${rows}` : `${n(found)} of ${n(total)} ${rows}`;
      if (pager) {
        pager.hidden = found <= PAGE;
        pager.querySelector("span").textContent = `Page ${n(page + 1)} of ${n(Math.max(Math.ceil(found / PAGE), 1))}`;
        const [back, on] = pager.querySelectorAll("button");
        back.disabled = page === 0;
        on.disabled = (page + 1) * PAGE >= found;
      }
      for (const one of body.querySelectorAll("input.pick")) one.checked = chosen.has(one.value);
    };

    for (const head of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const key = head.dataset.sort, same = state("sort", usual) === key;
        set({ sort: key === usual ? "" : key, down: same && !state("down") ? "1" : "", page: "" });
        show();
      });
    }
    if (filters) filters.hidden = false;
    filters?.addEventListener("focusin", () => load().catch(() => {}), { once: true });
    filters?.addEventListener("submit", (event) => event.preventDefault());
    filters?.addEventListener("input", ({ target }) => {
      if (!target.dataset.filter) return;
      set({ [target.dataset.filter]: target.value.trim(), page: "" });
      show();
    });
    pager?.addEventListener("click", ({ target }) => {
      if (!target.dataset.step) return;
      const page = Number(state("page", "1")) + Number(target.dataset.step);
      set({ page: page > 1 ? page : "" });
      show().then(() => table.scrollIntoView());
    });
    table.addEventListener("change", ({ target }) => {
      if (!target.classList.contains("pick")) return;
      if (target.checked) chosen.add(target.value);
      else chosen.delete(target.value);
      compare();
    });
    document.addEventListener("regatta:link", show);
    show();
  };
  const compare = () => {
    if (!picked) return;
    const names = [...chosen].flatMap((value) => value.split(" ")).map(encodeURIComponent);
    const link = picked.querySelector("a");
    picked.hidden = !chosen.size;
    link.href = `${regatta.root}compare.html#runs=${names.map(encodeURIComponent).join(",")}`;
    link.textContent = `Compare ${chosen.size === 1 ? "the runs of 1 row" : `the runs of ${chosen.size} rows`}`;
  };
  document.querySelectorAll("table[data-chunks]").forEach(prepare);
})();
