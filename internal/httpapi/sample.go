package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resolve follows references, and takes a schema that only narrows another for that.
// The name is that of the last reference, "" if there was none.
func (s specification) resolve(schema specSchema) (specSchema, string) {
	name := ""
	for schema.Ref != "" || len(schema.AllOf) == 1 {
		if schema.Ref == "" {
			schema = schema.AllOf[0]
			continue
		}
		name = last(schema.Ref)
		schema = s.Components.Schemas.values[name]
	}
	return schema, name
}

// fields are the properties of an object, in their order.
func (s specification) fields(schema specSchema) []docField {
	whole, _ := s.resolve(schema)
	var out []docField
	for name, p := range whole.Properties.all() {
		f := s.field(name, p)
		f.Required = slices.Contains(whole.Required, name)
		out = append(out, f)
	}
	return out
}

func (s specification) field(name string, p specSchema) docField {
	whole, ref := s.resolve(p)
	f := docField{Name: name, Kind: kindOf(whole), Text: inline(whole.Description)}
	if p.Description != "" { // what it means here goes before what it means anywhere
		f.Text = inline(p.Description)
	}
	if whole.Properties.values != nil {
		f.Schema = ref
	}
	if whole.Items != nil {
		if item, ref := s.resolve(*whole.Items); item.Properties.values != nil {
			f.Schema = ref
		}
	}
	return f
}

// kindOf says in a few words what a schema takes.
func kindOf(s specSchema) string {
	kind := s.kind()
	switch {
	case len(s.Enum) > 0:
		return "one of " + strings.Join(s.Enum, ", ")
	case kind == "":
		return "any JSON"
	}
	var more []string
	if s.Format != "" && kind == "string" {
		more = append(more, s.Format)
	}
	if s.MaxLength > 0 {
		more = append(more, fmt.Sprintf("at most %d characters", s.MaxLength))
	}
	switch low, high := s.Minimum.Value, s.Maximum.Value; {
	case low != "" && high != "":
		more = append(more, low+" to "+high)
	case low != "":
		more = append(more, "from "+low)
	}
	if s.MaxItems > 0 {
		more = append(more, fmt.Sprintf("at most %d", s.MaxItems))
	}
	if s.Default.Value != "" {
		more = append(more, "default "+s.Default.Value)
	}
	return strings.Join(append([]string{kind}, more...), ", ")
}

// example is JSON that fits a schema, from the examples of its parts.
func (s specification) example(schema specSchema) string {
	const deepest = 12 // deeper than any, and an end to one that held itself
	return s.sample(schema, "", deepest)
}

func (s specification) sample(schema specSchema, indent string, depth int) string {
	whole, _ := s.resolve(schema)
	if depth == 0 {
		return "null"
	}
	// What a property has of its own goes before what its type has anywhere.
	if e := slices.Concat(schema.Examples, whole.Examples); len(e) > 0 {
		return nodeJSON(&e[0], indent)
	}
	inner := indent + "  "
	switch {
	case len(whole.Enum) > 0:
		return quoted(whole.Enum[0])
	case whole.Items != nil:
		return "[\n" + inner + s.sample(*whole.Items, inner, depth-1) + "\n" + indent + "]"
	case whole.Properties.values != nil:
		var lines []string
		for name, p := range whole.Properties.all() {
			if name == "problem" || name == "errors" { // what is there if it went wrong
				continue
			}
			lines = append(lines, inner+quoted(name)+": "+s.sample(p, inner, depth-1))
		}
		return "{\n" + strings.Join(lines, ",\n") + "\n" + indent + "}"
	}
	switch whole.kind() {
	case "boolean":
		return "false"
	case "integer", "number":
		return "0"
	case "string":
		return `"..."`
	}
	return "{}"
}

// nodeJSON writes YAML as JSON, in the order of the document.
func nodeJSON(n *yaml.Node, indent string) string {
	inner := indent + "  "
	switch n.Kind {
	case yaml.MappingNode:
		lines := make([]string, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			lines = append(lines, inner+quoted(n.Content[i].Value)+": "+nodeJSON(n.Content[i+1], inner))
		}
		if len(lines) == 0 {
			return "{}"
		}
		return "{\n" + strings.Join(lines, ",\n") + "\n" + indent + "}"
	case yaml.SequenceNode:
		items := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			items = append(items, nodeJSON(item, inner))
		}
		if len(items) == 0 || len(items) > 0 && n.Content[0].Kind == yaml.ScalarNode {
			return "[" + strings.Join(items, ", ") + "]"
		}
		return "[\n" + inner + strings.Join(items, ",\n"+inner) + "\n" + indent + "]"
	case yaml.DocumentNode, yaml.AliasNode, yaml.ScalarNode:
	}
	if n.Tag == "!!str" || n.Tag == "!!timestamp" {
		return quoted(n.Value)
	}
	return n.Value
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic("httpapi: strings always marshal: " + err.Error())
	}
	return string(b)
}
