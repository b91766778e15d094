package boot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Redis is where the state lives.
type Redis struct {
	Addr         []string      `default:"127.0.0.1:6379" env:"FANOUT_REDIS_ADDR" help:"host:port; several, by commas, are the seeds of a cluster."`
	Cluster      bool          `env:"FANOUT_REDIS_CLUSTER" help:"It is a Redis Cluster."`
	Username     string        `env:"FANOUT_REDIS_USERNAME" help:"ACL user."`
	Password     string        `env:"FANOUT_REDIS_PASSWORD" help:"Password; given by the variable, in --config or by --redis-password-file, and refused on the command line, which other users see." secret:"true" placeholder:"SECRET"`
	PasswordFile string        `env:"FANOUT_REDIS_PASSWORD_FILE" help:"File that holds the password." placeholder:"FILE"`
	TLS          bool          `env:"FANOUT_REDIS_TLS" help:"Connect by TLS, trusting the system's certificates (SSL_CERT_FILE replaces them)."`
	Partitions   int           `default:"1" env:"FANOUT_REDIS_PARTITIONS" help:"Partitions of the state, fixed when it is first written: 1 for one Redis, 48 for a cluster."`
	PoolSize     int           `default:"32" env:"FANOUT_REDIS_POOL_SIZE" help:"Connections to each node."`
	WaitReplicas int           `default:"0" env:"FANOUT_REDIS_WAIT_REPLICAS" help:"Replicas that must have an event before it is answered 202; else 503. With 0 a failover may lose what was accepted just before."`
	WaitTimeout  time.Duration `default:"1s" env:"FANOUT_REDIS_WAIT_TIMEOUT" help:"How long to wait for them, at most 2s."`
	AllowUnsafe  bool          `env:"FANOUT_REDIS_ALLOW_UNSAFE" help:"Report ready though Redis may lose what it accepts (no append-only file, eviction)."`
}

// OpenRedis makes the client that all packages share. It does not connect: a
// Redis that is away when the process starts is a state to report, not a reason
// to die. An error is a mistake in the configuration.
func OpenRedis(cfg Redis, logger *slog.Logger) (redis.UniversalClient, error) {
	switch {
	case len(cfg.Addr) == 0:
		return nil, errors.New("redis: no address")
	case len(cfg.Addr) > 1 && !cfg.Cluster:
		return nil, fmt.Errorf("redis: %d addresses without --redis-cluster", len(cfg.Addr))
	case slices.ContainsFunc(cfg.Addr, notHostPort):
		return nil, fmt.Errorf("redis: --redis-addr %q: want host:port, such as 127.0.0.1:6379", strings.Join(cfg.Addr, ","))
	case cfg.Partitions < 1 || cfg.Partitions > 1024:
		return nil, fmt.Errorf("redis: partitions must be from 1 to 1024, is %d", cfg.Partitions)
	case cfg.PoolSize < 1:
		return nil, fmt.Errorf("redis: pool-size must be at least 1, is %d", cfg.PoolSize)
	case cfg.Password != "" && cfg.PasswordFile != "":
		return nil, errors.New("redis: both password and password-file are set")
	}
	if cfg.PasswordFile != "" {
		b, err := os.ReadFile(cfg.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("redis: read password: %w", err)
		}
		cfg.Password = strings.TrimSpace(string(b))
	}
	var tlsConfig *tls.Config
	if cfg.TLS {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	redis.SetLogger(redisLog{logger})
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: cfg.Addr, IsClusterMode: cfg.Cluster, TLSConfig: tlsConfig,
		Username: cfg.Username, Password: cfg.Password,
		// One call, one request: who may repeat a transition is decided above.
		MaxRetries: -1, // 0 would mean 3
		// A cancelled context alone is not seen; its deadline is.
		ContextTimeoutEnabled: true,
		DialerRetries:         1, // with more, a dead Redis takes 1.7 s to say so
		DialTimeout:           2 * time.Second,
		ReadTimeout:           3 * time.Second,
		WriteTimeout:          3 * time.Second,
		PoolSize:              cfg.PoolSize,
		PoolTimeout:           time.Second, // a pool that stays full is a fault, not a queue
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled, // a managed service's extra: one more command per connection
		},
	}), nil
}

// notHostPort catches what would be dialled in vain for ever.
func notHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err != nil || host == "" || bad != nil || n == 0
}

// redisLog takes what go-redis would print: its pool's troubles, which our own
// calls report as errors anyway.
type redisLog struct{ *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.DebugContext(ctx, "redis client", "detail", fmt.Sprintf(format, v...))
}

// poolStats is a collector over the client's own counters.
type poolStats struct{ client redis.UniversalClient }

var (
	poolConns = prometheus.NewDesc("fanout_redis_pool_connections", "Connections to Redis.", []string{"state"}, nil)
	poolGets  = prometheus.NewDesc("fanout_redis_pool_gets_total", "Connections asked of the pool: hit (one was idle), miss (dialled or waited), timeout (none came).", []string{"outcome"}, nil)
)

// PoolStats exports the client's connection pool.
func PoolStats(client redis.UniversalClient) prometheus.Collector { return poolStats{client} }

func (p poolStats) Describe(ch chan<- *prometheus.Desc) { ch <- poolConns; ch <- poolGets }

func (p poolStats) Collect(ch chan<- prometheus.Metric) {
	s := p.client.PoolStats()
	gauge := func(state string, v uint32) {
		ch <- prometheus.MustNewConstMetric(poolConns, prometheus.GaugeValue, float64(v), state)
	}
	gauge("idle", s.IdleConns)
	gauge("busy", s.TotalConns-min(s.IdleConns, s.TotalConns))
	for outcome, v := range map[string]uint32{"hit": s.Hits, "miss": s.Misses, "timeout": s.Timeouts} {
		ch <- prometheus.MustNewConstMetric(poolGets, prometheus.CounterValue, float64(v), outcome)
	}
}
