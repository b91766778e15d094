package observe

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"
)

// One post and its two attempts, from the producer to the receivers, as a collector gets
// them.
func TestTracesReachACollector(t *testing.T) {
	o := newOTLP(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", o.URL)
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	w := start(t)
	well, broken := newReceiver(t, http.StatusNoContent), newReceiver(t, http.StatusNotFound)
	w.subscribe(well.URL + "/hooks/p4th-t0ken?key=s3cret-query")
	w.subscribe(broken.URL)
	w.post("evt_traced")
	exported := w.scrape(w.dispatcher, "application/openmetrics-text; version=1.0.0")
	w.end()

	requests, ingests := o.named("fanout", "POST /v1/events"), o.named("fanout", "ingest")
	if len(requests) != 1 || len(ingests) != 1 {
		t.Fatalf("of the API: %d requests to post, %d ingests", len(requests), len(ingests))
	}
	ingest := ingests[0]
	if !bytes.Equal(ingest.GetParentSpanId(), requests[0].GetSpanId()) || ingest.GetKind() != traces.Span_SPAN_KIND_PRODUCER {
		t.Errorf("the ingest span: parent %x, kind %s", ingest.GetParentSpanId(), ingest.GetKind())
	}
	attempts, sent := o.named("dispatcher", "attempt"), o.named("dispatcher", "POST")
	if len(attempts) != 2 || len(sent) != 2 {
		t.Fatalf("of the dispatcher: %d attempts, %d requests", len(attempts), len(sent))
	}
	parents := map[string]string{} // receiver's traceparent: trace of the attempt
	for _, s := range sent {
		parents["00-"+hex.EncodeToString(s.GetTraceId())+"-"+hex.EncodeToString(s.GetSpanId())+"-01"] = string(s.GetTraceId())
	}
	exemplars := 0
	for _, a := range attempts {
		if len(a.GetParentSpanId()) != 0 || bytes.Equal(a.GetTraceId(), ingest.GetTraceId()) {
			t.Errorf("an attempt is no root: parent %x, trace %x", a.GetParentSpanId(), a.GetTraceId())
		}
		if l := a.GetLinks(); len(l) != 1 || !bytes.Equal(l[0].GetSpanId(), ingest.GetSpanId()) || !bytes.Equal(l[0].GetTraceId(), ingest.GetTraceId()) {
			t.Errorf("an attempt is linked to %v, want the ingest span", l)
		}
		if strings.Contains(exported, `trace_id="`+hex.EncodeToString(a.GetTraceId())+`"`) {
			exemplars++
		}
	}
	if exemplars == 0 { // both may be in one bucket, which names the last
		t.Error("no exemplar names the trace of an attempt")
	}
	for _, r := range []*receiver{well, broken} {
		if len(r.traceparents) != 1 || parents[r.traceparents[0]] == "" {
			t.Errorf("a receiver got traceparent %q, want that of a request's span: %v", r.traceparents, parents)
		}
	}
	for _, s := range sent {
		for _, key := range []string{"fanout.phase.connect_seconds", "fanout.phase.wait_seconds", "server.address", "http.response.status_code"} {
			if !has(s, key) {
				t.Errorf("a request says nothing of %s", key)
			}
		}
	}
	for _, secret := range []string{"s3cret-query", "p4th-t0ken", "d4ta"} {
		if strings.Contains(o.raw.String(), secret) {
			t.Errorf("the traces hold %s", secret)
		}
	}
}

func has(s *traces.Span, key string) bool {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return true
		}
	}
	return false
}
