/* The widget's part in the notebook: a frame with the page, and messages between the page and the kernel.

   The frame is sandboxed: the page sees neither the notebook nor its address, whatever the labels on it say. */

/* JupyterLab has a theme of its own, whatever the system asks for; elsewhere this is empty. */
function theme() {
  const isLight = document.body.dataset.jpThemeLight;
  return isLight ? (isLight === "true" ? "light" : "dark") : "";
}

const themed = (page) => (theme() ? page.replace("<html ", `<html data-theme="${theme()}" `) : page);

function render({ model, el }) {
  const frame = document.createElement("iframe"), view = Math.random().toString(36).slice(2);
  const fromKernel = (message) => { if (message.view === view) frame.contentWindow?.postMessage(message, "*"); };
  const fromPage = ({ source, data }) => { if (source === frame.contentWindow) model.send({ ...data, view }); };
  const tell = () => theme() && frame.contentWindow?.postMessage({ theme: theme() }, "*");
  const switched = new MutationObserver(tell);
  switched.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.addEventListener("load", tell);  // it may have been switched meanwhile
  frame.title = model.get("title");
  frame.srcdoc = themed(model.get("page"));
  Object.assign(frame.style, { width: "100%", height: `${model.get("height")}px`, border: "0", colorScheme: "normal" });
  model.on("msg:custom", fromKernel);
  window.addEventListener("message", fromPage);
  el.append(frame);
  return () => {
    switched.disconnect();
    model.off("msg:custom", fromKernel);
    window.removeEventListener("message", fromPage);
    frame.remove();
  };
}

export default { render };
