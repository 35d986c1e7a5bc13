// What is known of an answer while its parts come?

/** One answer; `seconds` is the time since it was asked for. */
export class Answer {
  constructor() {
    this.reasoning = "";
    this.content = "";
    this.calls = [];
    this.reason = null;
    this.usage = null;
    this.firstSeconds = null;
    this.since = performance.now();
    this.seconds = 0;
  }

  /** Takes a part of a chat or of a plain completion. */
  take(part) {
    this.seconds = (performance.now() - this.since) / 1000;
    if (part.usage) this.usage = part.usage;
    const [choice] = part.choices;
    if (!choice) return;
    const delta = choice.delta ?? { content: choice.text };
    this.reasoning += delta.reasoning_content ?? "";
    this.content += delta.content ?? "";
    for (const call of delta.tool_calls ?? []) this.#takeCall(call);
    if (choice.finish_reason) this.reason = choice.finish_reason;
    if (this.firstSeconds === null && (this.reasoning || this.content || this.calls.length)) {
      this.firstSeconds = this.seconds;
    }
  }

  #takeCall(part) {
    const call = (this.calls[part.index] ??= {
      id: "", type: "function", function: { name: "", arguments: "" },
    });
    if (part.id) call.id = part.id;
    call.function.name += part.function?.name ?? "";
    call.function.arguments += part.function?.arguments ?? "";
  }

  /** The same as a message of the conversation. */
  get message() {
    const message = { role: "assistant", content: this.content };
    if (this.reasoning) message.reasoning_content = this.reasoning;
    if (this.calls.length) message.tool_calls = this.calls;
    return message;
  }

  /** One line of figures. */
  get figures() {
    const parts = [];
    if (this.usage) {
      const { prompt_tokens: asked, completion_tokens: drawn } = this.usage;
      const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      parts.push(`${asked} tokens in${cached ? ` (${cached} cached)` : ""}, ${drawn} out`);
      const writing = this.seconds - (this.firstSeconds ?? 0);
      if (drawn > 1 && writing > 0.2) parts.push(`${((drawn - 1) / writing).toFixed(1)} tokens/s`);
    }
    if (this.firstSeconds !== null) parts.push(`first after ${this.firstSeconds.toFixed(2)} s`);
    if (this.reason && this.reason !== "stop") parts.push(`ended by ${this.reason}`);
    return parts.join(" · ");
  }
}
