package boot

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// version is set by the Makefile (-ldflags -X).
var version string

// Version names the build: what the Makefile set, else what the Go tool stamped.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// NewLogger logs to w as configured.
func NewLogger(cfg Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.Format == "text" {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// NewTracer installs and returns the provider of spans, which are off, and cost
// nothing, unless the environment says where to send them (traced). The other OTEL_
// variables (headers, sampler, service name, batches) mean what OpenTelemetry says. The
// function returned sends what is left, within its context's deadline.
func NewTracer(ctx context.Context, service string, logger *slog.Logger) (trace.TracerProvider, func(context.Context) error, error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	on, err := traced(os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	if !on {
		p := noop.NewTracerProvider()
		otel.SetTracerProvider(p)
		return p, func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("trace exporter: %w", err)
	}
	// Later ones win: OTEL_SERVICE_NAME over the name given here.
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", Version())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("trace resource: %w", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	otel.SetTracerProvider(p)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("tracing", "error", err) }))
	return p, p.Shutdown, nil
}

// traced says whether traces are wanted: there is an endpoint for them, or the exporter
// is named, whose default is the collector on this machine. By OpenTelemetry's own rule
// traces are on where nothing is said; a service that calls a collector which nobody has
// set up is a nuisance, so it is not ours.
func traced(env func(string) string) (bool, error) {
	const tracesEndpoint, anyEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporter := env("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: want otlp or none", exporter)
	}
	if exporter == "" && env(tracesEndpoint) == "" && env(anyEndpoint) == "" {
		return false, nil
	}
	protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"))
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("the protocol of OTLP is set to %q: traces are sent by http/protobuf only, to port 4318 of most collectors", protocol)
	}
	return true, nil
}

// NewRegistry is a registry with the process's own metrics.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
