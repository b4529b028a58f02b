/*
 * How a report looks on screen and on paper, and the small script that shows a curve's values under the
 * pointer.
 * Owns nothing.
 * Must not know what is reported.
 */
#include "config.h"

#include "measure/report_parts.h"

/* Light on ink; A4 and Letter alike. */
static const char style[] =
    ":root{--ink:#1b1f24;--soft:#5b6570;--line:#d9dee3;--pale:#f5f7f9;--blue:#0b62a4;--red:#b3380e;--green:#"
    "0b7a55}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:#fff;color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Helvetica Neue','DejaVu "
    "Sans',Arial,sans-serif;-webkit-print-color-adjust:exact;print-color-adjust:exact}\n"
    "main{max-width:1048px;margin:0 auto;padding:28px 24px 56px}\n"
    "h1{font-size:28px;line-height:1.2;margin:0;overflow-wrap:anywhere}\n"
    "h2{font-size:19px;margin:40px 0 10px;padding-bottom:5px;border-bottom:2px solid var(--ink)}\n"
    "h3{font-size:15px;margin:18px 0 6px}\n"
    "p{margin:6px 0}\n"
    ".kicker{color:var(--soft);font-size:13px;letter-spacing:.02em;margin:0 0 4px}\n"
    ".badge{display:inline-block;vertical-align:6px;margin-left:10px;padding:1px "
    "10px;border-radius:11px;font-size:13px;"
    "font-weight:600;border:1.5px solid}\n"
    ".good{color:var(--green)}.open{color:var(--blue)}.bad{color:var(--red)}\n"
    ".sub{color:var(--soft);overflow-wrap:anywhere}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:10px;margin:18px 0 "
    "6px}\n"
    ".tile{border:1px solid var(--line);border-radius:7px;padding:9px 13px;break-inside:avoid}\n"
    ".tile "
    "b{display:block;font-size:21px;line-height:1.3;font-weight:650;font-variant-numeric:tabular-nums}\n"
    ".tile span{display:block;color:var(--soft);font-size:12.5px;line-height:1.35}\n"
    ".box{border-left:5px solid var(--blue);background:var(--pale);padding:10px 16px;margin:10px "
    "0;break-inside:avoid}\n"
    ".box.warn{border-color:#d98a00}.box.well{border-color:var(--green)}.box h3{margin:2px 0 4px}.box "
    "ul{margin:4px 0;padding-left:20px}\n"
    ".grid{display:grid;grid-template-columns:1fr 1fr;gap:14px 24px}\n"
    "figure{margin:14px 0 4px;break-inside:avoid;min-width:0}figure.wide{grid-column:1/-1}\n"
    "figcaption{font-weight:600;margin-bottom:4px}\n"
    ".scroll{overflow-x:auto}\n"
    "svg{display:block;width:100%;height:auto;font-family:inherit}\n"
    "svg text{font-size:12px;font-variant-numeric:tabular-nums}svg text:not([fill]){fill:#3a424b}\n"
    "svg .mid{text-anchor:middle}svg .end{text-anchor:end}\n"
    "svg .small{font-size:11px}svg .label{font-weight:600}svg "
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}\n"
    "svg .grid{stroke:#e6eaee;stroke-width:1}svg .axis,svg .tick{stroke:#6b7480;stroke-width:1;fill:none}\n"
    "svg .rule{stroke:#6b7480;stroke-width:1;stroke-dasharray:3 3;fill:none}\n"
    "svg polyline{stroke-linejoin:round;stroke-linecap:round}\n"
    ".note{color:var(--soft);font-size:13px}\n"
    ".legend{font-size:13px;margin:6px 0}.legend span{white-space:nowrap;margin-right:14px}\n"
    ".legend i,td i{display:inline-block;width:11px;height:11px;margin-right:6px;border-radius:2px}\n"
    "table{border-collapse:collapse;width:100%;font-size:13.5px;margin:8px 0}\n"
    "th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid "
    "var(--line);vertical-align:top;overflow-wrap:anywhere}\n"
    "th{font-weight:600;color:var(--soft)}thead th{border-bottom:1.5px solid "
    "var(--soft);vertical-align:bottom}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "tr{break-inside:avoid}tr.sum td{font-weight:600;border-bottom:0}\n"
    "dl{margin:8px 0;font-size:13.5px}dl.two{columns:2;column-gap:24px}\n"
    "dl div{display:flex;gap:12px;padding:4px 0;border-bottom:1px solid var(--line);break-inside:avoid}\n"
    "dt{flex:0 0 170px;color:var(--soft)}dd{margin:0;min-width:0;overflow-wrap:anywhere}\n"
    "code{font:12.5px/1.45 ui-monospace,'DejaVu Sans Mono',Consolas,monospace;overflow-wrap:anywhere}\n"
    "footer{margin-top:44px;color:var(--soft);font-size:12.5px;border-top:1px solid "
    "var(--line);padding-top:8px}\n"
    "#tip{position:fixed;display:none;pointer-events:none;background:#fff;border:1px solid "
    "#8a939c;border-radius:5px;"
    "padding:4px 9px;font-size:12.5px;line-height:1.4;white-space:pre;box-shadow:0 2px 7px "
    "rgba(0,0,0,.16);z-index:2}\n"
    "@media (max-width:760px){main{padding:16px 14px "
    "40px}.grid{grid-template-columns:1fr}dl.two{columns:1}dt{flex-basis:130px}h1{font-size:23px}"
    ".scroll svg.wide{min-width:720px}.scroll "
    "svg.half{min-width:400px}.wide-table{overflow-x:auto}.wide-table "
    "table{white-space:nowrap}.tiles{grid-template-columns:1fr 1fr}}\n"
    "@page{margin:13mm}\n"
    "@media print{body{font-size:10.5pt}main{max-width:none;padding:0}h2{margin-top:22px;break-after:avoid}"
    "h3,figcaption{break-after:avoid}dl.two{columns:2}dt{flex-basis:120px}.scroll{overflow:visible}.scroll "
    "svg{min-width:0!important}"
    ".grid{grid-template-columns:1fr 1fr}.tiles{grid-template-columns:repeat(4,1fr);gap:7px}"
    ".tile{padding:6px 9px}.wide-table{break-inside:avoid}svg.wide text{font-size:14.5px}"
    "svg.half text{font-size:13px}#tip{display:none!important}"
    "table,dl{font-size:9.5pt}.note,.legend{font-size:9pt}}\n";

