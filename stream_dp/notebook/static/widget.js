/* The widget's part in the notebook: a frame with the page, and messages between the page and the kernel.

   The frame is sandboxed: the page sees neither the notebook nor its address, whatever the labels on it say. */

/* JupyterLab has a theme of its own, whatever the system asks for. */
function themed(page) {
  const isLight = document.body.dataset.jpThemeLight;
  return isLight ? page.replace("<html ", `<html data-theme="${isLight === "true" ? "light" : "dark"}" `) : page;
}

function render({ model, el }) {
  const frame = document.createElement("iframe"), view = Math.random().toString(36).slice(2);
  const fromKernel = (message) => { if (message.view === view) frame.contentWindow?.postMessage(message, "*"); };
  const fromPage = ({ source, data }) => { if (source === frame.contentWindow) model.send({ ...data, view }); };
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.title = model.get("title");
  frame.srcdoc = themed(model.get("page"));
  Object.assign(frame.style, { width: "100%", height: `${model.get("height")}px`, border: "0", colorScheme: "normal" });
  model.on("msg:custom", fromKernel);
  window.addEventListener("message", fromPage);
  el.append(frame);
  return () => {
    model.off("msg:custom", fromKernel);
    window.removeEventListener("message", fromPage);
    frame.remove();
  };
}

export default { render };
