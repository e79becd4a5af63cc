"""The style and the scripts of the page of `wirescan report`, and the policy that bounds them.

Plotly draws the charts. Its script is in the page, so the page loads nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

from wirescan.frames.optional_packages import name_package

STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:1rem auto;
max-width:60rem;padding:0 1rem;overflow-wrap:anywhere}pre,.wide{overflow-x:auto}
label{display:block}select{max-width:100%}td,th{text-align:left;vertical-align:top;
padding-right:1rem}th,.wide td{overflow-wrap:normal}.wide td{max-width:24rem}
.key{display:inline-block;width:1em;height:1em;margin-right:.3em;vertical-align:-.1em}
.chart .modebar-btn:focus-visible{outline:2px solid currentColor!important}
"""

# Shows the faults that match both selections.
FILTER_SCRIPT = """
const selects=[...document.querySelectorAll("select")];
const shown=document.getElementById("shown");
function filter(){let n=0;for(const e of document.querySelectorAll("details[data-fault]")){
const match=selects.every(s=>!s.value||e.dataset[s.id]===s.value);
e.hidden=!match;n+=match;}shown.textContent=n+" shown";}
selects.forEach(s=>s.addEventListener("change",filter));if(shown)filter();
"""

# Draws each chart when it is near the window. A chart's JSON is in the element after it. Plotly
# makes several drawings in a chart: the first is the image, with the chart's name. A finger scrolls
# the page, so zooming by touch is done with the buttons.
CHART_SCRIPT = """
const dark=matchMedia("(prefers-color-scheme: dark)");
const drag=matchMedia("(pointer: coarse)").matches?false:"zoom";
const config={responsive:true,displaylogo:false,displayModeBar:true,typesetMath:false,
plotlyServerURL:"",showLink:false,showTips:false,
modeBarButtons:[["zoomIn2d","zoomOut2d","pan2d","zoom2d","resetScale2d","toImage"]]};
function style(){const text=getComputedStyle(document.body).color;
const grid=dark.matches?"#4a4a4a":"#dcdcdc",back=dark.matches?"#262626":"#ffffff";
const axis={color:text,gridcolor:grid,zerolinecolor:grid,linecolor:grid,
automargin:true};
return{layout:{paper_bgcolor:"rgba(0,0,0,0)",plot_bgcolor:"rgba(0,0,0,0)",font:{color:text},
xaxis:axis,yaxis:axis,hoverlabel:{bgcolor:back,font:{color:text},namelength:-1},
modebar:{bgcolor:"rgba(0,0,0,0)",color:text,activecolor:"#3b82c4"},hovermode:"closest",
dragmode:drag,margin:{l:60,r:20,t:30,b:45}}};}
const charts=[...document.querySelectorAll(".chart")];
const read=e=>JSON.parse(e.nextElementSibling.textContent);
function name(e){e.querySelectorAll("svg.main-svg").forEach((svg,i)=>{
if(i){svg.setAttribute("aria-hidden","true");return;}
svg.setAttribute("role","img");svg.setAttribute("aria-label",e.dataset.label);});}
async function draw(e){if(e.dataset.state)return;e.dataset.state="waiting";
const {traces,layout}=read(e);
await Plotly.newPlot(e,traces,{...layout,template:style()},config);
name(e);e.dataset.state="drawn";}
for(const e of charts)e.style.height=read(e).layout.height+"px";
const observer=new IntersectionObserver(entries=>{for(const entry of entries)
if(entry.isIntersecting){observer.unobserve(entry.target);draw(entry.target);}},
{rootMargin:"600px"});
for(const e of charts)observer.observe(e);
addEventListener("beforeprint",()=>charts.forEach(draw));
dark.addEventListener("change",()=>{for(const e of charts)
if(e.dataset.state==="drawn")Plotly.relayout(e,{template:style()}).then(()=>name(e));});
"""


def load_plotly() -> str:
    """Return the script of Plotly.

    Raises:
        ModuleNotFoundError: plotly is not installed.
    """
    with name_package("plotly", "an HTML report without --markdown", "'wirescan[report]'"):
        from plotly.offline import get_plotlyjs
    script: str = get_plotlyjs()
    # In strings of JavaScript the two are equal. The first would end the element.
    return script.replace("</script", "<\\/script")


def encode_json(value: Any) -> str:
    """Return JSON that nothing in an HTML page reads as markup."""
    text = json.dumps(value, default=str, separators=(",", ":"))
    # json.dumps escapes all but ASCII.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def make_policy(*scripts: str) -> str:
    """Return a Content-Security-Policy: the page loads nothing, and runs only these scripts.

    Plotly sets styles, and makes an image when the reader asks for one.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none';script-src {hashes};style-src 'unsafe-inline';"
        "img-src data: blob:;base-uri 'none';form-action 'none'"
    )


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()