/* Without < and &, so that the page is XML too. */
static const char script[] =
    "(function(){'use strict';\n"
    "var tip=document.getElementById('tip');\n"
    "function numbers(s){return s.trim().split(/[ ,]+/).map(Number)}\n"
    "function text(v){var a=Math.abs(v);return "
    "a>=1000?Math.round(v).toLocaleString('en'):a>=10?v.toFixed(1):a>=0.01?v.toFixed(4):"
    "a>0?v.toExponential(2):'0'}\n"
    "function time(s){var m=Math.floor(s/60),h=Math.floor(m/60);function two(n){return (10>n?'0':'')+n}\n"
    " return h?h+':'+two(m%60)+':'+two(Math.floor(s%60)):m?m+':'+two(Math.floor(s%60)):s.toFixed(1)+' s'}\n"
    "function under(svg,x,y){var found=null;svg.querySelectorAll('g.plot').forEach(function(g){var "
    "b=numbers(g.dataset.box);\n"
    " if(x>=b[0])if(b[1]>=x)if(y>=b[2]-8)if(b[3]+4>=y)found=g});return found}\n"
    "document.querySelectorAll('svg').forEach(function(svg){\n"
    " svg.addEventListener('mousemove',function(e){var r=svg.getBoundingClientRect(),v=svg.viewBox.baseVal;\n"
    "  var x=(e.clientX-r.left)*v.width/r.width,y=(e.clientY-r.top)*v.height/r.height,g=under(svg,x,y);\n"
    "  if(!g){tip.style.display='none';return}\n"
    "  var b=numbers(g.dataset.box),d=numbers(g.dataset.range),w=g.dataset.words.split('|'),lines=[];\n"
    "  var at=d[0]+(x-b[0])*(d[1]-d[0])/(b[1]-b[0]);\n"
    "  lines.push(w[1]==='time'?time(at):w[0]+' '+Math.round(at));\n"
    "  g.querySelectorAll('polyline[data-name]').forEach(function(l){var "
    "p=numbers(l.getAttribute('points')),best=0;\n"
    "   for(var i=0;p.length>i;i+=2)if(Math.abs(p[best]-x)>Math.abs(p[i]-x))best=i;\n"
    "   if(p.length)if((b[1]-b[0])/20>Math.abs(p[best]-x))lines.push(l.dataset.name+': "
    "'+text(d[2]+(b[3]-p[best+1])*(d[3]-d[2])/(b[3]-b[2]))+(w[2]?' '+w[2]:''))});\n"
    "  tip.textContent=lines.join('\\n');tip.style.display='block';\n"
    "  var left=e.clientX+16;if(left+tip.offsetWidth+8>window.innerWidth)left=e.clientX-tip.offsetWidth-12;\n"
    "  tip.style.left=left+'px';tip.style.top=(e.clientY+14)+'px'});\n"
    " svg.addEventListener('mouseleave',function(){tip.style.display='none'})})})();\n";

const char *dry_report_style(void)
{
    return style;
}

const char *dry_report_script(void)
{
    return script;
}
