// Keeps a thread fresh: asks for its live part every 2 seconds and swaps only what changed, so that
// pictures do not flicker, open <details> stay open and nothing that is being typed is lost.
// Also turns times into "3 minutes ago", by the sandbox's clock, which can be moved.

let offset = Date.parse(document.body.dataset.now) - Date.now();

function ago(at) {
  const seconds = Math.max(0, (Date.now() + offset - at) / 1000);
  if (seconds < 45) return "now";
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const count = Math.round(seconds / size);
    if (count >= 1 && (unit === "minute" || seconds >= size * 0.95)) {
      if (unit === "day" && count > 30) break;
      return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
    }
  }
  return "on " + new Date(at).toISOString().slice(0, 10);
}

function tellTimes() {
  for (const time of document.querySelectorAll("time")) {
    const said = ago(Date.parse(time.dateTime));
    if (time.textContent !== said) time.textContent = said;
  }
}

const live = document.getElementById("live");
const sources = new Map();
let etag = "";

function parts(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

function swap(html) {
  const wanted = parts(html);
  const ids = new Set(wanted.map((part) => part.id));
  for (const old of [...live.children]) if (!ids.has(old.id)) old.remove();
  let before = null;
  for (const part of wanted) {
    const source = part.outerHTML;
    let shown = document.getElementById(part.id);
    if (!shown || sources.get(part.id) !== source) {
      const fresh = part;
      if (shown) {
        const opened = [...shown.querySelectorAll("details")].map((each) => each.open);
        fresh.querySelectorAll("details").forEach((each, at) => {
          if (at < opened.length) each.open = opened[at];
        });
        shown.replaceWith(fresh);
      }
      shown = fresh;
      sources.set(part.id, source);
    }
    const place = before ? before.nextElementSibling : live.firstElementChild;
    if (place !== shown) live.insertBefore(shown, place);
    before = shown;
  }
}

async function look() {
  try {
    const headers = etag ? { "If-None-Match": etag } : {};
    const answer = await fetch(live.dataset.live, { headers, cache: "no-store" });
    if (answer.headers.has("X-Now")) offset = Date.parse(answer.headers.get("X-Now")) - Date.now();
    if (answer.status === 200) {
      etag = answer.headers.get("ETag");
      swap(await answer.text());
    }
  } catch {
    // the sandbox is gone or restarting; ask again
  }
  tellTimes();
}

tellTimes();
if (live) {
  for (const part of parts(live.innerHTML)) sources.set(part.id, null);
  look();
  setInterval(() => document.hidden || look(), 2000);
} else {
  setInterval(tellTimes, 20000);
}
