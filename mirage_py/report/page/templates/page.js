(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  // A theme of the reader's choice, for this page.
  var theme = document.getElementById("theme");
  if (theme) theme.addEventListener("click", function () {
    var dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  // Text to paste elsewhere.
  document.querySelectorAll(".copy").forEach(function (box) {
    var button = document.createElement("button"), text = box.querySelector("pre").textContent;
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", function () {
      var done = function () { button.textContent = "Copied"; setTimeout(function () { button.textContent = "Copy"; }, 1500); };
      if (navigator.clipboard && isSecureContext) { navigator.clipboard.writeText(text).then(done); return; }
      var area = document.createElement("textarea");
      area.value = text;
      document.body.appendChild(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      done();
    });
    box.appendChild(button);
  });
  // Pictures grow and shrink: buttons, and the wheel with Ctrl held.
  document.querySelectorAll(".tools[data-for]").forEach(function (bar) {
    var frame = document.getElementById(bar.dataset.for), svg = frame && frame.querySelector("svg");
    if (!svg) return;
    var width = +svg.getAttribute("width"), height = +svg.getAttribute("height"), scale = 0;
    function show(next) {
      scale = Math.min(4, Math.max(0.2, next));
      frame.classList.remove("fit");
      svg.setAttribute("width", width * scale);
      svg.setAttribute("height", height * scale);
    }
    function now() { return scale || svg.getBoundingClientRect().width / width; }
    var does = { "+": function () { show(now() * 1.3); }, "-": function () { show(now() / 1.3); }, "1": function () { show(1); },
      fit: function () { scale = 0; frame.classList.add("fit"); svg.setAttribute("width", width); svg.setAttribute("height", height); } };
    bar.querySelectorAll("button[data-zoom]").forEach(function (button) {
      button.addEventListener("click", does[button.dataset.zoom]);
    });
    frame.addEventListener("wheel", function (event) {
      if (!event.ctrlKey) return;
      event.preventDefault();
      show(now() * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
    }, { passive: false });
  });
  // A listing begins where its kernel does.
  document.querySelectorAll(".listing[data-start]").forEach(function (frame) {
    var line = document.getElementById(frame.dataset.start);
    if (line) frame.scrollTop = line.offsetTop - 12;
  });
  // A node and its line of code light up together, and come into view inside of their frames.
  var on = [];
  function reveal(element) {
    var frame = element.closest(".picture, .listing");
    if (!frame) return;
    var a = element.getBoundingClientRect(), b = frame.getBoundingClientRect();
    if (a.top < b.top || a.bottom > b.bottom) frame.scrollTop += a.top - b.top - frame.clientHeight / 3;
    if (a.left < b.left || a.left > b.right) frame.scrollLeft += a.left - b.left - frame.clientWidth / 3;
  }
  function light(elements) {
    on.forEach(function (element) { element.classList.remove("on", "mp-on"); });
    on = elements.filter(Boolean);
    on.forEach(function (element) { element.classList.add(element.closest("svg") ? "mp-on" : "on"); reveal(element); });
  }
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a.mp-node, .listing a");
    if (!link) return;
    var to = document.getElementById(decodeURIComponent((link.getAttribute("href") || "").slice(1)));
    var from = link.matches(".listing a") ? link.closest(".l") : link;
    if (to) light([to, from]);
  });
  // A link into something folded opens it.
  function open() {
    var to = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (var fold = to && to.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (to && to.closest("details")) to.scrollIntoView();
    if (to) reveal(to);
  }
  addEventListener("hashchange", open);
  open();
  // A table sorts by the column whose head is pressed.
  document.querySelectorAll("table.sorts").forEach(function (table) {
    table.querySelectorAll("thead th").forEach(function (head, column) {
      var label = head.textContent, up = false, button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      head.textContent = "";
      head.appendChild(button);
      button.addEventListener("click", function () {
        var body = table.tBodies[0], rows = Array.from(body.rows);
        up = !up;
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        rows.sort(function (a, b) {
          var x = a.cells[column].dataset.value || a.cells[column].textContent, y = b.cells[column].dataset.value || b.cells[column].textContent;
          var order = isNaN(x) || isNaN(y) || x === "" || y === "" ? x.localeCompare(y) : x - y;
          return up ? order : -order;
        });
        rows.forEach(function (row) { body.appendChild(row); });
      });
    });
  });
})();
