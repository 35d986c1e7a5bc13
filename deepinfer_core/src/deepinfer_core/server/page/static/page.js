// How do the parts of the page come together?

import { Api } from "./api.js";
import { Chat } from "./chat.js";
import { byId } from "./dom.js";
import { EngineView } from "./engine.js";
import { Settings } from "./settings.js";

const settings = new Settings(() => connect());
const api = new Api(() => settings.key);
const engine = new EngineView(api);
new Chat(api, settings);

/** Learns what is served; tries again while the model is being loaded. */
async function connect() {
  try {
    const { paths } = await api.json("openapi.json");
    tell(paths);
    const info = await api.json("server_info");
    settings.model = info.model_names[0];
    byId("model").textContent = settings.model;
    settings.offerForms(info.grammar_kinds);
    engine.showFacts(info);
    state(info.state, info.state);
  } catch (error) {
    if (error.status === 401) {
      state("key needed", "failed");
      settings.askForKey();
      return;
    }
    state(error.status === 503 ? "loading" : "not reachable", "failed");
  }
}

function tell(paths) {
  const hasChat = "/v1/chat/completions" in paths;
  const notice = byId("notice");
  notice.hidden = hasChat;
  if (hasChat) return;
  notice.textContent =
    "The chat protocols are not installed here (pip install deepinfer-recipe-bridge). " +
    "Plain completions work: the model continues your text.";
  settings.withoutChat();
}

function state(text, kind) {
  const shown = byId("state");
  shown.className = `state ${kind}`;
  if (shown.textContent !== text) shown.textContent = text;
}

async function watchState() {
  for (;;) {
    await connect();
    await new Promise((done) => setTimeout(done, 5000));
    while (document.hidden || api.isLockedOut) {
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

watchState();
engine.watch();
