package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page's template
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
	"sync"
)

//go:embed reference.html
var referenceHTML string

// GetDocs shows the contract as a page.
func (s *server) GetDocs(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, _ *http.Request) error {
		page := reference()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", page.policy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(page.html) // an error means that the client is gone
		return nil
	})
}

type referencePage struct {
	html   []byte
	policy string
}

// reference is the page, made once: the contract is that of the binary. Its policy
// lets a browser take the one style in it, told by its hash, and nothing else: no
// script, no request, no frame around it.
var reference = sync.OnceValue(func() referencePage {
	var b bytes.Buffer
	t := template.Must(template.New("reference").Parse(referenceHTML))
	if err := t.Execute(&b, viewOf(readContract())); err != nil {
		panic("httpapi: make the reference page: " + err.Error())
	}
	_, rest, _ := bytes.Cut(b.Bytes(), []byte("<style>"))
	style, _, _ := bytes.Cut(rest, []byte("</style>"))
	sum := sha256.Sum256(style)
	return referencePage{b.Bytes(), "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
})

// What the page shows, in its order.
type (
	docPage struct {
		Title, Version, Summary string
		Intro                   []paragraph
		Groups                  []docGroup
		Schemas                 []docSchema
	}
	docGroup struct {
		Name, Text string
		Operations []docOperation
	}
	docOperation struct {
		ID, Method, Path, Summary string
		Text                      []paragraph
		Roles                     string // "" asks for no key
		Webhook                   bool
		Parameters, Fields        []docField
		BodyOptional              bool
		BodySchema                string
		Requests                  []docExample
		Answers                   []docAnswer
	}
	docField struct {
		Name, In, Kind, Schema string // Schema is one to follow
		Required               bool
		Text                   paragraph
	}
	docExample struct{ Title, Text string }
	docAnswer  struct {
		Status, Schema, Example string
		Problem                 bool
		Text                    paragraph
	}
	docSchema struct {
		Name, Kind string
		Text       []paragraph
		Fields     []docField
		Example    string
	}
	// paragraph is text of which some stands out.
	paragraph []span
	span      struct {
		Text         string
		Code, Strong bool
	}
)

// viewOf puts the contract in the order of the page: by tag, what we send last.
func viewOf(spec specification) docPage {
	page := docPage{
		Title: spec.Info.Title, Version: spec.Info.Version, Summary: spec.Info.Summary,
		Intro: paragraphs(spec.Info.Description),
	}
	byTag := map[string][]docOperation{}
	for path, item := range spec.Paths.all() {
		for _, method := range []string{"get", "post", "patch", "delete"} {
			if op, ok := item.Operations[method]; ok {
				o := spec.describe(op, item.Parameters)
				o.Method, o.Path = strings.ToUpper(method), path
				byTag[op.Tags[0]] = append(byTag[op.Tags[0]], o)
			}
		}
	}
	for _, tag := range spec.Tags {
		page.Groups = append(page.Groups, docGroup{Name: tag.Name, Text: tag.Description, Operations: byTag[tag.Name]})
	}
	hooks := docGroup{Name: "webhooks", Text: "What fanout sends to a subscriber's endpoint."}
	for _, item := range spec.Webhooks.all() {
		for _, op := range item.Operations {
			o := spec.describe(op, item.Parameters)
			o.Method, o.Path, o.Webhook = http.MethodPost, "your endpoint", true
			hooks.Operations = append(hooks.Operations, o)
		}
	}
	page.Groups = append(page.Groups, hooks)
	for name, schema := range spec.Components.Schemas.all() {
		page.Schemas = append(page.Schemas, docSchema{
			Name: name, Kind: kindOf(schema), Text: paragraphs(schema.Description),
			Fields: spec.fields(schema), Example: spec.example(schema),
		})
	}
	return page
}

func (s specification) describe(op specOperation, shared []specParameter) docOperation {
	o := docOperation{
		ID: op.OperationID, Summary: op.Summary, Text: paragraphs(op.Description), Roles: strings.Join(op.Roles, ", "),
	}
	for _, p := range append(append([]specParameter(nil), shared...), op.Parameters...) {
		p = s.parameter(p)
		f := s.field(p.Name, p.Schema)
		f.In, f.Required, f.Text = p.In, p.Required, inline(p.Description)
		o.Parameters = append(o.Parameters, f)
	}
	for _, media := range op.RequestBody.Content {
		o.BodyOptional = !op.RequestBody.Required
		o.BodySchema = last(media.Schema.Ref)
		o.Fields = s.fields(media.Schema)
		for _, e := range media.Examples {
			if e.Ref != "" {
				e = s.Components.Examples[last(e.Ref)]
			}
			o.Requests = append(o.Requests, docExample{e.Summary, nodeJSON(&e.Value, "")})
		}
		if len(o.Requests) == 0 {
			o.Requests = []docExample{{"For example", s.example(media.Schema)}}
		}
	}
	for status, answer := range op.Responses.all() {
		if answer.Ref != "" {
			answer = s.Components.Responses[last(answer.Ref)]
		}
		a := docAnswer{Status: status, Text: inline(answer.Description)}
		if media, ok := answer.Content["application/json"]; ok {
			a.Schema, a.Example = last(media.Schema.Ref), s.example(media.Schema)
			for _, e := range media.Examples { // what this operation answers, rather than what its type may hold
				if e.Ref != "" {
					e = s.Components.Examples[last(e.Ref)]
				}
				a.Example = nodeJSON(&e.Value, "")
			}
		}
		_, a.Problem = answer.Content["application/problem+json"]
		o.Answers = append(o.Answers, a)
	}
	return o
}

// paragraphs reads the little of Markdown that the contract uses.
func paragraphs(text string) []paragraph {
	var out []paragraph
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		out = append(out, inline(block))
	}
	return out
}

// inline reads `code` and **strong**.
func inline(text string) paragraph {
	var out paragraph
	for i, part := range strings.Split(strings.TrimSpace(text), "`") {
		if i%2 == 1 {
			out = append(out, span{Text: part, Code: true})
			continue
		}
		for j, plain := range strings.Split(part, "**") {
			if plain != "" {
				out = append(out, span{Text: plain, Strong: j%2 == 1})
			}
		}
	}
	return out
}
