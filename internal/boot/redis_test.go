package boot

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/fanout/fanout/test/redistest"
)

func TestOpenRedis(t *testing.T) {
	t.Parallel()
	pw := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(pw, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := redistest.Server(t, redistest.Password("s3cret"))
	c, err := OpenRedis(Redis{Addr: []string{srv.Addr()}, PasswordFile: pw, Partitions: 4, PoolSize: 2}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r := NewRegistry()
	r.MustRegister(PoolStats(c))
	if n, err := testutil.GatherAndCount(r, "fanout_redis_pool_connections", "fanout_redis_pool_gets_total"); err != nil || n != 5 {
		t.Errorf("%d metrics, %v; want 2 states, 3 outcomes and the build", n, err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// A lost reply must not make the client run a script again behind our back.
func TestOpenRedisSendsOnce(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan int, 1)
	go func() { // answers the handshake with errors, takes EVALs and hangs up
		evals := 0
		defer func() { sent <- evals }()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			for {
				n, err := conn.Read(b)
				if err != nil {
					break
				}
				if strings.Contains(strings.ToLower(string(b[:n])), "eval") {
					evals++
					break
				}
				for range strings.Count(string(b[:n]), "*") {
					_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
				}
			}
			_ = conn.Close()
		}
	}()
	c, err := OpenRedis(Redis{Addr: []string{ln.Addr().String()}, Partitions: 4, PoolSize: 2}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Eval(t.Context(), "return 1", nil).Err(); err == nil {
		t.Error("a lost reply was reported as success")
	}
	_ = c.Close()
	_ = ln.Close()
	if n := <-sent; n != 1 {
		t.Errorf("the script was sent %d times, want once", n)
	}
}

// A frozen server must cost a call its deadline and no more.
func TestOpenRedisObeysDeadlines(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	c, err := OpenRedis(Redis{Addr: []string{srv.Addr()}, Partitions: 4, PoolSize: 2}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a frozen server answered")
	}
	if took := time.Since(begin); took > 2*time.Second { // the read timeout alone is 3 s
		t.Errorf("took %s", took)
	}
}

func TestOpenRedisRefusesMistakes(t *testing.T) {
	t.Parallel()
	ok := Redis{Addr: []string{"127.0.0.1:1"}, Partitions: 4, PoolSize: 1}
	for name, change := range map[string]func(*Redis){
		"no address":        func(r *Redis) { r.Addr = nil },
		"addresses":         func(r *Redis) { r.Addr = []string{"a:1", "b:1"} },
		"partitions":        func(r *Redis) { r.Partitions = 0 },
		"pool-size":         func(r *Redis) { r.PoolSize = 0 },
		"want host:port":    func(r *Redis) { r.Addr = []string{"foo"} },
		"both password and": func(r *Redis) { r.Password, r.PasswordFile = "a", "b" },
		"read password":     func(r *Redis) { r.PasswordFile = "/does/not/exist" },
	} {
		cfg := ok
		change(&cfg)
		if _, err := OpenRedis(cfg, quiet); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	cluster := ok
	cluster.Cluster = true
	c, err := OpenRedis(cluster, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, is := c.(*redis.ClusterClient); !is {
		t.Errorf("one seed of a cluster gave a %T", c)
	}
}

func TestTracerIsOffByDefault(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	p, stop, err := NewTracer(t.Context(), "test", quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("t").Start(t.Context(), "s")
	if span.IsRecording() || span.SpanContext().IsValid() {
		t.Error("a span was recorded for nobody")
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracesAsTheEnvironmentSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		env  map[string]string
		on   bool
		says string // of the error
	}{
		{name: "nothing said"},
		{"an endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, true, ""},
		{"one for traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, true, ""},
		{"the collector of this machine", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"no exporter", map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, false, ""},
		{"disabled", map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, false, ""},
		{"another exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, "zipkin"},
		{"gRPC", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "http/protobuf"},
		{"gRPC, of traces alone not", map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
			"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
		}, true, ""},
	} {
		on, err := traced(func(name string) string { return c.env[name] })
		if on != c.on || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %t, %v", c.name, on, err)
		}
	}
}

func TestTracerSendsWhenItIsToldWhere(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	called := make(chan struct{})
	go func() {
		if conn, err := ln.Accept(); err == nil {
			close(called)
			_ = conn.Close()
		}
	}()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+ln.Addr().String())
	p, stop, err := NewTracer(t.Context(), "test", quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("t").Start(t.Context(), "s", trace.WithSpanKind(trace.SpanKindClient))
	if !span.IsRecording() {
		t.Fatal("the span is not recorded")
	}
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Logf("flush: %v", err) // the collector hung up; that it was called is the point
	}
	<-called
}
