// Functions that make elements. Texts become text nodes; no function parses a text as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; children are nodes or texts. Attributes that are false, null or undefined are left out. */
export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Make an SVG element. */
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

/** Return the nodes of a snippet: HTML in which <mark> is the only markup. Other markup would be shown as text. */
export function marked(html) {
  return html.split(/(<mark>.*?<\/mark>)/s).filter(Boolean).map((part) => {
    const inside = /^<mark>(.*)<\/mark>$/s.exec(part);
    return inside ? make("mark", {}, plain(inside[1])) : document.createTextNode(plain(part));
  });
}
