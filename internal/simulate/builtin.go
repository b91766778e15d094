package simulate

import (
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// Names are the scenarios that need no file.
var Names = []string{"calm", "outage", "hang"}

// Builtin is one of them: 100 events a second for an hour, each to one of 100 endpoints
// that answer in 50 ms, and 2 in 1,000 attempts fail.
//
//	calm    that alone
//	outage  10 of the endpoints fail for 15 minutes: 5 answer 500, 5 do not answer
//	hang    50 of the endpoints do not answer for 15 minutes
//
// It returns nil for a name that is none.
func Builtin(name string) *Scenario {
	group := func(name string, endpoints int, outages ...Outage) Group {
		return Group{
			Name: name, Endpoints: endpoints, Fanout: float64(endpoints) / 100,
			Latency:  Latency{delivery.Duration(50 * time.Millisecond), delivery.Duration(400 * time.Millisecond)},
			Failures: Failures{Share: 0.002}, Outages: outages,
		}
	}
	out := func(does Manner) Outage {
		return Outage{From: delivery.Duration(10 * time.Minute), For: delivery.Duration(15 * time.Minute), Does: does}
	}
	s := &Scenario{Name: name, Rate: 100, Duration: delivery.Duration(time.Hour)}
	switch name {
	case "calm":
		s.Groups = []Group{group("healthy", 100)}
	case "outage":
		s.Groups = []Group{group("healthy", 90), group("failing", 5, out(Fails)), group("hanging", 5, out(Hang))}
	case "hang":
		s.Groups = []Group{group("healthy", 50), group("hanging", 50, out(Hang))}
	default:
		return nil
	}
	return s
}
