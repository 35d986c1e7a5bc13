// What does the form ask for, in the words of the service?

import { byId } from "./dom.js";

const EXAMPLE_TOOL = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather at a place",
      parameters: {
        type: "object",
        properties: { place: { type: "string" } },
        required: ["place"],
      },
    },
  },
];

const EXAMPLE_SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};

const KEY = "deepinfer.key";

/** Reads the form; `onChange` is called when another key or mode holds. */
export class Settings {
  constructor(onChange) {
    this.model = undefined;
    this.grammars = null;
    byId("key").value = sessionStorage.getItem(KEY) ?? "";
    byId("schema").value = JSON.stringify(EXAMPLE_SCHEMA, null, 2);
    byId("settings").addEventListener("submit", (event) => event.preventDefault());
    byId("settings").addEventListener("input", () => this.#show());
    byId("key").addEventListener("change", () => {
      sessionStorage.setItem(KEY, this.key);
      onChange();
    });
    byId("example-tool").addEventListener("click", () => {
      byId("tools").value = JSON.stringify(EXAMPLE_TOOL, null, 2);
      this.#show();
    });
    this.#show();
  }

  get key() {
    return byId("key").value.trim();
  }

  get isChat() {
    return byId("mode").value === "chat";
  }

  /** Leaves plain completions as the only mode. */
  withoutChat() {
    byId("mode").value = "completion";
    byId("mode").querySelector("[value=chat]").disabled = true;
    this.#show();
  }

  /** Offers the forms of an answer that the service can hold to, by kind of grammar. */
  offerForms(kinds) {
    this.grammars = kinds;
    for (const option of byId("format").options) {
      option.disabled = option.value !== "text" && !kinds.includes(option.value);
    }
    if (byId("format").selectedOptions[0].disabled) byId("format").value = "text";
    this.#show();
  }

  /** Points at the field for the key. */
  askForKey() {
    byId("key-details").open = true;
    byId("key").focus();
  }

  /** Path and body that ask for the next answer; throws with the name of a field that is wrong. */
  request(messages) {
    const body = { model: this.model };
    if (!byId("temperature").disabled) body.temperature = number("temperature", "Temperature");
    const limit = number("max-tokens", "Max tokens");
    const seed = number("seed", "Seed");
    if (limit !== undefined) body.max_tokens = limit;
    if (seed !== undefined) body.seed = seed;
    if (!this.isChat) {
      body.max_tokens ??= 256;
      return ["v1/completions", { ...body, prompt: messages.at(-1).content }];
    }
    return ["v1/chat/completions", { ...body, ...this.#chatFields(messages) }];
  }

  #chatFields(messages) {
    const isThinking = byId("thinking").checked;
    const system = byId("system").value.trim();
    const fields = {
      messages: system ? [{ role: "system", content: system }, ...messages] : messages,
      thinking: { type: isThinking ? "enabled" : "disabled" },
    };
    if (isThinking) fields.reasoning_effort = byId("effort").value;
    const tools = json("tools", "Tools");
    if (tools !== undefined) fields.tools = tools;
    const format = byId("format").value;
    if (format === "json_object") fields.response_format = { type: format };
    if (format === "json_schema") {
      const schema = json("schema", "JSON Schema of the answer");
      fields.response_format = { type: format, json_schema: { name: "answer", schema } };
    }
    return fields;
  }

  /** Why some forms of an answer are not offered; empty where all are. */
  #formsMissing() {
    if (this.grammars === null || ![...byId("format").options].some((one) => one.disabled)) return "";
    return this.grammars.length
      ? "The grammar component of this service does not take every form of an answer."
      : "Answers have any form here: this service uses no grammar component (components.grammar.use).";
  }

  #show() {
    for (const part of document.querySelectorAll(".chat-only")) part.hidden = !this.isChat;
    byId("schema-field").hidden = !this.isChat || byId("format").value !== "json_schema";
    const isThinking = this.isChat && byId("thinking").checked;
    byId("effort").disabled = !isThinking;
    byId("temperature").disabled = isThinking;
    byId("temperature-help").hidden = !isThinking;
    byId("format-help").textContent = this.#formsMissing();
    byId("format-help").hidden = !this.isChat || byId("format-help").textContent === "";
    byId("tool-count").textContent = toolCount();
  }
}

function number(id, title) {
  const field = byId(id);
  if (!field.checkValidity()) throw new Error(`${title}: ${field.validationMessage}`);
  return field.value === "" ? undefined : Number(field.value);
}

function json(id, title) {
  const text = byId(id).value.trim();
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${title}: ${error.message}`);
  }
}

function toolCount() {
  const text = byId("tools").value.trim();
  if (text === "") return "";
  try {
    return `(${JSON.parse(text).length})`;
  } catch {
    return "(not JSON)";
  }
}
