package boot

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// parse runs the command line through the options that both binaries use.
func parse(t *testing.T, yaml string, args ...string) (Common, error) {
	t.Helper()
	var cli struct {
		Common
		Serve struct{} `cmd:""`
	}
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "fanout.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	k, err := kong.New(&cli, append(Options("test", "127.0.0.1:8080"), kong.Name("test"))...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse(append([]string{"serve"}, args...))
	return cli.Common, err
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "")
	if err != nil {
		t.Fatal(err)
	}
	want := Common{
		Log: Log{Level: slog.LevelInfo, Format: "json"}, Listen: "127.0.0.1:8080",
		Redis:   Redis{Addr: []string{"127.0.0.1:6379"}, Partitions: 1, PoolSize: 32, WaitTimeout: time.Second},
		Classes: Classes{"standard": time.Minute},
	}
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
}

func TestPrecedence(t *testing.T) { //nolint:paralleltest // it sets variables
	const file = "redis: {partitions: 7}\n"
	steps := []struct {
		name, file, env string
		args            []string
		want            int
	}{
		{"default", "", "", nil, 1},
		{"file over default", file, "", nil, 7},
		{"environment over file", file, "8", nil, 8},
		{"flag over environment and file", file, "8", []string{"--redis-partitions=9"}, 9},
		{"flag over file", file, "", []string{"--redis-partitions=9"}, 9},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			if s.env != "" {
				t.Setenv("FANOUT_REDIS_PARTITIONS", s.env)
			}
			c, err := parse(t, s.file, s.args...)
			if err != nil || c.Redis.Partitions != s.want {
				t.Fatalf("partitions %d, %v; want %d", c.Redis.Partitions, err, s.want)
			}
		})
	}
}

func TestFileNamedByTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("log_level: debug"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FANOUT_CONFIG", path)
	if c, err := parse(t, ""); err != nil || c.Log.Level != slog.LevelDebug {
		t.Fatalf("level %v, %v; want debug", c.Log.Level, err)
	}
}

func TestFileForms(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"nested": "redis:\n  addr: [a:1, b:2]\n  password_file: pw\n  pool_size: 5\nclass: {standard: 10s, bulk_low: 1h}\n",
		"flat":   "redis-addr: a:1,b:2\nredis_password_file: pw\nredis-pool-size: 5\nclass: standard=10s,bulk_low=1h\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := parse(t, yaml)
			if err != nil {
				t.Fatal(err)
			}
			want := Redis{Addr: []string{"a:1", "b:2"}, PasswordFile: "pw", Partitions: 1, PoolSize: 5, WaitTimeout: time.Second}
			if d := cmp.Diff(want, c.Redis); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(Classes{"standard": 10 * time.Second, "bulk_low": time.Hour}, c.Classes); d != "" {
				t.Error(d)
			}
		})
	}
	if c, err := parse(t, "redis: {password: 0123, username: no}"); err != nil || c.Redis.Password != "0123" || c.Redis.Username != "no" {
		t.Errorf("password %q, username %q, %v; want them as written", c.Redis.Password, c.Redis.Username, err)
	}
	if _, err := parse(t, "# nothing\n"); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestFileIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, yaml, want string }{
		{"unknown key", "log-lvl: debug", `"log-lvl"`},
		{"unknown nested key", "redis: {addr: a:1, adr: b:1}", `"redis-adr"`},
		{"every unknown key", "one: 1\ntwo: 2", `"two"`},
		{"unknown section", "kafka: {}", `"kafka"`},
		{"twice", "redis: {addr: a:1}\nredis-addr: b:1", "line 2: redis-addr is set twice"},
		{"bad value", "redis: {partitions: many}", "redis-partitions"},
		{"no mapping", "- a\n", "mapping"},
		{"alias", "log-level: &x debug\nlog-format: *x\n", "aliases"},
		{"list of mappings", "redis-addr: [{a: 1}]", "plain values"},
		{"no address", "listen: localhost:80", "want ip:port"},
		{"syntax", "a: [", "configuration file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, tt.yaml)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want an error with %q", err, tt.want)
			}
			if strings.HasPrefix(tt.name, "unknown") && !errors.Is(err, ErrUnknownKey) {
				t.Errorf("%v is not ErrUnknownKey", err)
			}
		})
	}
}

func TestOnlyLoopback(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "127.8.8.8:80", "[::1]:8080", "[::ffff:127.0.0.1]:1"} {
		var l Loopback
		if err := l.UnmarshalText([]byte(addr)); err != nil || string(l) != addr {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{":8080", "0.0.0.0:80", "[::]:80", "10.0.0.1:80", "192.168.1.2:80", "localhost:80", "example.com:80", "2130706433:80", "127.1:80"} {
		if err := new(Loopback).UnmarshalText([]byte(addr)); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%s: %v, want ErrNotLoopback", addr, err)
		}
		l := Loopback(addr) // not from a flag
		if ln, err := l.Bind(t.Context()); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("bind %s: %v, %v; want ErrNotLoopback", addr, ln, err)
		}
	}
}

