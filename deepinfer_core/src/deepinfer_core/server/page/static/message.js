// How is one message shown, and a tool call that waits for its result?

import { make } from "./dom.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool", error: "Error" };

/** A message in the log; the text of an answer grows with `show`. */
export class MessageView {
  constructor(log, role, text = "", title = NAMES[role]) {
    this.log = log;
    this.words = make("div", { className: "words", textContent: text });
    this.bubble = make("div", { className: "bubble" }, this.words);
    this.foot = make("p", { className: "foot", hidden: true });
    this.item = make(
      "article", { className: role, ariaLabel: title }, make("p", { className: "who", textContent: title }),
      this.bubble, this.foot,
    );
    if (role === "error") this.item.setAttribute("role", "alert");
    this.thought = null;
    log.append(this.item);
    log.scrollTop = log.scrollHeight;
  }

  /** Shows what is known of an answer. */
  show(answer, { isOpen }) {
    const { log } = this;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    if (answer.reasoning) this.#showThought(answer, isOpen);
    this.words.textContent = answer.content;
    this.words.hidden = !answer.content && !isOpen;
    this.words.classList.toggle("is-open", isOpen && !this.#isThinking(answer));
    this.item.setAttribute("aria-busy", isOpen);
    this.foot.textContent = isOpen ? "" : answer.figures;
    this.foot.hidden = this.foot.textContent === "";
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  /** Lists tool calls with a field for each result; `onResults` gets their texts in order. */
  askForResults(calls, onResults) {
    const fields = [];
    const form = make("form");
    for (const call of calls) {
      const field = make("textarea", { rows: 2, required: true });
      fields.push(field);
      form.append(
        make(
          "div", { className: "call" },
          make("code", { textContent: `${call.function.name}(${call.function.arguments})` }),
          make("label", {}, `Result of ${call.function.name}`, field),
        ),
      );
    }
    const send = make("button", { type: "submit", textContent: "Send results", className: "main" });
    form.append(make("div", { className: "row" }, send));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.disabled = true;
      for (const field of fields) field.readOnly = true;
      onResults(fields.map((field) => field.value));
    });
    this.bubble.append(form);
    fields[0].focus();
    this.log.scrollTop = this.log.scrollHeight;
  }

  #showThought(answer, isOpen) {
    if (this.thought === null) {
      this.thoughtWords = make("div", { className: "words" });
      this.thoughtTitle = make("summary");
      this.thought = make(
        "details", { className: "thought", open: true }, this.thoughtTitle, this.thoughtWords,
      );
      this.bubble.prepend(this.thought);
    }
    const isThinking = isOpen && this.#isThinking(answer);
    if (this.wasThinking && !isThinking) this.thought.open = false;
    this.wasThinking = isThinking;
    this.thoughtTitle.textContent = isThinking ? "Thinking" : "Thoughts";
    this.thoughtWords.textContent = answer.reasoning;
    this.thoughtWords.classList.toggle("is-open", isThinking);
  }

  #isThinking(answer) {
    return answer.reasoning !== "" && answer.content === "" && answer.calls.length === 0;
  }
}
