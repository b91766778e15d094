// Package boot answers: how does a process begin, and in what order does it end?
//
// It holds what both binaries share: settings from flags, environment and file
// (config.go, secrets.go, yaml.go), the Redis client (redis.go), logs, traces and metrics
// (telemetry.go), and the run to an ordered stop (run.go). It decides nothing
// about deliveries.
package boot

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Common is embedded by every command that runs a process. A flag beats its
// environment variable, which beats the file, which beats the default.
type Common struct {
	Config  kong.ConfigFlag `env:"FANOUT_CONFIG" help:"YAML file of settings, named as the flags are (redis: {addr: ...} is --redis-addr)." placeholder:"FILE"`
	Log     Log             `embed:"" prefix:"log-"`
	Redis   Redis           `embed:"" prefix:"redis-"`
	Secrets Secrets         `embed:"" prefix:"secrets-"`
	Listen  Address         `default:"${listen}" env:"FANOUT_LISTEN" help:"Address to listen on, ip:port. The API listens beyond loopback only if there is a key."`
	Classes Classes         `default:"standard=60s" env:"FANOUT_CLASS" help:"Classes of subscribers, each with its SLO: the age of the oldest eligible delivery that pages on-call." name:"class" placeholder:"NAME=AGE,..."`
}

// Log says how to log.
type Log struct {
	Level  slog.Level `default:"info" env:"FANOUT_LOG_LEVEL" help:"debug, info, warn or error."`
	Format string     `default:"json" enum:"json,text" env:"FANOUT_LOG_FORMAT" help:"json or text."`
}

// Options are the kong options of both binaries: the default of --listen, the
// loader of --config, and exit code 2 for a command line that is not understood.
func Options(description, listen string) []kong.Option {
	const kongUsage = 80 // kong's own code for it
	return []kong.Option{
		kong.Description(description), kong.ShortUsageOnError(), kong.Configuration(loadYAML),
		kong.Vars{"listen": listen, "version": Version()},
		kong.WithBeforeApply(noSecretInSight),
		kong.Exit(func(code int) {
			if code == kongUsage {
				code = 2
			}
			os.Exit(code) //nolint:revive // kong calls it for --help and for usage errors, from main
		}),
	}
}

// noSecretInSight refuses a secret on the command line, which every process of the
// machine can read and many a tool writes down. Its flag is there for the variable and
// the file of settings that it names.
func noSecretInSight(ctx *kong.Context) error {
	for _, p := range ctx.Path {
		if p.Flag == nil || p.Resolved || !p.Flag.Tag.Has("secret") {
			continue
		}
		return fmt.Errorf("--%s: a secret on the command line is seen by every user of the machine: set %s, or put it into a file and give --%[1]s-file",
			p.Flag.Name, strings.Join(p.Flag.Envs, " or "))
	}
	return nil
}

// Classes are the configured classes with the age SLO of each. They are the only
// dimension of subscribers on a metric, so there are few.
type Classes map[string]time.Duration

var classPair = regexp.MustCompile(`^([a-z][a-z0-9_]{0,31})=(\S+)$`)

const maxClasses = 16

// otherClass is where on-call shows what no class here covers.
const otherClass = "other"

// UnmarshalText adds "name=age,name=age"; an age is a positive Go duration.
func (c *Classes) UnmarshalText(b []byte) error {
	if *c == nil {
		*c = Classes{}
	}
	for pair := range strings.SplitSeq(string(b), ",") {
		m := classPair.FindStringSubmatch(pair)
		if m == nil {
			return fmt.Errorf("class %q: want name=age, such as standard=60s, the name in a-z, 0-9 and _", pair)
		}
		if m[1] == otherClass {
			return fmt.Errorf("class %s: the name stands for the classes that are not configured", otherClass)
		}
		age, err := time.ParseDuration(m[2])
		if err != nil || age <= 0 {
			return fmt.Errorf("class %s: %q is no positive duration, such as 60s", m[1], m[2])
		}
		(*c)[m[1]] = age
	}
	if len(*c) > maxClasses {
		return fmt.Errorf("%d classes: at most %d, each is a label on metrics", len(*c), maxClasses)
	}
	return nil
}