// A secret on the command line is seen by the whole machine; in a file of settings or a
// variable it is at home.
func TestNoSecretOnTheCommandLine(t *testing.T) { //nolint:paralleltest // it sets a variable
	for _, flag := range []string{"--redis-password=topsecret", "--secrets-key=k1:topsecret"} {
		_, err := parse(t, "", flag)
		if err == nil || !strings.Contains(err.Error(), "-file") || !strings.Contains(err.Error(), "FANOUT_") || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if c, err := parse(t, "redis: {password: fromfile}"); err != nil || c.Redis.Password != "fromfile" {
		t.Errorf("from a file: %v", err)
	}
	t.Setenv("FANOUT_REDIS_PASSWORD", "fromvariable")
	if c, err := parse(t, ""); err != nil || c.Redis.Password != "fromvariable" {
		t.Errorf("from a variable: %v", err)
	}
}

// kong validates no value that comes from the environment: the rule must hold
// there too.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for addr, local := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "[::ffff:127.0.0.1]:0": true, "0.0.0.0:0": false, "[::]:0": false,
	} {
		var a Address
		if err := a.UnmarshalText([]byte(addr)); err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		ln, err := a.Bind(t.Context())
		if err != nil {
			t.Errorf("bind %s: %v", addr, err)
			continue
		}
		if OnLoopback(ln) != local {
			t.Errorf("%s at %s: on loopback is %v", addr, ln.Addr(), !local)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		if got, want := a.Bound(ln), strings.TrimSuffix(addr, "0")+port; got != want || port == "0" {
			t.Errorf("%s is said to be %s, want %s", addr, got, want)
		}
		_ = ln.Close()
	}
	for _, addr := range []string{"", ":8080", "localhost:80", "example.com:80", "127.0.0.1", "2130706433:80", "127.1:80"} {
		if err := new(Address).UnmarshalText([]byte(addr)); err == nil || !strings.Contains(err.Error(), "want ip:port") {
			t.Errorf("%q: %v", addr, err)
		}
		a := Address(addr) // not from a flag
		if ln, err := a.Bind(t.Context()); err == nil {
			t.Errorf("bind %q: %v", addr, ln.Addr())
		}
	}
}

func TestAddressFromTheEnvironment(t *testing.T) {
	t.Setenv("FANOUT_LISTEN", "example.com:8080")
	if _, err := parse(t, ""); err == nil || !strings.Contains(err.Error(), "want ip:port") {
		t.Fatalf("got %v, want a refusal", err)
	}
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		access     Access
		want, says string
	}{
		"none":    {Access{}, "", ""},
		"plain":   {Access{AdminKey: "s3cret"}, "s3cret", ""},
		"file":    {Access{AdminKeyFile: file}, "from-a-file", ""},
		"both":    {Access{AdminKey: "s3cret", AdminKeyFile: file}, "", "both"},
		"empty":   {Access{AdminKeyFile: empty}, "", "is empty"},
		"no file": {Access{AdminKeyFile: file + "x"}, "", "read the admin key"},
	} {
		got, err := c.access.Bootstrap()
		if got != c.want || (err != nil) != (c.says != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "", "--class=standard=30s", "--class=bulk=10m,vip=1s")
	if want := (Classes{"standard": 30 * time.Second, "bulk": 10 * time.Minute, "vip": time.Second}); err != nil || !cmp.Equal(want, c.Classes) {
		t.Errorf("got %v, %v; want %v", c.Classes, err, want)
	}
	// Classes that are given replace the default.
	if c, err := parse(t, "", "--class=gold=1s"); err != nil || !cmp.Equal(Classes{"gold": time.Second}, c.Classes) {
		t.Errorf("got %v, %v; want gold alone", c.Classes, err)
	}
	for _, bad := range []string{"", "standard", "standard=", "standard=0s", "standard=-1s", "Standard=1s", "a b=1s", "a=1", "=1s", "other=1s"} {
		if _, err := parse(t, "", "--class="+bad); err == nil {
			t.Errorf("class %q was accepted", bad)
		}
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := NewLogger(Log{Level: slog.LevelWarn, Format: "json"}, &b)
	l.Info("quiet")
	l.Warn("loud", "delivery_id", "dlv_1")
	if got := b.String(); strings.Contains(got, "quiet") || !strings.Contains(got, `"delivery_id":"dlv_1"`) {
		t.Errorf("logged %s", got)
	}
}
