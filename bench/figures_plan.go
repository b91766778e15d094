package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// The worked example.
const (
	planDaily  = 1e9 // deliveries
	planPeak   = 3   // the busiest second over the mean
	planFanOut = 10
	// planAway is the share of the subscribers that are down for planHours at the same
	// time: an ordinary bad day.
	planAway, planHours = 0.05, 4
)

// plan is what a thousand million deliveries a day need, by the figures.
func (m measured) plan() (string, error) {
	one, many := m.redisUS(oneRedis), m.redisUS(threePrimaries)
	if one == 0 || many == 0 {
		return "", errors.New("cluster.json: want the layouts 0x1 and 3x6")
	}
	mean := float64(planDaily) / 86400
	peak := mean * planPeak
	cores := func(us float64) float64 { return math.Ceil(peak * us / 1e6 / busy) }
	gb := func(v float64) string { return thousands(math.Round(v/1e9)) + " GB" }
	bytes := func(kind string) float64 {
		return m.of(oneRedis, func(o spreadOut) float64 { return o.Bytes[kind] })
	}
	events := float64(planDaily) / planFanOut
	records := planDaily * bytes("record")
	event, payload := events*bytes("event")*50/24, events*bytes("payload")*26/24
	waiting := mean * planHours * 3600 * planAway * m.scale.Backlog[len(m.scale.Backlog)-1].Bytes
	memory := records + event + payload + waiting
	var t strings.Builder
	t.WriteString("| what | how | comes to |\n|---|---|---|\n")
	add := func(what, how, value string) { fmt.Fprintf(&t, "| %s | %s | %s |\n", what, how, value) }
	add("deliveries a second, mean and peak", fmt.Sprintf("1,000,000,000 / 86,400, times %d", planPeak), thousands(mean)+"/s, "+thousands(peak)+"/s")
	add("one Redis core, were it enough", "peak x A", fmt.Sprintf("%.1f cores: one Redis cannot", peak*one/1e6))
	add("primaries for the CPU", "peak x B / 70 %", fmt.Sprintf("%.0f", cores(many)))
	add("dispatcher cores", "peak x E / 70 %", fmt.Sprintf("%.0f", cores(1000*m.of(oneRedis, func(o spreadOut) float64 { return o.WorkerMS }))))
	add("API cores", "peak x F / 70 %", fmt.Sprintf("%.0f", cores(1000*m.of(oneRedis, func(o spreadOut) float64 { return o.APIMS }))))
	add("records of delivered ones", "a day's x L", gb(records))
	add("event records", "100,000,000 x M x 50 h / 24 h", gb(event))
	add("payloads", "100,000,000 x N x 26 h / 24 h", gb(payload))
	add("what waits while 5 % of the subscribers are down for 4 h", fmt.Sprintf("%s x K", thousands(mean*planHours*3600*planAway)), gb(waiting))
	add("memory in all", "the sum", gb(memory))
	add("of it for every 100 deliveries a second", "the sum / 115.74", fmt.Sprintf("%.1f GB", memory/mean*100/1e9))
	add("primaries for the memory", "40 GB of data each, on machines of 96 GB", fmt.Sprintf("%.0f", math.Ceil(memory/40e9)))
	add("disk, all primaries", "peak x O", fmt.Sprintf("%.0f MB/s", peak*m.of(oneRedis, func(o spreadOut) float64 { return o.FileBytes })/1e6))
	add("network out of the dispatchers", "peak x 1 KB", fmt.Sprintf("%.1f Gbit/s", peak*1000*8/1e9))
	return t.String(), nil
}
