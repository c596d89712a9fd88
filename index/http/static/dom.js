// Makes elements. Texts become text nodes: nothing here makes markup out of a text.

const SVG = "http://www.w3.org/2000/svg";

/** An element; children are nodes or texts, and attributes that are false, null or undefined are left out. */
export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of a drawing. */
export function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };

const plain = (text) => text.replace(/&(amp|lt|gt|quot|#x27);/g, (_, name) => ENTITIES[name]);

/** The nodes of a snippet: HTML in which <mark> is all markup. Anything else in it is shown as it is. */
export function marked(html) {
  return html.split(/(<mark>.*?<\/mark>)/s).filter(Boolean).map((part) => {
    const inside = /^<mark>(.*)<\/mark>$/s.exec(part);
    return inside ? make("mark", {}, plain(inside[1])) : document.createTextNode(plain(part));
  });
}
