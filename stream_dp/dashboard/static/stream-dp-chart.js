/* <stream-dp-chart query="label=tea&window=5m"></stream-dp-chart>: the chart of a dashboard on a page of another site.

   The dashboard is the one that this script comes from; where that shows several streams, stream="NAME" says which.
   It must name the site: stream-dp dashboard --embed-in ORIGIN. */

class StreamDpChart extends HTMLElement {
  static observedAttributes = ["query", "stream", "title"];

  connectedCallback() {
    this.frame = document.createElement("iframe");
    Object.assign(this.frame.style, { width: "100%", height: "100%", border: "0", colorScheme: "normal" });
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    if (!this.style.height) this.style.height = "30rem";
    this.style.display ||= "block";
    root.replaceChildren(this.frame);
    this.show();
  }

  attributeChangedCallback() {
    if (this.frame) this.show();
  }

  show() {
    const stream = this.getAttribute("stream");
    const address = new URL(stream ? `streams/${encodeURIComponent(stream)}/embed` : "embed", import.meta.url);
    address.search = this.getAttribute("query") ?? "";
    this.frame.title = this.getAttribute("title") ?? "Counts over time, with noise that protects everybody";
    if (this.frame.src !== address.href) this.frame.src = address.href;
  }
}

customElements.define("stream-dp-chart", StreamDpChart);
