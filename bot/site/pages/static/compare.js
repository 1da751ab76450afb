// Puts any runs side by side: #runs=<execution>.<arm>.s<seed>,… says which.
"use strict";
(() => {
  const NAMES = "compare.names.js", MOST_SHOWN = 30, MOST_RUNS = 24;
  const by = (id) => document.getElementById(id);
  const add = by("add"), pick = by("pick"), figure = document.querySelector("figure[data-chart]");
  let names = []; // [name, title], of all runs of the lab

  // Names may hold a comma themselves (`a=1,b=2`), so each is encoded once more.
  const wanted = () => regatta.state.get("runs").split(",").filter(Boolean).map((one) => {
    try { return decodeURIComponent(one); } catch { return one; }
  });
  const want = (list) => {
    regatta.state.set({ runs: [...new Set(list)].map(encodeURIComponent).join(",") });
    return show();
  };
  const say = (words) => { by("said").textContent = words; };
  const element = (tag, words = "", look = "") => {
    const made = document.createElement(tag);
    made.textContent = words;
    if (look) made.className = look;
    return made;
  };

  const label = (runs, run) => {
    const one = new Set(runs.map((other) => other.title)).size === 1;
    const alone = runs.filter((other) => other.arm === run.arm && other.seed === run.seed).length === 1;
    const name = `${run.arm}, seed ${run.seed}`;
    return one && alone ? name : `${name} · ${run.title} (${run.name.slice(0, 5)})`;
  };
  const chosen = (runs, missing) => {
    by("chosen").replaceChildren(...[...runs.map((run) => [run.name, label(runs, run), run.page]),
      ...missing.map((name) => [name, `${name} (not found)`, ""])].map(([name, words, page]) => {
      const item = element("li"), drop = element("button", "×");
      if (page) {
        const link = element("a", words);
        link.href = regatta.root + page.split("/").map(encodeURIComponent).join("/");
        item.append(link);
      } else item.append(words);
      drop.type = "button";
      drop.setAttribute("aria-label", `Remove ${words}`);
      drop.addEventListener("click", () => {
        want(wanted().filter((other) => other !== name)).then(() => pick.focus());
      });
      item.append(" ", drop);
      return item;
    }));
  };
  const differences = (runs) => {
    const part = (run) => ({ ...run.figures, ...run.config });
    const keys = [...new Set(runs.flatMap((run) => Object.keys(part(run))))];
    const values = (key) => runs.map((run) => part(run)[key] ?? null);
    const differ = keys.filter((key) => new Set(values(key).map(String)).size > 1);
    const head = element("tr");
    head.append(element("th", ""), ...runs.map((run, i) => {
      const cell = element("th", "", `n run c${i % 7}`);
      cell.append(element("span", label(runs, run)));
      cell.scope = "col";
      return cell;
    }));
    head.firstChild.scope = "col";
    head.firstChild.append(element("span", "Key", "hidden"));
    const table = by("differences");
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...differ.map((key) => {
      const line = element("tr"), name = element("th");
      name.scope = "row";
      name.append(element("code", key));
      line.append(name, ...values(key).map((value) => element("td", regatta.figure(value), "n")));
      return line;
    }));
    by("same").replaceChildren(...keys.filter((key) => !differ.includes(key)).flatMap((key) => {
      const name = element("dt");
      name.append(element("code", key));
      return [name, element("dd", regatta.figure(values(key)[0]))];
    }));
    by("texts").hidden = new Set(runs.map((run) => run.scored)).size < 2;
  };

  let turn = 0;
  const show = async () => {
    const mine = (turn += 1), list = wanted().slice(0, MOST_RUNS);
    const bodies = await Promise.all(list.map((name) => regatta.load(`runs/${name}.js`).catch(() => null)));
    if (mine !== turn) return;
    const found = bodies.filter(Boolean), runs = found.map((body) => body.run);
    chosen(runs, list.filter((_, i) => !bodies[i]));
    const more = wanted().length - list.length;
    say(more > 0 ? `The page shows the first ${MOST_RUNS} runs and leaves out ${more}.` : "");
    by("compared").hidden = !runs.length;
    if (!runs.length) return;
    differences(runs);
    const empty = await regatta.load(figure.dataset.chart), curve = { run: [], step: [], tokens: [], flops: [], loss: [] };
    for (const body of found) {
      for (const row of regatta.rows(body.data.curve, body.derived)) {
        curve.run.push(label(runs, body.run));
        for (const name of ["step", "tokens", "flops", "loss"]) curve[name].push(row[name]);
      }
    }
    const spec = structuredClone(empty.spec), order = runs.map((run) => label(runs, run));
    for (const layer of spec.layer) layer.encoding.color.scale = { domain: order };
    await regatta.redraw(figure, { ...empty, spec, data: { curve } });
  };

  const ask = async () => {
    if (!names.length) names = (await regatta.load(NAMES)).names;
    const words = pick.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = names.filter((pair) => words.every((word) => pair.join(" ").toLowerCase().includes(word)));
    by("names").replaceChildren(...hits.slice(0, MOST_SHOWN).map(([name, title]) => {
      const option = element("option", title);
      option.value = name;
      return option;
    }));
    return hits;
  };
  pick.addEventListener("focus", () => ask().catch(() => {}));
  pick.addEventListener("input", () => ask().catch(() => {}));
  add.addEventListener("submit", async (event) => {
    event.preventDefault();
    const hits = await ask(), exact = hits.find(([name]) => name === pick.value.trim());
    const [name] = exact ?? (hits.length === 1 ? hits[0] : []);
    if (!name) {
      say(hits.length ? `${hits.length} runs match. Type more of the name.` : "No run matches.");
      return;
    }
    pick.value = "";
    await want([...wanted(), name]);
  });
  document.addEventListener("regatta:link", show);
  show();
})();
