// Draws the charts of a page, each when it comes into view, by Vega, which is loaded then and once.
// Until then, and where something fails, the drawing that the page came with stays.
"use strict";
(() => {
  const MOST_ROWS = 2000; // of a table on the page; a saved one has all
  const SHAPES = 1500; // from so many points on, a canvas is quicker than shapes
  const drawn = new Map(); // figure: {body, view}

  // ── Figures ────────────────────────────────────────────────────────────────────────────────
  const rows = (columns, derived = {}) => {
    const names = Object.keys(columns), n = names.length ? columns[names[0]].length : 0;
    const found = Array.from({ length: n }, () => ({}));
    for (const name of names) columns[name].forEach((value, i) => { found[i][name] = value; });
    for (const [name, [of, times]] of Object.entries(derived)) {
      if (of in columns && !(name in columns)) for (const row of found) row[name] = row[of] * times;
    }
    return found;
  };
  // An exponential mean whose memory is a share of the line's length in x; 0 changes nothing.
  const smooth = (found, how, amount) => {
    const lines = Map.groupBy ? Map.groupBy(found, (row) => row[how.line]) : grouped(found, how.line);
    for (const line of lines.values()) {
      const length = line.at(-1)[how.x] - line[0][how.x], memory = 0.3 * length * amount ** 2;
      let mean = line[0][how.y], before = line[0][how.x];
      for (const row of line) {
        const gap = row[how.x] - before;
        if (gap > 0) mean += (memory ? -Math.expm1(-gap / memory) : 1) * (row[how.y] - mean);
        before = row[how.x];
        row.smooth = memory ? mean : row[how.y];
      }
    }
  };
  const grouped = (found, key) => {
    const lines = new Map();
    for (const row of found) {
      if (!lines.has(row[key])) lines.set(row[key], []);
      lines.get(row[key]).push(row);
    }
    return lines;
  };

  // ── Look ───────────────────────────────────────────────────────────────────────────────────
  const colour = (() => {
    const probe = document.createElement("span");
    return (name) => {
      probe.style.color = `var(--${name})`;
      document.body.append(probe);
      const found = getComputedStyle(probe).color;
      probe.remove();
      return found;
    };
  })();
  const look = () => {
    const [ink, quiet, line] = ["ink", "quiet", "line"].map(colour);
    const axis = { labelColor: quiet, titleColor: quiet, gridColor: line, domainColor: line,
      tickColor: line, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: null, font: getComputedStyle(document.body).getPropertyValue("--sans"), aria: false,
      view: { stroke: null }, axis,
      axisX: { grid: false, titlePadding: 8 },
      axisY: { domain: false, ticks: false, labelPadding: 6, tickCount: 6, titleAngle: 0,
        titleAlign: "left", titleAnchor: "end", titleX: -40, titleY: -12 },
      legend: { labelColor: ink, titleColor: quiet, labelFontSize: 12, symbolStrokeWidth: 3 },
      text: { color: ink },
      range: { category: Array.from({ length: 7 }, (_, i) => colour(`c${i}`)) },
    };
  };

  // The body of a figure; a smaller chart is a part of another one's.
  const bodyOf = async (figure) => {
    const body = await (figure.body ?? regatta.load(figure.dataset.chart));
    return figure.dataset.part ? body.parts[figure.dataset.part] : body;
  };

  // ── One chart ──────────────────────────────────────────────────────────────────────────────
  const knob = (figure, name) => figure.querySelector(`[data-knob="${name}"]`);
  const has = (figure, name) => {
    const found = knob(figure, name);
    if (!found) return "";
    const plain = found.dataset.plain;
    return regatta.state.get(`${figure.id}.${name}`, plain);
  };
  const show = (figure) => { // the state of the link, in the knobs
    for (const one of figure.querySelectorAll("[data-knob]")) {
      const value = has(figure, one.dataset.knob);
      if (one.type === "checkbox") one.checked = value === "1";
      else one.value = value;
      const said = figure.querySelector(`output[for="${one.id}"]`);
      if (said) said.value = `${Math.round(value * 100)} %`;
    }
    const here = figure.querySelector(".here");
    if (here) here.href = regatta.state.link(figure.id);
  };
  const datasets = (figure, body) => {
    const found = {};
    for (const [name, columns] of Object.entries(body.data)) found[name] = rows(columns, body.derived);
    if (body.smooth && found[body.smooth.data]?.length) {
      smooth(found[body.smooth.data], body.smooth, Number(has(figure, "smooth")) || 0);
    }
    return found;
  };
  // A name is written where it covers none that is written already, the last point's first. Near
  // the right edge it stands left of its point.
  const LETTER = 6, LINE = 12, EDGES = 55; // pixels of a name, and beside the picture
  const thin = (spec, width) => {
    const names = spec.layer?.find((one) => one.mark.type === "text");
    if (!names) return;
    const at = (channel, size) => {
      const shown = spec.layer.filter((one) => one.encoding[channel]);
      const log = names.encoding[channel].scale?.type === "log", turn = log ? Math.log : Number;
      const all = shown.flatMap((one) => spec.datasets[one.data.name].map((row) => row[one.encoding[channel].field]));
      const values = all.filter((value) => value !== null && (!log || value > 0)).map(turn);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      return (row) => (size * (turn(row[names.encoding[channel].field]) - low)) / (high - low || 1);
    };
    const x = at("x", width), y = at("y", spec.height), taken = [];
    const rows = spec.datasets[names.data.name].filter((row) => row.name && row[names.encoding.x.field] !== null);
    for (const row of rows.sort((a, b) => x(b) - x(a))) {
      const long = Math.min(LETTER * row.name.length, names.mark.limit);
      row.turned = x(row) + long > width;
      const left = x(row) - (row.turned ? long : 0), up = y(row);
      if (taken.some((one) => left < one.left + one.long && one.left < left + long && Math.abs(up - one.up) < LINE)) row.name = "";
      else taken.push({ left, long, up });
    }
  };
  // Every encoding of a description, layers within layers included.
  const encodings = function* (spec) {
    if (spec.encoding) yield spec.encoding;
    for (const layer of spec.layer ?? []) yield* encodings(layer);
  };
  const described = (figure, body) => {
    const spec = structuredClone(body.spec);
    for (const encoding of encodings(spec)) {
      for (const channel of ["x", "y"]) {
        const one = encoding[channel], choice = has(figure, channel);
        if (!one) continue;
        const choices = body.choices[channel] ?? {};
        if (choice in choices && one.field in choices) {
          one.field = choice;
          if (one.title) one.title = choices[choice];
        }
        const log = knob(figure, `log${channel}`);
        if (log && one.type === "quantitative") {
          const { zero, ...scale } = one.scale ?? {}, on = has(figure, `log${channel}`) === "1";
          const end = channel === "x" && body.ends?.[one.field]; // as far as was planned
          if (end) scale.domainMax = end;
          one.scale = on ? { ...scale, type: "log" } : { ...scale, zero: zero ?? false, type: "linear" };
        }
      }
    }
    spec.datasets = datasets(figure, body);
    for (const channel of ["x", "y"]) {
      if (has(figure, `log${channel}`) !== "1") continue;
      // A logarithm knows no 0: what is not above it is left out of the picture.
      const fields = new Set([...encodings(spec)].map((one) => one[channel]?.field).filter(Boolean));
      for (const [name, found] of Object.entries(spec.datasets)) {
        spec.datasets[name] = found.filter((row) => [...fields].every((f) => !(row[f] <= 0)));
      }
    }
    thin(spec, figure.querySelector(".plot").clientWidth - EDGES);
    // Colours of the theme, by which a description may call its marks.
    const named = { ink: "ink", quiet: "quiet", first: "c0", second: "c1" };
    const params = Object.entries(named).map(([name, of]) => ({ name, value: colour(of) }));
    spec.params = [...(spec.params ?? []), ...params];
    return spec;
  };
  const draw = async (figure) => {
    const plot = figure.querySelector(".plot"), turn = (figure.turn = (figure.turn ?? 0) + 1);
    try {
      const body = await bodyOf(figure);
      if (!window.vegaEmbed) await regatta.load("vega.js");
      if (figure.turn !== turn) return; // asked for anew meanwhile
      const spec = described(figure, body), all = Object.values(spec.datasets);
      const points = all.reduce((sum, found) => sum + found.length, 0);
      const place = document.createElement("div");
      place.className = "vega";
      place.ariaHidden = "true"; // the words of the plot stand for all that is in it
      plot.append(place);
      const { view, finalize } = await vegaEmbed(place, spec, {
        actions: false, defaultStyle: false, config: look(), tooltip: { theme: "regatta" },
        renderer: points > SHAPES ? "canvas" : "svg",
      });
      if (figure.turn !== turn) { finalize(); place.remove(); return; }
      drawn.get(figure)?.finalize();
      for (const old of [...plot.children]) if (old !== place) old.remove();
      drawn.set(figure, { view, finalize, body });
      figure.dataset.drawn = has(figure, "x") || "yes";
    } catch (error) {
      figure.dataset.drawn = "failed";
      console.warn(`${figure.id}: ${error.message}`);
    }
  };
  const smoothed = (figure) => { // while a slider moves, only figures change
    const known = drawn.get(figure);
    if (!known?.body.smooth || has(figure, "logx") === "1" || has(figure, "logy") === "1") {
      return draw(figure);
    }
    const name = known.body.smooth.data;
    return known.view.data(name, datasets(figure, known.body)[name]).runAsync();
  };

  // ── The data table ─────────────────────────────────────────────────────────────────────────
  const tabled = (body) => [Object.keys(body.columns), rows(body.data[body.table], body.derived)];
  const fill = async (details) => {
    const figure = details.closest("figure"), table = details.querySelector("tbody");
    const body = await bodyOf(figure);
    const [names, found] = tabled(body);
    table.replaceChildren(...found.slice(0, MOST_ROWS).map((row) => {
      const line = document.createElement("tr");
      for (const name of names) {
        const cell = line.insertCell();
        cell.textContent = regatta.figure(row[name]);
        if (typeof row[name] === "number") cell.className = "n";
      }
      return line;
    }));
    const rest = details.querySelector(".rest");
    if (rest) {
      rest.hidden = found.length <= MOST_ROWS;
      rest.textContent = `These are the first ${regatta.figure(MOST_ROWS)} of ${regatta.figure(found.length)} rows.`;
    }
  };
  const save = async (figure) => {
    const body = await bodyOf(figure);
    const [names, found] = tabled(body);
    const quoted = (value) => {
      const words = String(value ?? "");
      return /[",\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
    };
    const lines = [names, ...found.map((row) => names.map((name) => row[name]))];
    const text = lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${figure.id}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // ── All charts ─────────────────────────────────────────────────────────────────────────────
  const seen = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "200px" });
  const redraw = (figure) => {
    show(figure);
    if (figure.dataset.drawn) draw(figure);
  };
  const prepare = (figure) => {
    figure.querySelector(".knobs")?.removeAttribute("hidden");
    figure.querySelector(".save")?.removeAttribute("hidden");
    show(figure);
    figure.addEventListener("input", ({ target }) => {
      const name = target.dataset.knob;
      if (!name) return;
      const value = target.type === "checkbox" ? String(Number(target.checked)) : target.value;
      regatta.state.set({ [`${figure.id}.${name}`]: value === target.dataset.plain ? "" : value });
      show(figure);
      (name === "smooth" ? smoothed : draw)(figure);
    });
    figure.querySelector(".save")?.addEventListener("click", () => save(figure));
    const details = figure.querySelector("details.behind");
    details?.addEventListener("toggle", () => details.open && fill(details).catch(() => {}));
    seen.observe(figure);
  };
  const each = (what) => document.querySelectorAll("figure[data-chart]").forEach(what);
  document.addEventListener("regatta:theme", () => each((f) => f.dataset.drawn && draw(f)));
  document.addEventListener("regatta:link", () => each(redraw));
  // Give a chart other figures: a page that is live, or one that compares. State and table follow.
  regatta.redraw = async (figure, body) => {
    figure.body = body;
    const open = figure.querySelector("details.behind[open]");
    if (open) await fill(open);
    return draw(figure);
  };
  regatta.rows = rows;
  each(prepare);
})();
