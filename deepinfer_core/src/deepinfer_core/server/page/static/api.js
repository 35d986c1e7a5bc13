// How does the page speak to the service? Addresses are relative, so that a proxy may add a prefix.

import { readEvents } from "./events.js";

/** What the service refused, with its status. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Asks the service; `key` gives the API key that is in force. */
export class Api {
  constructor(key) {
    this.key = key;
    this.refusedKey = null;
  }

  /** Whether the key that is in force was refused: asking again is of no use. */
  get isLockedOut() {
    return this.refusedKey === this.key();
  }

  /** A response of status 200; everything else is thrown as `Refused`. */
  async ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.key()) headers.authorization = `Bearer ${this.key()}`;
    const response = await fetch(path, { ...options, headers, cache: "no-store" });
    this.refusedKey = response.status === 401 ? this.key() : null;
    if (!response.ok) throw new Refused(response.status, await reasonOf(response));
    return response;
  }

  async json(path) {
    return (await this.ask(path)).json();
  }

  async text(path) {
    return (await this.ask(path)).text();
  }

  /** The parts of a streamed answer; an error within the stream is thrown. */
  async *stream(path, body, signal) {
    const response = await this.ask(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    for await (const data of readEvents(response.body)) {
      if (data === "[DONE]") return;
      const part = JSON.parse(data);
      if (part.error) throw new Refused(0, part.error.message);
      yield part;
    }
    throw new Refused(0, "The answer ended before it was whole.");
  }
}

async function reasonOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The service answered with status ${response.status}.`;
  }
}
