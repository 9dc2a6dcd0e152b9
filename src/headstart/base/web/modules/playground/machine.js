// The server at work: a strip of its slots, and the last minute of its speed, its queue and its cache.

import { fill, h, svg, watch } from "hs/base/dom";
import { fixed, percent, whole } from "hs/base/format";
import { tableOf } from "hs/figures/figure";

const [WIDTH, HEIGHT, SECONDS] = [240, 56, 60];

/** server: of hs/playground/server. */
export function machinePanel(server) {
  const slots = h("ol.slots", { "aria-label": "Slots" });
  const charts = [
    chart("Tokens a second", (looks) => looks.map(({ speed }) => speed), (v) => fixed(v, 0), "p"),
    chart("Waiting requests", (looks) => looks.map(({ queued }) => queued), whole, "q"),
    chart("Cache in use", (looks, room) => looks.map(({ held }) => held / room), (v) => percent(v), "r", 1),
  ];
  const numbers = numbersOf(charts);
  const element = h("section.machine", { "aria-label": "The server" },
    h("h2", "The server"),
    h("p.soft", "Each slot holds the tokens of one running text, those of its prompt and those written, and keeps them afterwards: a text that begins the same way is not read again."),
    slots, h("div.charts", {}, charts.map((each) => each.element)), numbers.element);
  watch([server.slots, server.model], (now, model) => model && fill(slots, now.map((slot) => slotOf(slot, model.max_model_len))));
  watch([server.load], (looks) => {
    if (!looks.length || !server.model.value) return;
    const room = server.slots.value.length * server.model.value.max_model_len;
    for (const each of charts) each.set(looks, room);
    numbers.refresh();
  });
  watch([server.state, server.load], ({ kind }, looks) => {
    element.hidden = !looks.length;
    element.classList.toggle("stale", kind !== "ready");
  });
  return element;
}

function slotOf({ number, request, tokens, prompt_tokens, generated_tokens }, room) {
  const running = request !== null;
  const words = running ? `${whole(prompt_tokens)} + ${whole(generated_tokens)}` : tokens ? `keeps ${whole(tokens)}` : "empty";
  const share = (count) => `${Math.min(100, (100 * count) / room)}%`;
  return h("li.slot", { class: running ? "running" : tokens ? "keeping" : "" },
    h("span.slot-name", `${number}`),
    h("span.slot-bar", { "aria-hidden": "true" },
      h("span.read", { style: { width: share(running ? prompt_tokens : tokens) } }),
      running && h("span.written", { style: { width: share(generated_tokens) } })),
    h("span.slot-words", running ? [h("b", "runs"), ` ${words}`] : words));
}

/** A line over the last minute. most: the top of its scale, where that is known. */
function chart(name, values, say, colour, most) {
  const line = svg("path.line");
  const area = svg("path.area");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  const [now, top] = [h("b.chart-now", "–"), h("span.soft")];
  const element = h(`div.chart.${colour}`, {}, h("div.chart-head", {}, h("span", name), now), picture,
    h("div.chart-foot.soft", { "aria-hidden": "true" }, h("span", `${SECONDS} s ago`), top, h("span", "now")));
  const state = { name, say, values: [] };
  function set(looks, room) {
    const found = values(looks, room);
    state.values = found.filter((each) => each !== null);
    const last = state.values.at(-1);
    now.textContent = last === undefined ? "–" : say(last);
    const scale = most ?? Math.max(1, ...state.values);
    top.textContent = state.values.length ? `top ${say(scale)}` : "";
    const end = looks.at(-1).at;
    const points = looks.map(({ at }, i) => [WIDTH * (1 - (end - at) / (1000 * SECONDS)), found[i]]).filter(([, v]) => v !== null);
    const place = ([x, v]) => `${x.toFixed(1)} ${(HEIGHT - 2 - (HEIGHT - 6) * Math.min(1, v / scale)).toFixed(1)}`;
    const d = points.length ? `M${points.map(place).join("L")}` : "";
    line.setAttribute("d", d);
    area.setAttribute("d", d && `${d}L${WIDTH} ${HEIGHT}L${points[0][0].toFixed(1)} ${HEIGHT}Z`);
  }
  return { element, set, state };
}

function numbersOf(charts) {
  const holder = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "The numbers of these charts" });
  const element = h("details.numbers", {}, h("summary", "The numbers"), holder);
  const refresh = () => {
    if (!element.open) return;
    const rows = charts.map(({ state: { name, say, values } }) => {
      const known = values.length ? [values.at(-1), Math.min(...values), Math.max(...values)].map(say) : ["–", "–", "–"];
      return [name, ...known];
    });
    fill(holder, tableOf({ columns: ["last minute", "now", "least", "most"], rows }));
  };
  element.addEventListener("toggle", refresh);
  return { element, refresh };
}
