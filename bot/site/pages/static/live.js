// A page of what runs now: it loads its figures again and again, until the execution is over.
"use strict";
(() => {
  const now = document.getElementById("now");
  if (!now || "ended" in now.dataset) return;
  const path = now.dataset.live, said = document.querySelector("[data-said]");
  const fill = (rows) => {
    const made = rows.map((row) => {
      const line = document.createElement("tr"), head = document.createElement("th");
      const name = document.createElement("code");
      head.scope = "row";
      name.textContent = row[0];
      if (now.dataset.runs) {
        const link = document.createElement("a");
        link.href = now.dataset.runs + row[0];
        link.append(name);
        head.append(link);
      } else head.append(name);
      line.append(head, ...row.slice(1).map((value) => {
        const cell = document.createElement("td");
        cell.className = "n";
        cell.textContent = regatta.figure(value);
        return cell;
      }));
      return line;
    });
    document.querySelector("#reported tbody").replaceChildren(...made);
  };
  const ask = async () => {
    if (document.hidden) return;
    try {
      const body = await regatta.load(path, true);
      const figures = [...document.querySelectorAll(`figure[data-chart="${path}"]`)];
      // What else the page says follows from its state, so it is asked for as a whole.
      const charts = Boolean(body.spec) + Object.keys(body.parts ?? {}).length;
      if (body.live.state !== now.dataset.state || charts !== figures.length) return location.reload();
      for (const [name, words] of Object.entries(body.live.facts)) {
        const place = now.querySelector(`[data-fact="${name}"]`);
        if (place) place.textContent = words;
      }
      now.querySelector("progress").value = body.live.share;
      fill(body.live.rows);
      const log = document.querySelector("pre.log");
      if (log && "log" in body.live) log.textContent = body.live.log;
      said.textContent = "";
      for (const figure of figures) await regatta.redraw(figure, body);
    } catch {
      said.textContent = "The lab does not answer. The numbers may be old.";
    }
  };
  const again = () => setTimeout(async () => { await ask(); again(); }, now.dataset.every * 1000);
  again();
})();
