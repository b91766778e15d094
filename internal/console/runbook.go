package console

import (
	"html/template"
	"net/http"
	"regexp"
	"strings"
	"unicode"
)

// runbook shows the runbook of this version.
func (s *Site) runbook(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusOK, "runbook", page{Title: "Runbook", Path: "/oncall/runbook", Body: s.book})
}

// markdown draws as much of Markdown as our own documents use: headings, paragraphs, lists
// of one level, tables, code. It is for text that is compiled in, and escapes it all the same.
func markdown(text string) template.HTML {
	m := &md{lines: strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")}
	for m.at < len(m.lines) {
		m.block()
	}
	return template.HTML(m.out.String()) //nolint:gosec // escaped piece by piece
}

type md struct {
	lines []string
	at    int
	out   strings.Builder
}

var (
	heading = regexp.MustCompile(`^(#{1,4}) (.+)$`)
	item    = regexp.MustCompile(`^(-|\d+\.) (.*)$`)
	rule    = regexp.MustCompile(`^\|[\s|:-]+\|$`)
)

func (m *md) write(parts ...string) {
	for _, p := range parts {
		m.out.WriteString(p)
	}
}

// block draws what begins at the present line.
func (m *md) block() {
	line := m.lines[m.at]
	if h := heading.FindStringSubmatch(line); h != nil {
		m.at++
		level := []string{"", "h1", "h2", "h3", "h4"}[len(h[1])]
		m.write("<", level, ` id="`, slug(h[2]), `">`, inline(h[2]), "</", level, ">\n")
		return
	}
	switch {
	case strings.TrimSpace(line) == "":
		m.at++
	case strings.HasPrefix(line, "```"):
		m.code()
	case strings.HasPrefix(line, "|"):
		m.table()
	case item.MatchString(line):
		m.list()
	default:
		m.write("<p>", inline(strings.Join(m.take(m.isText), " ")), "</p>\n")
	}
}

// take reads lines while they belong together; at least one.
func (m *md) take(belongs func(string) bool) (all []string) {
	for {
		all = append(all, strings.TrimSpace(m.lines[m.at]))
		m.at++
		if m.at == len(m.lines) || !belongs(m.lines[m.at]) {
			return all
		}
	}
}

func (*md) isText(line string) bool {
	return strings.TrimSpace(line) != "" && !heading.MatchString(line) && !item.MatchString(line) &&
		!strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "```")
}

func (m *md) code() {
	m.at++
	begin := m.at
	for m.at < len(m.lines) && !strings.HasPrefix(m.lines[m.at], "```") {
		m.at++
	}
	m.write(`<pre class="payload" tabindex="0">`, template.HTMLEscapeString(strings.Join(m.lines[begin:m.at], "\n")), "</pre>\n")
	m.at++
}

func (m *md) list() {
	kind := "ul"
	if !strings.HasPrefix(m.lines[m.at], "-") {
		kind = "ol"
	}
	m.write("<", kind, ">")
	for m.at < len(m.lines) {
		found := item.FindStringSubmatch(m.lines[m.at])
		if len(found) == 0 || (found[1] == "-") != (kind == "ul") {
			break
		}
		lines := m.take(m.isText)
		lines[0] = found[2]
		m.write("<li>", inline(strings.Join(lines, " ")), "</li>\n")
	}
	m.write("</", kind, ">\n")
}

func (m *md) table() {
	rows := m.take(func(line string) bool { return strings.HasPrefix(line, "|") })
	m.write(`<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>`)
	for i, row := range rows {
		if rule.MatchString(row) {
			continue
		}
		cell := "td"
		if i == 0 {
			cell = "th"
		}
		m.write("<tr>")
		for c := range strings.SplitSeq(strings.Trim(row, "|"), "|") {
			m.write("<", cell, ">", inline(strings.TrimSpace(c)), "</", cell, ">")
		}
		m.write("</tr>\n")
	}
	m.write("</table></div>\n")
}

var (
	bold = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	to   = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)
)

// inline draws code, bold and links. Only links within the page lead anywhere: the other
// documents are not served.
func inline(text string) string {
	var b strings.Builder
	for i, piece := range strings.Split(text, "`") {
		piece = template.HTMLEscapeString(piece)
		if i%2 == 1 {
			b.WriteString("<code>" + piece + "</code>")
			continue
		}
		piece = bold.ReplaceAllString(piece, "<strong>$1</strong>")
		b.WriteString(piece)
	}
	return to.ReplaceAllStringFunc(b.String(), func(s string) string {
		part := to.FindStringSubmatch(s)
		if strings.HasPrefix(part[2], "#") {
			return `<a href="` + part[2] + `">` + part[1] + `</a>`
		}
		return part[1]
	})
}

// slug is a heading's anchor, as GitHub makes it.
func slug(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
