// What do two readings of the metrics say about the time between them?

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** One reading of the Prometheus text form. */
export class Reading {
  constructor(text, seconds) {
    this.seconds = seconds;
    this.samples = new Map();
    for (const line of text.split("\n")) {
      const found = LINE.exec(line);
      if (!found) continue;
      const [, name, labels = "", value] = found;
      const pairs = [...labels.matchAll(LABEL)].map(([, label, text]) => [label, text]);
      if (!this.samples.has(name)) this.samples.set(name, []);
      this.samples.get(name).push({ labels: Object.fromEntries(pairs), value: Number(value) });
    }
  }

  /** Sum of the samples whose labels are as given; null: there are none. */
  sum(name, labels = {}) {
    const wanted = Object.entries(labels);
    const samples = (this.samples.get(`deepinfer_${name}`) ?? []).filter((sample) =>
      wanted.every(([label, value]) => sample.labels[label] === value),
    );
    return samples.length ? samples.reduce((sum, sample) => sum + sample.value, 0) : null;
  }

  /** Upper ends of a histogram's buckets with their counts, ascending. */
  buckets(name) {
    return (this.samples.get(`deepinfer_${name}_bucket`) ?? [])
      .map(({ labels, value }) => [labels.le === "+Inf" ? Infinity : Number(labels.le), value])
      .sort(([a], [b]) => a - b);
  }
}

/** Growth of a counter; null: unknown, or the engine was started anew. */
export function growth(before, now, name, labels) {
  const [first, last] = [before.sum(name, labels), now.sum(name, labels)];
  return first === null || last === null || last < first ? null : last - first;
}

/** Growth a second. */
export function rate(before, now, name, labels) {
  const grown = growth(before, now, name, labels);
  return grown === null ? null : grown / (now.seconds - before.seconds);
}

/** Growth of one counter in that of another; null where the other stood still. */
export function share(before, now, part, whole) {
  const [some, all] = [growth(before, now, part), growth(before, now, whole)];
  return some === null || !all ? null : some / all;
}

/** Value below which a share of the observations between two readings lies, within its bucket. */
export function quantile(before, now, name, wanted) {
  const first = before.buckets(name);
  const counts = now.buckets(name).map(([end, count], place) => [
    end, count - (first[place]?.[1] ?? 0),
  ]);
  const all = counts.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  let [lower, below] = [0, 0];
  for (const [end, count] of counts) {
    if (count >= wanted * all) {
      if (end === Infinity) return lower;
      return lower + (end - lower) * ((wanted * all - below) / (count - below || 1));
    }
    [lower, below] = [end, count];
  }
  return lower;
}
