// What does the engine do now, and what is it made of?

import { Chart } from "./chart.js";
import { byId, make } from "./dom.js";
import { growth, quantile, rate, Reading, share } from "./metrics.js";

const SECONDS = 1;
const RATE_READINGS = 4;
const SHARE_READINGS = 16;

const count = (value) => (value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1));
const perSecond = (value) => `${count(value)}/s`;
const percent = (value) => `${(100 * value).toFixed(0)} %`;
const duration = (value) => (value < 1 ? `${(1000 * value).toFixed(0)} ms` : `${value.toFixed(2)} s`);

/** Each gives the newest values from the last reading and two older ones. */
const GAUGES = [
  {
    title: "Throughput, tokens", series: ["written", "read"], format: perSecond,
    of: (now, shortly) => [
      rate(shortly, now, "generation_tokens_total"),
      rate(shortly, now, "rows_total", { phase: "prompt" }),
    ],
  },
  {
    title: "Time to first token", series: ["median", "p95"], format: duration,
    of: (now, _, back) => [
      quantile(back, now, "time_to_first_token_seconds", 0.5),
      quantile(back, now, "time_to_first_token_seconds", 0.95),
    ],
  },
  {
    title: "Requests", series: ["running", "waiting"], format: count,
    // They wait in front of the engine, for their turn among keys, and in its own queue.
    of: (now) => [
      now.sum("requests_running"),
      (now.sum("http_requests_waiting") ?? 0) + (now.sum("requests_waiting") ?? 0),
    ],
  },
  {
    title: "Prompt tokens from the cache", series: ["share"], format: percent, top: 1,
    of: (now, _, back) => [share(back, now, "prompt_cached_tokens_total", "prompt_tokens_total")],
  },
  {
    title: "Cache blocks", series: ["in use", "kept"], format: percent, top: 1,
    of: (now) => [blocks(now, "used"), blocks(now, "idle")],
  },
  {
    title: "Drafts accepted", series: ["share"], format: percent, top: 1,
    of: (now, _, back) => [
      share(back, now, "accepted_draft_tokens_total", "draft_tokens_total"),
    ],
  },
];

function blocks(now, state) {
  const all = now.sum("kv_cache_blocks");
  return all ? now.sum("kv_cache_blocks", { state }) / all : null;
}

/** Reads metrics once a second and draws them. */
export class EngineView {
  constructor(api) {
    this.api = api;
    this.readings = [];
    this.gauges = GAUGES.map((gauge) => ({ ...gauge, chart: new Chart(gauge) }));
    byId("charts").append(...this.gauges.map(({ chart }) => chart.element));
    this.note = byId("engine-note");
  }

  /** Never ends; the switch and a hidden page pause it. */
  async watch() {
    for (;;) {
      if (byId("live").checked && !document.hidden && !this.api.isLockedOut) await this.#read();
      await new Promise((done) => setTimeout(done, 1000 * SECONDS));
    }
  }

  /** Shows what the service says of itself. */
  showFacts(info) {
    fill("components", Object.entries(info.components));
    fill("facts", [
      ["version", info.version],
      ["names of the model", info.model_names.join(", ")],
      ["longest sequence", `${info.max_model_len} tokens`],
      ["grammars", info.grammar_kinds.join(", ") || "none"],
      ...flat(info.report),
    ]);
  }

  async #read() {
    try {
      const text = await this.api.text("metrics");
      this.#take(new Reading(text, performance.now() / 1000));
      this.#say("");
    } catch (error) {
      this.readings = [];
      this.#say(`No metrics: ${error.message}`);
    }
  }

  #say(text) {
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  #take(now) {
    const before = this.readings.at(-1);
    const wasStartedAnew = before && growth(before, now, "requests_total") === null;
    if (wasStartedAnew) this.readings = [];
    this.readings.push(now);
    if (this.readings.length > SHARE_READINGS) this.readings.shift();
    if (!before || wasStartedAnew) return;
    const shortly = this.readings.at(-RATE_READINGS) ?? this.readings[0];
    for (const { chart, of } of this.gauges) chart.add(of(now, shortly, this.readings[0]));
  }
}

/** Nested facts as pairs of a dotted name and a value. */
function* flat(value, name = "") {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) yield* flat(inner, name ? `${name}.${key}` : key);
  } else {
    yield [name.replaceAll("_", " "), shown(name, value)];
  }
}

function shown(name, value) {
  if (Array.isArray(value)) return value.join(", ");
  if (name.endsWith("_bytes") && value >= 1 << 20) return `${(value / (1 << 20)).toFixed(1)} MiB`;
  return String(value);
}

function fill(id, rows) {
  const made = rows.map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", { textContent: value })),
  );
  byId(id).querySelector("tbody").replaceChildren(...made);
}
