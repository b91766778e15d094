package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/boot"
	"github.com/fanout/fanout/internal/schedule"
)

// Level is how a check ended.
type Level string

// The levels. Only Bad keeps the service from doing what it promises.
const (
	Fine Level = "ok"
	Odd  Level = "warn"
	Bad  Level = "BAD"
	Left Level = "skipped"
)

// Check is one thing that the doctor looked at.
type Check struct {
	About string `json:"about"`
	Level Level  `json:"level"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"` // about it; "" if there is nothing to do
}

const (
	// slowTrip is a way to Redis on which a delivery's few calls are felt, and skewed a
	// clock whose logs cannot be read beside those of others. Nothing else depends on it.
	slowTrip = 10 * time.Millisecond
	skewed   = 2 * time.Second
	// fullMemory is the part of maxmemory from which on little time is left.
	fullMemory = 0.8
)

// Doctor looks at the settings that a process would start with, at the Redis that they name,
// and at an API if one is given. It changes nothing, and does not stop at what it finds.
func Doctor(ctx context.Context, cfg boot.Common, e Endpoint, api *client.Client) []Check {
	d := &doctor{cfg: cfg, endpoint: e}
	d.settings()
	d.redis(ctx)
	if api != nil {
		d.api(ctx, api)
	} else {
		d.sayf("api", Left, "", "no API was named: --api asks one as well")
	}
	return d.checks
}

// doctor gathers what is found.
type doctor struct {
	cfg      boot.Common
	endpoint Endpoint
	checks   []Check
}

func (d *doctor) sayf(about string, l Level, do, format string, a ...any) {
	d.checks = append(d.checks, Check{about, l, fmt.Sprintf(format, a...), do})
}

func (d *doctor) settings() {
	var classes []string
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Classes)) {
		classes = append(classes, name+"="+d.cfg.Classes[name].String())
	}
	d.sayf("classes", Fine, "", "%s", strings.Join(classes, ", "))
	switch ring, err := keyring(d.cfg.Secrets); {
	case err != nil:
		d.sayf("secrets", Bad, "mend FANOUT_SECRETS_KEY or the file of --secrets-key-file", "%v", err)
	case ring == nil:
		d.sayf("secrets", Odd, "set FANOUT_SECRETS_KEY for every process, then run fanout reseal", "URLs, secrets and headers of subscribers are in the clear in Redis")
	default:
		d.sayf("secrets", Fine, "", "they are sealed in Redis")
	}
	d.guards()
}

// reaches are addresses that no endpoint should be at: where a process asks its host for
// its own credentials, and the host itself.
var reaches = []struct {
	what string
	addr netip.Addr
}{
	{"the metadata service of a cloud host", netip.MustParseAddr("169.254.169.254")},
	{"this machine", netip.MustParseAddr("127.0.0.1")},
}

// guards tells what subscribers may reach that is not public.
func (d *doctor) guards() {
	g := d.endpoint.guard()
	open := false
	for _, r := range reaches {
		if g.CheckAddr(r.addr) == nil {
			open = true
			d.sayf("endpoints", Odd, "narrow --allow-cidr", "subscribers may have requests sent to %s (%s)", r.what, r.addr)
		}
	}
	switch {
	case d.endpoint.AllowHTTP, d.endpoint.AllowAnyPort:
		d.sayf("endpoints", Odd, "leave out --allow-http and --allow-any-port unless this is a private network",
			"plain http: %v; any port: %v", d.endpoint.AllowHTTP, d.endpoint.AllowAnyPort)
	case !open:
		d.sayf("endpoints", Fine, "", "https to public addresses%s", besides(d.endpoint.AllowCIDR))
	}
}

func besides(cidrs []netip.Prefix) string {
	if len(cidrs) == 0 {
		return ""
	}
	texts := make([]string, len(cidrs))
	for i, c := range cidrs {
		texts[i] = c.String()
	}
	return ", and to " + strings.Join(texts, ", ")
}

func (d *doctor) redis(ctx context.Context) {
	rdb, err := boot.OpenRedis(d.cfg.Redis, slog.New(slog.DiscardHandler))
	if err != nil {
		d.sayf("redis", Bad, "mend the settings --redis-...", "%v", err)
		return
	}
	defer func() { _ = rdb.Close() }()
	x, err := schedule.Examine(ctx, rdb)
	if err != nil {
		d.sayf("redis", Bad, "see that it runs at --redis-addr, and what --redis-username and --redis-password-file say", "%v", err)
		return
	}
	level, do := Fine, ""
	if x.RoundTrip > slowTrip {
		level, do = Odd, "put the processes near their Redis: a delivery waits for it three times"
	}
	d.sayf("redis", level, do, "version %s at %s, %s away", x.Version, strings.Join(d.cfg.Redis.Addr, ","), x.RoundTrip.Round(10*time.Microsecond))
	d.durability(x)
	d.clock(x)
	d.memory(x)
	d.contents(x)
}

func (d *doctor) durability(x schedule.Examination) {
	if x.Unsafe == nil {
		d.sayf("durability", Fine, "", "append-only file, noeviction, primary")
		return
	}
	level := Bad
	if d.cfg.Redis.AllowUnsafe {
		level = Odd // somebody vouches for it
	}
	for line := range strings.SplitSeq(x.Unsafe.Error(), "\n") {
		d.sayf("durability", level, "as it says", "%s", strings.TrimPrefix(line, schedule.ErrUnsafe.Error()+": "))
	}
}

