// What every page needs: the theme, the state that a link keeps, and figures that are script files.
// It stands in the head and is not deferred, so that no page flashes in the wrong colours.
"use strict";
const regatta = (() => {
  const root = new URL(".", document.currentScript.src).href;
  const html = document.documentElement;

  // ── Theme ──────────────────────────────────────────────────────────────────────────────────
  const THEMES = ["auto", "light", "dark"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try { return localStorage.getItem("theme") || "auto"; } catch { return "auto"; }
  };
  const changed = () => document.dispatchEvent(new Event("regatta:theme"));
  const wear = (theme) => {
    html.dataset.theme = THEMES.includes(theme) ? theme : "auto";
    changed();
  };
  wear(remembered());
  dark.addEventListener("change", changed);
  addEventListener("storage", (event) => event.key === "theme" && wear(remembered()));
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    if (!choice) return;
    choice.value = html.dataset.theme;
    choice.closest("[hidden]")?.removeAttribute("hidden");
    choice.addEventListener("change", () => {
      try { localStorage.setItem("theme", choice.value); } catch { /* kept for this page only */ }
      wear(choice.value);
    });
  });

  // ── Search of the experiments, from each page ───────────────────────────────────────────────
  document.addEventListener("DOMContentLoaded", () => {
    const find = document.querySelector("form.find");
    if (!find) return;
    find.hidden = false;
    find.addEventListener("submit", (event) => {
      event.preventDefault();
      const words = encodeURIComponent(find.elements.text.value.trim());
      location.href = `${root}experiments.html#experiments.text=${words}`;
    });
  });

  // ── What can be copied ─────────────────────────────────────────────────────────────────────
  const copied = async (pre) => {
    const words = pre.querySelector("code").textContent;
    if (navigator.clipboard) return navigator.clipboard.writeText(words);
    getSelection().selectAllChildren(pre.querySelector("code")); // from file:// and plain http://
    if (!document.execCommand("copy")) throw new Error("not copied");
  };
  document.addEventListener("DOMContentLoaded", () => {
    for (const pre of document.querySelectorAll("pre[data-copy]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", `Copy: ${pre.getAttribute("aria-label")}`);
      button.addEventListener("click", () => copied(pre).then(
        () => { button.textContent = "Copied"; },
        () => { button.textContent = "Select it and copy"; },
      ));
      const place = document.createElement("div");
      place.className = "copied";
      pre.replaceWith(place);
      place.append(pre, button);
    }
  });

  // ── State in the link: #board.sort=mean&loss.x=flops ───────────────────────────────────────
  const read = () => {
    const hash = location.hash.slice(1), found = new Map();
    for (const part of hash.includes("=") ? hash.split("&") : []) {
      const at = part.indexOf("=");
      if (at < 1) continue;
      try {
        found.set(decodeURIComponent(part.slice(0, at)), decodeURIComponent(part.slice(at + 1)));
      } catch { /* what somebody cut off in the middle says nothing */ }
    }
    return found;
  };
  const written = (map) =>
    [...map].map((pair) => pair.map(encodeURIComponent).join("=")).join("&").replaceAll("%2C", ",");
  const state = {
    get: (key, otherwise = "") => read().get(key) ?? otherwise,
    // Write some keys at once; what is "" or equal to nothing is left out.
    set(values) {
      const now = read();
      for (const [key, value] of Object.entries(values)) {
        if (value === "" || value === null || value === undefined) now.delete(key);
        else now.set(key, String(value));
      }
      const plain = location.href.split("#")[0], hash = written(now);
      history.replaceState(null, "", hash ? `${plain}#${hash}` : plain);
      document.dispatchEvent(new Event("regatta:state"));
    },
    // The link that brings back what `prefix` shows, and only that.
    link(prefix) {
      const own = new Map([...read()].filter(([key]) => key.startsWith(`${prefix}.`)));
      return `#${written(new Map([["at", prefix], ...own]))}`;
    },
  };
  const arrive = () => document.getElementById(state.get("at"))?.scrollIntoView();
  addEventListener("hashchange", () => {
    document.dispatchEvent(new Event("regatta:link"));
    arrive();
  });
  addEventListener("load", arrive);

  // ── Figures that are script files, each of which calls regatta.take(its path, …) ───────────
  const taken = new Map(), asked = new Map();
  const load = (path, again = false) => {
    if (again || !asked.has(path)) {
      asked.set(path, new Promise((done, fail) => {
        const script = document.createElement("script");
        const at = path.split("/").map(encodeURIComponent).join("/");
        script.src = root + at + (again ? `?${Date.now()}` : "");
        script.onload = () => { script.remove(); done(taken.get(path)); };
        script.onerror = () => {
          script.remove();
          asked.delete(path);
          fail(new Error(`${path} could not be loaded`));
        };
        document.head.append(script);
      }));
    }
    return asked.get(path);
  };
  // A figure as people read it.
  const figure = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    if (size >= 1e15) return value.toExponential(2).replace("e+", "e");
    if (Number.isInteger(value)) return value.toLocaleString("en-US");
    return size && size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(6)));
  };
  return { root, state, load, figure, take: (path, body) => taken.set(path, body) };
})();
