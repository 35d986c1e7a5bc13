// How are elements made? Text only ever becomes text: nothing here reads markup.

/** The element of an id. */
export const byId = (id) => document.getElementById(id);

/** A new element with properties and children; children are elements or texts. */
export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
