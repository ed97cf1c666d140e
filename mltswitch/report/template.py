"""The page's text: HTML, style sheet and script, which load nothing from outside the page."""

from typing import Final

STYLE: Final = """
*{box-sizing:border-box}
html{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
body{margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2.5rem);max-width:1500px}
h1{font-size:1.5rem;margin:.2rem 0 .4rem}
h2{font-size:1.2rem;margin:2.2rem 0 .3rem;border-top:1px solid var(--grid);padding-top:1.2rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.3rem 0 .7rem;max-width:78ch}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:.6rem 0}
dt,.muted,figcaption{color:var(--muted)}
dd{margin:0;overflow-wrap:anywhere}
code{font:.85em ui-monospace,monospace}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:.9rem}
.pictures.wide{grid-template-columns:1fr}
figure{margin:0;background:var(--panel);border:1px solid var(--grid);border-radius:6px;
  padding:.5rem .5rem 0;min-width:0}
figcaption{font-weight:600;font-size:.9rem;padding-left:.4rem}
.picture{width:100%;overflow:hidden}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.3rem 0 .7rem;padding:0;list-style:none;
  font-size:.88rem}
.legend li{display:flex;align-items:center;gap:.45rem}
.legend svg{flex:none}
details{margin:.7rem 0}
summary{cursor:pointer;color:var(--muted)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.83rem;font-variant-numeric:tabular-nums;margin:.4rem 0}
th,td{padding:.18rem .7rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th{font-weight:600;color:var(--muted)}
th:first-child,td:first-child,.words th,.words td{text-align:left}
.words td{white-space:normal}
.warning{border-left:4px solid #d55e00;padding:.1rem .8rem;margin:.7rem 0;background:var(--panel)}
.printing body{width:184mm;max-width:none;margin:0;padding:0}
.printing .pictures:not(.wide){grid-template-columns:repeat(2,minmax(0,1fr))}
.printing table{font-size:6.5pt}
.printing th,.printing td{padding:.1rem .35rem}
.printing th,.printing td{white-space:normal}
@media print{
  @page{size:A4;margin:12mm}
  figure,tr,.legend{break-inside:avoid}
  h2,h3,section>p,.legend{break-after:avoid}
  .scroll{overflow:visible}
}
"""

SCRIPT: Final = """
"use strict";
(function () {
  const page = JSON.parse(document.getElementById("pictures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  function themed(part, colours) {
    if (typeof part === "string") {
      return part.startsWith("@") && part.slice(1) in colours ? colours[part.slice(1)] : part;
    }
    if (Array.isArray(part)) { return part.map(function (entry) { return themed(entry, colours); }); }
    if (part !== null && typeof part === "object") {
      return Object.fromEntries(Object.entries(part).map(function (pair) {
        return [pair[0], themed(pair[1], colours)];
      }));
    }
    return part;
  }
  function room(picture) { return Math.floor(picture.getBoundingClientRect().width); }
  function draw() {
    const colours = page.themes[dark.matches && !printing ? "dark" : "light"];
    for (const [name, figure] of Object.entries(page.figures)) {
      const made = themed(figure, colours);
      made.layout.width = room(document.getElementById(name));
      Plotly.react(name, made.data, made.layout, { displayModeBar: false });
    }
  }
  const watcher = new ResizeObserver(function (entries) {
    for (const entry of entries) {
      const width = room(entry.target);
      if (width > 0 && width !== entry.target.layout.width) {
        Plotly.relayout(entry.target, { width: width });
      }
    }
  });
  let opened = [];
  window.addEventListener("beforeprint", function () {
    // The page takes its printed width now: pictures that are drawn later come too late for the printer.
    printing = true;
    document.documentElement.classList.add("printing");
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    for (const entry of opened) { entry.open = true; }
    draw();
  });
  window.addEventListener("afterprint", function () {
    printing = false;
    document.documentElement.classList.remove("printing");
    for (const entry of opened) { entry.open = false; }
    draw();
  });
  dark.addEventListener("change", draw);
  draw();
  for (const name of Object.keys(page.figures)) { watcher.observe(document.getElementById(name)); }
})();
"""

PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:">
<link rel="icon" href="data:,">
<title>{{ title }}</title>
<style>
:root{ {{- light -}} }
@media (prefers-color-scheme:dark){:root{ {{- dark -}} }}
@media print{:root{ {{- light -}} }}
{{ style }}
</style>
</head>
<body>
<main>
<h1>{{ title }}</h1>
<dl>
{%- for name, value in head %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{%- endfor %}
</dl>
<noscript><p class="warning">The pictures need JavaScript; their numbers stand in the tables.</p></noscript>
{%- for section in sections %}
<section>
<h2>{{ section.title }}</h2>
<p>{{ section.text }}</p>
{%- if section.legend %}
<ul class="legend">
{%- for symbol, text in section.legend %}
<li>{{ symbol }}<span>{{ text }}</span></li>
{%- endfor %}
</ul>
{%- endif %}
{%- for block in section.blocks %}
{%- if block.title %}
<h3>{{ block.title }}</h3>
{%- endif %}
{%- for warning in block.warnings %}
<p class="warning">{{ warning }}</p>
{%- endfor %}
{%- if block.figures %}
<div class="pictures{{ ' wide' if block.is_wide }}">
{%- for figure in block.figures %}
<figure>
<figcaption id="{{ figure.name }}-title">{{ figure.title }}</figcaption>
<div class="picture" id="{{ figure.name }}" role="img" aria-label="{{ figure.label }}" \
style="min-height:{{ figure.height_pixels }}px"></div>
</figure>
{%- endfor %}
</div>
{%- endif %}
{%- for table in block.tables %}
{%- if table.is_open %}
{{ draw_table(table) }}
{%- else %}
<details><summary>{{ table.title }}</summary>
{{ draw_table(table) }}
</details>
{%- endif %}
{%- endfor %}
{%- endfor %}
</section>
{%- endfor %}
</main>
<script type="application/json" id="pictures">{{ pictures }}</script>
<script>{{ plotly }}</script>
<script>{{ script }}</script>
</body>
</html>
"""

TABLE: Final = """<div class="scroll"><table{% if table.is_words %} class="words"{% endif %}>
{%- if table.is_open %}<caption class="muted">{{ table.title }}</caption>{% endif %}
<thead><tr>{% for column in table.columns %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in table.rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody></table></div>"""
