package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// ErrUnknownKey is returned for a key of the file that is no flag's name: a
// misspelt setting must not be a silent default.
var ErrUnknownKey = errors.New("unknown key in the configuration file")

// file is a YAML mapping, flattened: {redis: {addr: a}} holds "redis-addr", and
// also "redis" as text ("addr=a"), in case a flag of that name takes pairs. Keys
// are the flags' names, with - or _.
type file struct {
	values map[string]string
	leaves []string // keys that hold no further keys
}

// loadYAML is kong's configuration loader.
func loadYAML(r io.Reader) (kong.Resolver, error) {
	var doc yaml.Node
	if err := yaml.NewDecoder(r).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	f := &file{values: map[string]string{}}
	for _, n := range doc.Content { // one, or none if the file is empty
		if n.Kind != yaml.MappingNode {
			return nil, errors.New("configuration file: want a mapping of settings")
		}
		if _, err := f.add("", n); err != nil {
			return nil, fmt.Errorf("configuration file: %w", err)
		}
	}
	return f, nil
}

// add enters the node under its key and returns it as a flag would be written.
// Scalars stay as they stand in the file: what 0123 or no means is the flag's
// affair, and a password may be either.
func (f *file) add(key string, n *yaml.Node) (string, error) {
	if _, twice := f.values[key]; twice {
		return "", fmt.Errorf("line %d: %s is set twice", n.Line, key)
	}
	var parts []string
	switch n.Kind {
	case yaml.ScalarNode:
		parts = []string{n.Value}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("line %d: %s: want a list of plain values", c.Line, key)
			}
			parts = append(parts, c.Value)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			name := n.Content[i].Value
			sub := strings.TrimPrefix(key+"-"+strings.ReplaceAll(name, "_", "-"), "-")
			v, err := f.add(sub, n.Content[i+1])
			if err != nil {
				return "", err
			}
			parts = append(parts, name+"="+v)
		}
	default:
		return "", fmt.Errorf("line %d: %s: aliases are not supported", n.Line, key)
	}
	if len(n.Content) == 0 || n.Kind == yaml.SequenceNode {
		f.leaves = append(f.leaves, key)
	}
	f.values[key] = strings.Join(parts, ",") // the separator of every list and map flag
	return f.values[key], nil
}

// Validate returns ErrUnknownKey for each key that no command of the program knows.
func (f *file) Validate(app *kong.Application) error {
	known := map[string]bool{}
	err := kong.Visit(app, func(n kong.Visitable, next kong.Next) error {
		if flag, ok := n.(*kong.Flag); ok {
			known[flag.Name] = true
		}
		return next(nil)
	})
	for _, key := range f.leaves {
		name, ok := key, known[key]
		for i := strings.LastIndexByte(name, '-'); !ok && i > 0; i = strings.LastIndexByte(name, '-') {
			name = name[:i] // a pair of a flag that takes pairs
			_, isMap := f.values[name]
			ok = isMap && known[name]
		}
		if !ok {
			err = errors.Join(err, fmt.Errorf("%w: %q", ErrUnknownKey, key))
		}
	}
	return err
}

// Resolve yields to a set variable: kong on its own lets a file win over it.
func (f *file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil //nolint:nilnil // kong's way to say: not from here
		}
	}
	if v, ok := f.values[flag.Name]; ok {
		return v, nil
	}
	return nil, nil //nolint:nilnil // as above
}
