package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fanout/fanout/api"
)

type object = map[string]any

// document is the contract as it is written, for the drawing of requests. What is
// answered is judged by another reader of it (judge_test.go).
type document object

// operation is one of the contract.
type operation struct {
	id, method, path string
	roles            []string // nil: asks for no key
	params           []object // resolved
	body             object   // the schema; nil for none
	required         bool     // the body
}

func (d document) resolve(s object) object {
	for {
		ref, ok := s["$ref"].(string)
		if !ok {
			return s
		}
		var at any = object(d)
		for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(object)[step]
		}
		s = at.(object)
	}
}

func load() (document, []operation, error) {
	var tree object
	if err := yaml.Unmarshal(api.OpenAPI, &tree); err != nil {
		return nil, nil, fmt.Errorf("read the contract: %w", err)
	}
	doc := document(tree)
	var ops []operation
	paths := doc["paths"].(object)
	for _, path := range sorted(paths) {
		item := paths[path].(object)
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			if spec, ok := item[method].(object); ok {
				ops = append(ops, doc.operation(strings.ToUpper(method), path, item, spec))
			}
		}
	}
	return doc, ops, nil
}

func (d document) operation(method, path string, item, spec object) operation {
	op := operation{id: spec["operationId"].(string), method: method, path: path}
	for _, from := range []object{item, spec} {
		list, _ := from["parameters"].([]any)
		for _, p := range list {
			op.params = append(op.params, d.resolve(p.(object)))
		}
	}
	if roles, ok := spec["x-roles"].([]any); ok {
		for _, role := range roles {
			op.roles = append(op.roles, role.(string))
		}
	}
	if body, ok := spec["requestBody"].(object); ok {
		op.required, _ = body["required"].(bool)
		op.body = body["content"].(object)["application/json"].(object)["schema"].(object)
	}
	return op
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