func (d *doctor) clock(x schedule.Examination) {
	off := x.ClockOff.Round(time.Millisecond)
	if off.Abs() > skewed {
		d.sayf("clock", Odd, "keep the machines' clocks by NTP",
			"the clock of Redis is %s from this machine's; fanout goes by that of Redis alone, but logs and traces do not", off)
		return
	}
	d.sayf("clock", Fine, "", "%s from that of Redis", off.Abs())
}

func (d *doctor) memory(x schedule.Examination) {
	const mib = 1 << 20
	switch {
	case x.Limit == 0:
		d.sayf("memory", Odd, "set maxmemory below what the machine has, so that Redis refuses before it is killed",
			"%d MiB used, and no maxmemory", x.Used/mib)
	case float64(x.Used) > fullMemory*float64(x.Limit):
		d.sayf("memory", Bad, "raise maxmemory, or free some: events are refused when it is full",
			"%d of %d MiB used", x.Used/mib, x.Limit/mib)
	default:
		d.sayf("memory", Fine, "", "%d of %d MiB used", x.Used/mib, x.Limit/mib)
	}
}

func (d *doctor) contents(x schedule.Examination) {
	switch {
	case x.Empty():
		d.sayf("data", Odd, "", "there is none yet: the first process to start writes it")
		return
	case x.Schema != x.Ours:
		d.sayf("data", Bad, "run the version of fanout that wrote it", "it has schema %d, this build knows %d", x.Schema, x.Ours)
		return
	case x.Partitions != d.cfg.Redis.Partitions:
		d.sayf("data", Bad, fmt.Sprintf("set --redis-partitions=%d for every process", x.Partitions),
			"it has %d partitions, and --redis-partitions is %d", x.Partitions, d.cfg.Redis.Partitions)
	default:
		d.sayf("data", Fine, "", "schema %d, %d partitions, subscribers: %d, deliveries pending: %d", x.Schema, x.Partitions, x.Subscribers, x.Ledger.Pending)
	}
	if x.Ledger.Balanced() {
		d.sayf("ledger", Fine, "", "%d accepted, and all accounted for", x.Ledger.Accepted)
	} else {
		d.sayf("ledger", Bad, "redrive and delete nothing; docs/runbook.md#ledger-gap", "accepted is not the sum of the states: %+v", x.Ledger)
	}
	if unknown := slices.DeleteFunc(slices.Clone(x.Classes), func(c string) bool { return d.cfg.Classes[c] > 0 }); len(unknown) > 0 {
		d.sayf("classes", Bad, "name them in --class of every process, each with its SLO",
			"subscribers are of classes that these settings do not name: %s", strings.Join(unknown, ", "))
	}
	d.dispatchers(x.Workers)
}

func (d *doctor) dispatchers(workers []schedule.WorkerReport) {
	if len(workers) == 0 {
		d.sayf("dispatchers", Bad, "start bin/dispatcher with the same --redis-addr", "none has reported within 15 s: nothing is sent")
		return
	}
	versions := map[string]int{}
	slots := 0
	for _, w := range workers {
		versions[strings.TrimSpace(w.Version+" "+w.Slice)]++
		slots += w.Slots
	}
	var texts []string
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		texts = append(texts, fmt.Sprintf("%d of %s", versions[v], v))
	}
	d.sayf("dispatchers", Fine, "", "%d with %d slots: %s", len(workers), slots, strings.Join(texts, ", "))
}

// api asks a server what it sees, and whether it was told the same.
func (d *doctor) api(ctx context.Context, c *client.Client) {
	if err := c.Ready(ctx); err != nil {
		d.sayf("api", Bad, "see what it lacks; if it is not there, set --api", "it is not ready: %v", err)
	} else {
		d.sayf("api", Fine, "", "ready")
	}
	look, err := c.OnCall(ctx)
	switch {
	case errors.Is(err, client.ErrUnauthenticated), errors.Is(err, client.ErrForbidden):
		d.sayf("triage", Left, "set FANOUT_KEY to a viewer's key", "%v", err)
		return
	case err != nil:
		d.sayf("triage", Bad, "", "%v", err)
		return
	}
	theirs := map[string]bool{}
	for _, class := range look.Classes {
		if !class.Configured {
			continue
		}
		theirs[class.Class] = true
		slo := time.Duration(class.SLOSeconds * float64(time.Second))
		if ours := d.cfg.Classes[class.Class]; ours != slo {
			d.sayf("classes", Bad, "give every process the same --class", "class %s has an SLO of %s in the API, and %s in these settings", class.Class, slo, ours)
		}
	}
	for name := range d.cfg.Classes {
		if !theirs[name] {
			d.sayf("classes", Bad, "give every process the same --class", "the API was not told of class %s", name)
		}
	}
	level, do := Fine, ""
	if look.Triage.Page {
		level, do = Bad, "fanout triage, and docs/runbook.md#"+look.Triage.Runbook
	}
	d.sayf("triage", level, do, "%s: %s", look.Triage.Diagnosis, look.Triage.Sentence)
}
