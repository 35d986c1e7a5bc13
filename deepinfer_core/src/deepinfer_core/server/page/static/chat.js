// How does a conversation go on?

import { Answer } from "./answer.js";
import { byId } from "./dom.js";
import { MessageView } from "./message.js";

/** Keeps the messages of one conversation and asks for answers. */
export class Chat {
  constructor(api, settings) {
    this.api = api;
    this.settings = settings;
    this.messages = [];
    this.running = null;
    this.log = byId("log");
    this.prompt = byId("prompt");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.stop();
    });
    byId("stop").addEventListener("click", () => this.stop());
    byId("clear").addEventListener("click", () => this.clear());
  }

  /** Ends the answer that is being written; what came is kept. */
  stop() {
    this.running?.abort();
  }

  /** Begins a new conversation. */
  clear() {
    this.stop();
    this.messages = [];
    this.log.replaceChildren();
    this.prompt.focus();
  }

  #send() {
    const text = this.prompt.value;
    if (this.running || text.trim() === "") return;
    if (this.#waitsForResults()) {
      this.#fail(new Error("A tool call waits for its result."));
      return;
    }
    this.prompt.value = "";
    this.messages.push({ role: "user", content: text });
    new MessageView(this.log, "user", text);
    this.#answer();
  }

  #waitsForResults() {
    return this.messages.at(-1)?.tool_calls !== undefined;
  }

  async #answer() {
    const { messages } = this;
    const running = (this.running = new AbortController());
    this.#showRunning();
    let view = null;
    const answer = new Answer();
    try {
      const [path, body] = this.settings.request(messages);
      view = new MessageView(this.log, "assistant");
      view.show(answer, { isOpen: true });
      for await (const part of this.api.stream(path, body, running.signal)) {
        answer.take(part);
        view.show(answer, { isOpen: true });
      }
    } catch (error) {
      if (running.signal.aborted) answer.reason = "you";
      else this.#fail(error);
    }
    this.#keep(answer, view, messages);
    if (this.running === running) this.running = null;
    this.#showRunning();
  }

  #keep(answer, view, messages) {
    const hasSome = answer.content || answer.reasoning || answer.calls.length;
    if (view && hasSome) view.show(answer, { isOpen: false });
    else view?.item.remove();
    if (messages !== this.messages) return; // a new conversation began
    if (!hasSome) {
      // What was asked may be asked again; results of tools stand, whatever failed behind them.
      if (messages.at(-1).role === "user") this.prompt.value ||= messages.pop().content;
      return;
    }
    if (answer.reason !== "tool_calls") answer.calls = [];
    messages.push(answer.message);
    if (answer.calls.length) {
      view.askForResults(answer.calls, (results) => this.#takeResults(answer.calls, results));
    }
  }

  #takeResults(calls, results) {
    results.forEach((content, place) => {
      this.messages.push({ role: "tool", tool_call_id: calls[place].id, content });
      new MessageView(this.log, "tool", content, `Result of ${calls[place].function.name}`);
    });
    this.#answer();
  }

  #fail(error) {
    new MessageView(this.log, "error", error.message);
    if (error.status === 401) this.settings.askForKey();
  }

  #showRunning() {
    byId("send").disabled = this.running !== null;
    byId("stop").disabled = this.running === null;
  }
}
