package schedule

import (
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// tags returns the key prefix of each of n partitions, such as "{fo:3.7}:". The
// suffix after the dot is the lowest for which partition p falls into the p-th of
// n equal bands of slots, so that any even split of the slots over primaries is
// an even split of the partitions. (Plain "fo:0" to "fo:15" fell 7, 5 and 4 over
// three primaries.)
func tags(kind string, n int) []string {
	out := make([]string, n)
	for p := range n {
		for suffix := 0; ; suffix++ {
			tag := fmt.Sprintf("fo:%s%d.%d", kind, p, suffix)
			if slot(tag)*n/slots == p {
				out[p] = "{" + tag + "}:"
				break
			}
		}
	}
	return out
}

// slot is the hash slot of a tag: CRC16 (XMODEM) mod 16384, as the Redis Cluster
// specification defines it.
func slot(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// Partitions is P.
func (e *Engine) Partitions() int { return len(e.parts) }

// PartitionOf is the partition of a subscriber's id; of an event's id it is the
// event partition.
func (e *Engine) PartitionOf(id string) int {
	if len(e.parts) == 1 { // the hashes of an event's subscribers were 9 % of the API's CPU
		return 0
	}
	return int(delivery.Hash16(id)) % len(e.parts)
}

// partitionOfDelivery reads the partition out of a delivery id.
func (e *Engine) partitionOfDelivery(id string) (int, error) {
	h, err := delivery.IDHash16(id)
	if err != nil {
		return 0, err
	}
	return int(h) % len(e.parts), nil
}

// eventPrefix is the key prefix that an event lives under.
func (e *Engine) eventPrefix(id string) string { return e.events[e.PartitionOf(id)] }

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMillis is the inverse of millis: 0 is the zero time. Times are UTC.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
