package console

import "testing"

func TestMarkdown(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"# A title":                         `<h1 id="a-title">A title</h1>` + "\n",
		"## Concentrated outage: `x`, now":  `<h2 id="concentrated-outage-x-now">Concentrated outage: <code>x</code>, now</h2>` + "\n",
		"one\ntwo\n\nthree":                 "<p>one two</p>\n<p>three</p>\n",
		"- a\n  goes on\n- **b**\n\ntext":   "<ul><li>a goes on</li>\n<li><strong>b</strong></li>\n</ul>\n<p>text</p>\n",
		"1. a\n2. b":                        "<ol><li>a</li>\n<li>b</li>\n</ol>\n",
		"```sh\nx < 1\n\n# no heading\n```": `<pre class="payload" tabindex="0">x &lt; 1` + "\n\n# no heading</pre>\n",
		"```\nnever closed":                 `<pre class="payload" tabindex="0">never closed</pre>` + "\n",
		"| a | `b` |\n|---|---|\n| 1 | 2 |": `<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>` +
			"<tr><th>a</th><th><code>b</code></th></tr>\n<tr><td>1</td><td>2</td></tr>\n</table></div>\n",
		"<script> [here](#there) [other](redis.md) `[no](#link) **`": "<p>&lt;script&gt; <a href=\"#there\">here</a> other <code><a href=\"#link\">no</a> **</code></p>\n",
		"": "",
	} {
		if got := string(markdown(in)); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", in, got, want)
		}
	}
}
