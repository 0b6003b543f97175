// Browsers do not start workers for pages opened from a folder; there the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    onmessage = null;

    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => this.dispatch(data);
      const script = this.inner.document.createElement("script");
      script.src = address;
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      this.inner.document.body.append(script);
    }

    dispatch(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }
  };
}
