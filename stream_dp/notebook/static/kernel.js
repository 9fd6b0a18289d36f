/* Where everything on the page comes from in a notebook: the kernel.  It stands in the place of server.js. */

const ANSWER_MS = 20000;
const waiting = new Map();  // the number of a question -> who takes its answer
let asked = 0, wanted = document.documentElement.dataset.query;

for (const link of document.querySelectorAll("[data-of-server]")) link.removeAttribute("href");  // nobody serves what it leads to
window.addEventListener("message", ({ source, data }) => {
  if (source !== parent) return;
  if (data.theme !== undefined) {
    document.documentElement.dataset.theme = data.theme;  // the notebook's has been switched
    return;
  }
  waiting.get(data.number)?.(data);
  waiting.delete(data.number);
});

export function ask(question) {
  const number = (asked += 1);
  return new Promise((take, fail) => {
    waiting.set(number, ({ status, body }) => take({ ok: status === 200, json: () => Promise.resolve(JSON.parse(body)) }));
    setTimeout(() => waiting.delete(number) && fail(new Error("no answer")), ANSWER_MS);
    parent.postMessage({ number, question }, "*");  // a sandboxed page does not know the address of the notebook
  });
}

/* The events of the stream: each is asked for when the one before has been drawn, so none wait in between. */
class Stream extends EventTarget {
  readyState = 1;

  constructor() {
    super();
    this.follow();
  }

  async follow() {
    for (let seen = 0; this.readyState === 1;) {
      try {
        const answer = await ask(`frame?seen=${seen}`);
        const { kind, number, data } = await answer.json();
        if (this.readyState !== 1) return;
        seen = number;
        this.dispatchEvent(new MessageEvent(kind, { data }));
      } catch {
        this.readyState = 2;
        this.dispatchEvent(new Event("error"));
      }
    }
  }

  close() {
    this.readyState = 2;
  }
}

export function openStream() {
  return new Stream();
}

export function query() {
  return wanted;
}

export function setQuery(text) {
  wanted = text;
}
