package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Misread says what is wrong with a command line, and which command's help to read; it
// returns the exit code.
func Misread(errs io.Writer, err error) int {
	name, text := "fanout", err.Error()
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		at := deepest(parse.Context)
		if at.Parent != nil {
			name = at.FullPath()
		}
		text = reworded(text, at)
	}
	_, _ = fmt.Fprintf(errs, "fanout: %s\nRun %q to see what it takes.\n", clean(text), name+" --help")
	return exitUsage
}

// deepest is the command that was reached, whole or in part.
func deepest(c *kong.Context) *kong.Node {
	at := c.Model.Node
	for _, p := range c.Path {
		if p.Command != nil {
			at = p.Command
		}
	}
	return at
}

// reworded puts kong's sentences into this program's. One that is not known is left as
// it is.
func reworded(text string, at *kong.Node) string {
	group := len(at.Children) > 0
	if word, more, found := cutAround(text, "unexpected argument "); found {
		if group {
			return fmt.Sprintf("there is no command %q%s; there are %s", strings.TrimPrefix(at.Path()+" "+word, " "), more, commandsOf(at))
		}
		return fmt.Sprintf("%q is too much: %s takes %s", word, at.FullPath(), argumentsOf(at))
	}
	if strings.HasPrefix(text, "expected one of ") && group {
		return "say what to do: " + commandsOf(at)
	}
	if rest, found := strings.CutPrefix(text, "expected "); found && !group && strings.HasPrefix(rest, `"`) {
		return fmt.Sprintf("%s needs %s", at.FullPath(), strings.ReplaceAll(rest, `"`, ""))
	}
	return text
}

// cutAround takes the word behind a beginning, and what kong says after it.
func cutAround(text, beginning string) (word, more string, found bool) {
	rest, found := strings.CutPrefix(text, beginning)
	if !found {
		return "", "", false
	}
	word, more, found = strings.Cut(rest, ", did you mean ")
	if found {
		more = " (did you mean " + strings.TrimSuffix(more, "?") + "?)"
	}
	return word, more, true
}

// commandsOf lists what a command is followed by, all of it.
func commandsOf(n *kong.Node) string {
	var names []string
	for _, c := range n.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

func argumentsOf(n *kong.Node) string {
	var names []string
	for _, p := range n.Positional {
		names = append(names, p.Summary())
	}
	if names == nil {
		return "flags only"
	}
	return strings.Join(names, " ")
}
