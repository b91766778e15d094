package httpapi

import (
	"fmt"
	"iter"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fanout/fanout/api"
)

// readContract reads what is embedded, which the tests have read before.
func readContract() specification {
	var spec specification
	if err := yaml.Unmarshal(api.OpenAPI, &spec); err != nil {
		panic("httpapi: read the embedded contract: " + err.Error())
	}
	return spec
}

// The parts of the contract that the server itself goes by, and those that /docs shows.
type (
	specification struct {
		Info struct {
			Title       string `yaml:"title"`
			Version     string `yaml:"version"`
			Summary     string `yaml:"summary"`
			Description string `yaml:"description"`
		} `yaml:"info"`
		Tags []struct {
			Name        string `yaml:"name"`
			Description string `yaml:"description"`
		} `yaml:"tags"`
		Paths      ordered[specPath] `yaml:"paths"`
		Webhooks   ordered[specPath] `yaml:"webhooks"`
		Components struct {
			Parameters map[string]specParameter `yaml:"parameters"`
			Responses  map[string]specResponse  `yaml:"responses"`
			Schemas    ordered[specSchema]      `yaml:"schemas"`
			Examples   map[string]specExample   `yaml:"examples"`
		} `yaml:"components"`
	}
	specPath struct {
		Parameters []specParameter          `yaml:"parameters"`
		Operations map[string]specOperation `yaml:",inline"` // by method
	}
	specOperation struct {
		OperationID string                `yaml:"operationId"`
		Tags        []string              `yaml:"tags"`
		Roles       []string              `yaml:"x-roles"`
		Summary     string                `yaml:"summary"`
		Description string                `yaml:"description"`
		Parameters  []specParameter       `yaml:"parameters"`
		RequestBody specBody              `yaml:"requestBody"`
		Responses   ordered[specResponse] `yaml:"responses"`
	}
	specParameter struct {
		Ref         string     `yaml:"$ref"`
		Name        string     `yaml:"name"`
		In          string     `yaml:"in"`
		Required    bool       `yaml:"required"`
		Description string     `yaml:"description"`
		Schema      specSchema `yaml:"schema"`
	}
	specBody struct {
		Required bool                 `yaml:"required"`
		Content  map[string]specMedia `yaml:"content"`
	}
	specResponse struct {
		Ref         string               `yaml:"$ref"`
		Description string               `yaml:"description"`
		Content     map[string]specMedia `yaml:"content"`
	}
	specMedia struct {
		Schema   specSchema             `yaml:"schema"`
		Examples map[string]specExample `yaml:"examples"`
	}
	specExample struct {
		Ref     string    `yaml:"$ref"`
		Summary string    `yaml:"summary"`
		Value   yaml.Node `yaml:"value"`
	}
)

// specSchema is a schema as far as /docs tells of it.
type specSchema struct {
	Ref         string              `yaml:"$ref"`
	Type        yaml.Node           `yaml:"type"` // a word, or a list of them
	Description string              `yaml:"description"`
	Format      string              `yaml:"format"`
	Enum        []string            `yaml:"enum"`
	Default     yaml.Node           `yaml:"default"`
	Minimum     yaml.Node           `yaml:"minimum"`
	Maximum     yaml.Node           `yaml:"maximum"`
	MinItems    int                 `yaml:"minItems"`
	MaxItems    int                 `yaml:"maxItems"`
	MaxLength   int                 `yaml:"maxLength"`
	Required    []string            `yaml:"required"`
	Properties  ordered[specSchema] `yaml:"properties"`
	Items       *specSchema         `yaml:"items"`
	AllOf       []specSchema        `yaml:"allOf"`
	Examples    []yaml.Node         `yaml:"examples"`
}

// kind is the first word of the type, "" if it has none.
func (s specSchema) kind() string {
	if s.Type.Kind == yaml.SequenceNode && len(s.Type.Content) > 0 {
		return s.Type.Content[0].Value
	}
	return s.Type.Value
}

// ordered is a mapping that keeps the order of the document.
type ordered[T any] struct {
	names  []string
	values map[string]T
}

// UnmarshalYAML reads a mapping.
func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	o.values = map[string]T{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		var v T
		if err := n.Content[i+1].Decode(&v); err != nil {
			return fmt.Errorf("%s: %w", n.Content[i].Value, err)
		}
		o.names = append(o.names, n.Content[i].Value)
		o.values[n.Content[i].Value] = v
	}
	return nil
}

func (o ordered[T]) all() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range o.names {
			if !yield(name, o.values[name]) {
				return
			}
		}
	}
}

func (s specification) parameter(p specParameter) specParameter {
	if p.Ref != "" {
		return s.Components.Parameters[last(p.Ref)]
	}
	return p
}

// last is the name in a $ref.
func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }
