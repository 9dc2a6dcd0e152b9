// Draws what a page shows as SVG: boxes, borders, lines of text, underlines, controls, and the page's own SVG.
(([x0, y0, width, height]) => {
  const out = [];
  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const number = (value) => String(Math.round(value * 10) / 10);
  const put = (name, attributes, text) => {
    const list = Object.entries(attributes).filter(([, value]) => value !== undefined && value !== "" && value !== null);
    const start = `<${name} ${list.map(([key, value]) => `${key}="${escape(typeof value === "number" ? number(value) : String(value))}"`).join(" ")}`;
    out.push(text === undefined ? `${start}/>` : `${start}>${escape(text)}</${name}>`);
  };
  const clear = (colour) => !colour || colour === "transparent" || /rgba\(.*, 0\)$/.test(colour);
  const inside = (box) => box.width > 0 && box.height > 0 && box.right > x0 && box.left < x0 + width && box.bottom > y0 && box.top < y0 + height;
  const at = (box) => ({ x: box.left - x0, y: box.top - y0 });

  // A gradient is drawn as stripes of its first colour: the pages use gradients for nothing else.
  const hatched = [];
  const hatch = (colour) => {
    if (!hatched.includes(colour)) hatched.push(colour);
    return `url(#hatch-${hatched.indexOf(colour)})`;
  };
  const hatches = () => hatched.map((colour, i) => `<pattern id="hatch-${i}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2" height="6" fill="${colour}"/></pattern>`).join("");

  const box = (element, style) => {
    const rect = element.getBoundingClientRect();
    if (!inside(rect)) return;
    const place = at(rect);
    const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, rect.height / 2);
    const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({
      width: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]),
      colour: style[`border${side}Color`],
      dash: { dashed: "4 3", dotted: "1 3" }[style[`border${side}Style`]],
    }));
    const even = sides.every((side) => side.width === sides[0].width && side.colour === sides[0].colour) && sides[0].width > 0 && !clear(sides[0].colour);
    const inset = even ? sides[0].width / 2 : 0;
    if (!clear(style.backgroundColor) || even) {
      put("rect", {
        x: place.x + inset, y: place.y + inset, width: rect.width - 2 * inset, height: rect.height - 2 * inset, rx: radius || undefined,
        fill: clear(style.backgroundColor) ? "none" : style.backgroundColor,
        stroke: even ? sides[0].colour : undefined, "stroke-width": even ? sides[0].width : undefined, "stroke-dasharray": even ? sides[0].dash : undefined,
      });
    }
    const colours = style.backgroundImage.includes("gradient") ? style.backgroundImage.match(/rgba?\([^)]*\)|color\([^)]*\)/g) ?? [] : [];
    const stroke = colours.find((colour) => !clear(colour));
    if (stroke) put("rect", { x: place.x, y: place.y, width: rect.width, height: rect.height, rx: radius || undefined, fill: hatch(stroke) });
    if (even) return;
    const ends = [[0, 0, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]];
    sides.forEach((side, i) => {
      if (!side.width || clear(side.colour)) return;
      const [ax, ay, bx, by] = ends[i];
      put("line", { x1: place.x + ax * rect.width, y1: place.y + ay * rect.height, x2: place.x + bx * rect.width, y2: place.y + by * rect.height, stroke: side.colour, "stroke-width": side.width, "stroke-dasharray": side.dash });
    });
  };

  const words = (node, style) => {
    const text = node.textContent;
    const range = document.createRange();
    let line = null;
    const end = () => {
      if (line && line.text.trim() && inside(line.box)) draw(line, style);
      line = null;
    };
    for (let i = 0; i < text.length; i += 1) {
      range.setStart(node, i);
      range.setEnd(node, i + 1);
      const rect = range.getClientRects()[0];
      if (!rect || !rect.width) continue;
      if (line && Math.abs(rect.top - line.box.top) > 2) end();
      if (!line) line = { text: "", box: { left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom, width: 0, height: rect.height } };
      line.text += text[i];
      line.box.right = rect.right;
      line.box.width = rect.right - line.box.left;
    }
    end();
  };

  const draw = ({ text, box: rect }, style) => {
    const size = parseFloat(style.fontSize);
    const baseline = rect.top - y0 + rect.height / 2 + size * 0.34;
    const shown = style.textTransform === "uppercase" ? text.toUpperCase() : text;
    const mono = style.fontFamily.includes("mono");
    const spaced = style.letterSpacing !== "normal";
    put("text", {
      x: rect.left - x0, y: baseline, "font-size": size, fill: style.color, "xml:space": "preserve",
      ...(spaced ? { "letter-spacing": style.letterSpacing } : { textLength: rect.width, lengthAdjust: "spacingAndGlyphs" }),
      "font-weight": Number(style.fontWeight) > 500 ? "bold" : undefined, "font-family": mono ? "monospace" : undefined,
    }, shown.replaceAll("\n", " "));
  };

  // Decorations belong to the element that declares them, and show under all of its text.
  const decorate = (element, style) => {
    const kinds = style.textDecorationLine;
    if (kinds === "none" || !["underline", "line-through"].includes(kinds)) return;
    for (const rect of element.getClientRects()) {
      if (!inside(rect)) continue;
      const thick = parseFloat(style.textDecorationThickness) || 1.5;
      const y = kinds === "underline" ? rect.bottom - y0 - 1 : rect.top - y0 + rect.height * 0.55;
      const dash = { dotted: `${thick} ${thick}`, dashed: "4 3" }[style.textDecorationStyle];
      const line = (dy) => put("line", { x1: rect.left - x0, y1: y + dy, x2: rect.right - x0, y2: y + dy, stroke: style.textDecorationColor, "stroke-width": thick, "stroke-dasharray": dash });
      line(0);
      if (style.textDecorationStyle === "double") line(thick + 1.5);
    }
  };

  const control = (element, style) => {
    const rect = element.getBoundingClientRect();
    if (!inside(rect)) return;
    const [x, y, middle] = [rect.left - x0, rect.top - y0, rect.top - y0 + rect.height / 2];
    const accent = style.accentColor === "auto" ? style.color : style.accentColor;
    if (element.type === "range") {
      const share = (element.value - element.min) / (element.max - element.min || 1);
      put("rect", { x, y: middle - 3, width: rect.width, height: 6, rx: 3, fill: style.color, "fill-opacity": "0.15" });
      put("rect", { x, y: middle - 3, width: share * rect.width, height: 6, rx: 3, fill: accent });
      put("circle", { cx: x + 7 + share * (rect.width - 14), cy: middle, r: 8, fill: accent });
    } else if (element.type === "radio" || element.type === "checkbox") {
      const round = element.type === "radio" ? rect.width / 2 : 3;
      put("rect", { x: x + 2, y: y + 2, width: rect.width - 4, height: rect.height - 4, rx: round, fill: "none", stroke: accent, "stroke-width": 1.5 });
      if (element.checked && element.type === "checkbox") {
        put("rect", { x: x + 2, y: y + 2, width: rect.width - 4, height: rect.height - 4, rx: round, fill: accent });
        put("path", { d: `M${number(x + 5)} ${number(middle)}l3.5 3.5l6.5 -7`, fill: "none", stroke: getComputedStyle(document.body).backgroundColor, "stroke-width": 2 });
      } else if (element.checked) put("rect", { x: x + 6, y: y + 6, width: rect.width - 12, height: rect.height - 12, rx: element.type === "radio" ? rect.width / 2 : 1, fill: accent });
    } else {
      box(element, style);
      const text = element.tagName === "SELECT" ? element.selectedOptions[0]?.textContent : element.value || element.placeholder || "";
      const size = parseFloat(style.fontSize);
      const left = x + parseFloat(style.paddingLeft) + parseFloat(style.borderLeftWidth);
      const first = element.tagName === "TEXTAREA" ? y + parseFloat(style.paddingTop) + size * 1.2 : middle + size * 0.34;
      (text ?? "").split("\n").forEach((line, i) => put("text", { x: left, y: first + i * size * 1.5, "font-size": size, fill: style.color, "xml:space": "preserve", "font-family": style.fontFamily.includes("mono") ? "monospace" : undefined }, line));
      if (element.tagName === "SELECT") put("path", { d: `M${number(rect.right - x0 - 20)} ${number(middle - 2)}l5 5l5 -5`, fill: "none", stroke: style.color, "stroke-width": 1.5 });
    }
  };

  const graphics = (svg) => {
    const rect = svg.getBoundingClientRect();
    if (!inside(rect)) return;
    const copy = svg.cloneNode(true);
    const [from, to] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
    from.forEach((element, i) => {
      const style = getComputedStyle(element);
      for (const name of ["class", "style", "tabindex", "role"]) to[i].removeAttribute(name);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-weight", "text-anchor", "dominant-baseline"]) {
        const value = style.getPropertyValue(name);
        if (value && !(name === "opacity" && value === "1") && !(name === "stroke-dasharray" && value === "none")) to[i].setAttribute(name, value);
      }
      if (style.display === "none" || style.visibility === "hidden") to[i].setAttribute("display", "none");
    });
    copy.setAttribute("x", number(rect.left - x0));
    copy.setAttribute("y", number(rect.top - y0));
    copy.setAttribute("width", number(rect.width));
    copy.setAttribute("height", number(rect.height));
    out.push(new XMLSerializer().serializeToString(copy).replaceAll(' xmlns="http://www.w3.org/2000/svg"', ""));
  };

  // The triangle of a part that can be folded away.
  const marker = (element, style) => {
    const rect = element.getBoundingClientRect();
    if (!inside(rect) || style.display !== "list-item") return;
    const [x, middle] = [rect.left - x0, rect.top - y0 + rect.height / 2];
    const d = element.parentElement.open ? `M${number(x)} ${number(middle - 4)}h10l-5 8z` : `M${number(x)} ${number(middle - 5)}v10l8 -5z`;
    put("path", { d, fill: style.color });
  };

  const late = []; // what floats above the rest
  const walk = (element, floats = false) => {
    const style = getComputedStyle(element);
    if (!floats && ["sticky", "fixed"].includes(style.position)) return void late.push(element);
    if (style.display === "none" || style.visibility === "hidden" || element.classList.contains("unseen") || !element.checkVisibility()) return;
    if (element instanceof SVGSVGElement) return graphics(element);
    if (["INPUT", "SELECT", "TEXTAREA"].includes(element.tagName)) return control(element, style);
    box(element, style);
    if (element.tagName === "SUMMARY") marker(element, style);
    for (const node of element.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) words(node, style);
      else if (node.nodeType === Node.ELEMENT_NODE) walk(node);
    }
    decorate(element, style);
  };

  walk(document.body);
  for (const element of late.splice(0)) walk(element, true);
  const back = getComputedStyle(document.body).backgroundColor;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="Inter, system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif">\n<rect width="${width}" height="${height}" rx="10" fill="${back}"/>\n<defs>${hatches()}</defs>\n${out.join("\n")}\n</svg>\n`;
})
