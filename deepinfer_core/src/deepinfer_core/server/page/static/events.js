// How does a response body become server-sent events?

/** The data of each event, in order; comments, which keep the connection alive, are left out. */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value;
      const events = held.split(/\r?\n\r?\n/);
      held = events.pop();
      for (const event of events) {
        const data = dataOf(event);
        if (data !== "") yield data;
      }
    }
  } finally {
    // Whoever stops reading goes away, and the service ends the request.
    await reader.cancel().catch(() => {});
  }
}

function dataOf(event) {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
}
